"""Queries of Prometheus: its address, the queries, their results, and missing metrics."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from infra.observability import series
from ops import metrics
from ops.cluster import ClusterError, ForbiddenError
from ops.metrics import MetricsUnknownError, PrometheusClient, Sample, Vitals
from tests.unit.snapshots import Text

RUN_ID = "hello-v2-5a5a5a5a"
HELLO = (RUN_ID, "hello", "team-research")
QUERIES = {key: str(one) for key, one in metrics.queries(*HELLO, ["spot-0", "spot-1"]).items()}


def answer(*samples: tuple[dict[str, str], str]) -> str:
    result = [{"metric": labels, "value": [1.0, value]} for labels, value in samples]
    return json.dumps({"status": "success", "data": {"result": result}})


def prometheus(text: str | Exception | None) -> PrometheusClient:
    def get(path: str, query: Any) -> str | None:
        assert path == "/api/v1/query"
        if isinstance(text, Exception):
            raise text
        return text

    return PrometheusClient("http://here", get)


def test_values_that_are_not_numbers_are_left_out() -> None:
    found = prometheus(answer(({"a": "b"}, "2.5"), ({}, "NaN"))).query("up")
    assert found == [Sample(labels={"a": "b"}, value=2.5)]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            None,
            "^no Prometheus found at http://here: the stack has none, or it has not started yet$",
        ),
        ("<html>", "^http://here: "),
        ("[]", "^http://here: "),
        ('{"status": "success", "data": {}}', "^http://here: "),
        ('{"status": "error", "error": "parse error"}', "parse error"),
        (ForbiddenError("services/proxy is forbidden"), "^your role may not query http://here$"),
    ],
)
def test_invalid_answers_are_reported_in_one_line(text: str | Exception | None, why: str) -> None:
    with pytest.raises(MetricsUnknownError, match=why):
        prometheus(text).query("up")


def test_without_a_url_prometheus_is_queried_through_the_api_server() -> None:
    asked: list[str] = []

    class Proxy:
        def text(self, path: str, query: Any, timeout_s: float) -> str | None:
            asked.append(path)
            return answer()

    metrics.connect("", Proxy()).query("up")  # type: ignore[arg-type]
    assert asked == [
        "/api/v1/namespaces/monitoring/services/http:prometheus-operated:9090/proxy/api/v1/query"
    ]


def test_every_queried_series_is_exported() -> None:
    words = {
        word for text in QUERIES.values() for word in re.findall(r"(?:trainyard|kube)[\w:]+", text)
    }
    assert words
    assert words <= series.KNOWN


@pytest.mark.parametrize("question", ["speeds", "gpus"])
def test_the_speed_of_all_versions_of_a_run_in_its_namespace_is_looked_up(question: str) -> None:
    assert 'namespace="team-research"' in QUERIES[question]
    [quoted] = re.findall(r'run_id=~("[^"]*")', QUERIES[question])
    matcher = json.loads(quoted)
    ids = ["hello-v1-0123abcd", RUN_ID, "hello-v2-v1-0123abcd", "big-hello-v1-0123abcd"]
    assert [found for found in ids if re.fullmatch(matcher, found)] == ids[:2]


def test_query_results_become_run_metrics() -> None:
    run = {"run_id": "hello-v1-1"}
    found = metrics.parse_vitals(
        {
            "loader": [Sample(labels={}, value=0.4)],
            "stall": [Sample(labels={}, value=0.1)],
            "events": [Sample(labels={"event": "checkpoint_failed"}, value=2.0)],
            "log_matches": [
                Sample(labels={"pattern": "no-space"}, value=1.0),
                Sample(labels={"pattern": "nccl-timeout"}, value=0.0),
            ],
            "speeds": [
                Sample(labels=run, value=100.0),
                Sample(labels={"run_id": "other"}, value=50.0),
            ],
            "gpus": [Sample(labels=run, value=8.0)],
        }
    )
    assert found == Vitals(
        loader=0.4,
        stall=0.1,
        saves_failed=2.0,
        log_matches={"no-space": 1.0},
        speeds={"hello-v1-1": (100.0, 8.0)},
    )
    assert found.known
    assert not metrics.parse_vitals({}).known


def test_a_run_has_reported_none_or_its_answer_is_missing() -> None:
    asked = metrics.parse_vitals({"reported": [], "loader": []})
    assert asked.reported is False and not asked.known
    assert metrics.parse_vitals({"loader": []}).reported is None
    earlier = metrics.parse_vitals({"reported": [Sample(labels={}, value=1.0)]})
    assert earlier.reported is True and earlier.known


def test_application_errors_do_not_mark_a_gpu_unhealthy(text: Text) -> None:
    where = {"node": "spot-0", "gpu": "3"}
    seen = [Sample(labels={**where, "xid": code}, value=1.0) for code in ("31", "79")]
    found = metrics.parse_vitals(
        {
            "xid": seen,
            "ecc": [Sample(labels=where, value=1.0)],
        }
    )
    text(found.gpu_faults)


def test_a_failed_query_keeps_the_results_of_others() -> None:
    def get(path: str, query: Any) -> str | None:
        if series.LOADER_SECONDS.name in query[0][1]:
            raise ClusterError("too much")
        return answer(({"event": "x"}, "1"))

    found = metrics.vitals_for(PrometheusClient("here", get), *HELLO, [])
    assert found.loader is None
    assert found.tokens_per_s == 1.0


def test_the_error_is_reported_if_all_queries_fail() -> None:
    with pytest.raises(MetricsUnknownError, match="connection refused"):
        metrics.vitals_for(prometheus(ClusterError("connection refused")), *HELLO, [])


def test_a_rank_that_no_label_names_is_left_out() -> None:
    named = {"symptom": "hung", "culprit_rank": "3", "culprit_node": "spot-0", "culprit_pod": "b"}
    others = ({"symptom": "x", "culprit_rank": "1"}, {"symptom": "hung", "culprit_rank": "all"})
    samples = [Sample(labels=one, value=5.0) for one in (named, *others)]
    [found] = metrics.parse_vitals({"culprits": samples}).culprits
    assert (found.rank, found.node, found.pod, found.time) == (3, "spot-0", "b", 5.0)
