"""Queries for one team's page: every selector is limited, whatever values and templates are tried."""

from __future__ import annotations

import re
from typing import Any

import pytest

from infra.observability import series
from ops import metrics
from ops.metrics import MetricsUnknownError, PrometheusClient
from ops.promql import Expression, Regex, any_of, select
from tests.unit.ops.test_ui_users import PagesCluster, page_of, signed_in

_STRING = r'"(?:[^"\\]|\\.)*"'
TEAM = ("team-a",)


def selectors(promql: str) -> list[tuple[str, str]]:
    """Series and matchers of each selector, read without ops.promql; fails where one has no matchers."""
    plain = re.sub(_STRING, lambda m: '"' + m[0][1:-1].encode().hex() + '"', promql)
    found = re.findall(r"([\w:]+)(\{[^{}]*\})", plain)
    rest = re.sub(r"[\w:]+\{[^{}]*\}", "", plain)
    assert not re.search(r"[{}\"'`#]", rest), promql
    assert not {*re.findall(r"[\w:]+", rest)} & series.KNOWN, promql
    return found


def require_limit(promql: str, namespaces: tuple[str, ...]) -> None:
    """Fail unless each selector begins with exactly this limit."""
    limit = "|".join(map(re.escape, namespaces)).replace("\\", "\\\\").encode().hex()
    found = selectors(promql)
    assert found
    for name, matchers in found:
        assert name in series.KNOWN
        assert matchers.startswith(f'{{namespace=~"{limit}"')


HOSTILE = [
    'x"} or trainyard_step{namespace="team-b',
    'x\\"} or trainyard_step{run_id="',
    "x\\",
    "x`} or up",
    "x\n} or up #",
    "x' or up",
    "}}{{",
    "{}",
    "\u2028\x00\x7f",
    "é😀",
]


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize("kind", [str, Regex, lambda text: any_of([text])])
def test_a_value_stays_a_value(value: str, kind: Any) -> None:
    asked = Expression(
        "sum by (event) (rate({}[5m])) / {}",
        select(series.EVENTS, run_id=kind(value)),
        Expression("max({})", select(series.STEP, run_id=kind(value), namespace="team-b")),
    )
    promql = asked.text(TEAM)
    require_limit(promql, TEAM)
    assert len(selectors(promql)) == 2 and promql.count("\n") == 0


@pytest.mark.parametrize(
    "template",
    [
        *("{} or up", "{} or vector(1)", "{} + sum(up)", "max by (run_id) ({} and up)"),
        *('{} or {{__name__=~".+"}}', "{} # {{", "{!r}", "{0}", "{0.series}", "{};up", "{}\x00"),
        *('label_replace({}, "namespace", "a", "", "")', "{} or `up`", "{} or 'up'", "absent({})"),
        *("{} offset 1d", "{} @ 1", "{}[5m:1m]", "{} and on (a)(up)", "count({} and (by))"),
        *("{} + NaN", "{} + trainyard_step", "{} + kube:x", "{}{}", "sum(rate(x[5m]))"),
    ],
)
def test_a_template_selects_nothing_by_itself(template: str) -> None:
    with pytest.raises(ValueError, match="PromQL template"):
        Expression(template, select(series.STEP))


@pytest.mark.parametrize("namespaces", [(), ("",), (".*",), ("a|.*",), ('a"} or up{x="',), ("A",)])
def test_a_limit_is_of_plain_names_only(namespaces: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="expected one or more DNS labels"):
        select(series.STEP).text(namespaces)


def test_a_limited_client_refuses_text_and_alerts() -> None:
    client = PrometheusClient("p", lambda *_: pytest.fail("asked"), TEAM)
    for asked in ("up", 'trainyard_step{namespace=~"team-a"}'):
        with pytest.raises(MetricsUnknownError, match="cannot be limited"):
            client.query(asked)
        with pytest.raises(MetricsUnknownError, match="cannot be limited"):
            client.range(asked, 0, 1, 1)
    with pytest.raises(MetricsUnknownError, match="of all teams"):
        client.alerts()


def test_every_query_of_a_run_is_limited() -> None:
    for one in metrics.queries("a-v1-x", "a", "team-a", ["n1"]).values():
        require_limit(one.text(("team-a", "team-b")), ("team-a", "team-b"))
        assert "namespace=~" not in str(one)


def test_every_query_of_every_page_is_limited_to_the_users_teams(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def get(_path: str, query: metrics.Query) -> str:
        asked.append(dict(query)["query"])
        return '{"status": "success", "data": {"result": []}}'

    monkeypatch.setattr(metrics, "connect", lambda *_: PrometheusClient("p", get))
    page, who = page_of(PagesCluster(), "http://prometheus"), signed_in("research")
    mine = "team-research/research-model-v2-aaaaaaaa"
    for path in ("/", f"/runs/{mine}", f"/compare?run={mine}", f"/curves?run={mine}", "/queues"):
        assert page.get(path, headers=who).status_code == 200
    assert len(asked) > 30
    for promql in asked:
        require_limit(promql, ("team-research",))
