"""Query a run's metrics from Prometheus: time-bounded instant queries, all of them optional.

Queries use the recorded series of infra.observability, which hide the metric names of exporters.
"""

from __future__ import annotations

import functools
import http.client
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote, unquote, urlencode, urlsplit, urlunsplit

import urllib3

from infra.domain import naming
from infra.observability import dcgm, series
from ops import concurrent
from ops.cluster import Cluster, ClusterError, ForbiddenError, describe_http_error
from ops.promql import Expression, Regex, any_of, select
from training.spec import ids_of_runs
from trainyard.culprits import SYMPTOMS, Culprit

PROMETHEUS_ENV: Final = "PROMETHEUS_URL"
TOKEN_ENV: Final = "PROMETHEUS_TOKEN_FILE"
CA_ENV: Final = "PROMETHEUS_CA_FILE"
REGION_ENV: Final = "PROMETHEUS_AWS_REGION"
"""Region of an Amazon Managed Service for Prometheus, whose queries are signed."""
DEADLINE_S: Final = 8.0
"""Time limit for all queries of one command together, in seconds."""
HOW_TO_PASS: Final = (
    f"pass a Prometheus that you may query with --prometheus or {PROMETHEUS_ENV},"
    " or ask a platform engineer"
)
"""What to do where there are no metrics."""
RECENT: Final = "1h"
"""Lookback for deleted pods."""
HISTORY: Final = "7d"
"""Lookback for comparing speeds."""

_SERVICE: Final = "prometheus-operated:9090"
"""Service that the Prometheus Operator creates for its instances."""

_APPLICATION_XIDS: Final = frozenset(map(str, dcgm.APPLICATION_XIDS))

Query = Sequence[tuple[str, str]]


class MetricsUnknownError(ClusterError):
    """No Prometheus, or it does not answer; the text gives the reason."""


_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Current value of one series; never NaN."""

    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, kw_only=True)
class History:
    """Values of one series over time, oldest first; never NaN."""

    labels: Mapping[str, str]
    points: Sequence[tuple[float, float]]
    """Unix seconds and value."""


@dataclass(frozen=True)
class PrometheusClient:
    """A Prometheus server. `place`: its name in messages."""

    place: str
    get: Callable[[str, Query], str | None]
    """Return the text at a path below its root; None for HTTP 404."""
    namespaces: tuple[str, ...] | None = None
    """Answer from series of these only, and tell no alerts; None: from all series."""

    def query(self, expression: Expression | str) -> list[Sample]:
        asked = [("query", self._promql(expression))]
        return _samples(self._text("/api/v1/query", asked), self.place)

    def range(
        self, expression: Expression | str, start: float, end: float, step_s: float
    ) -> list[History]:
        """Run a range query; times in Unix seconds. Raises MetricsUnknownError."""
        span = [("start", f"{start:.3f}"), ("end", f"{end:.3f}"), ("step", f"{step_s:.3f}")]
        asked = [("query", self._promql(expression)), *span]
        return _histories(self._text("/api/v1/query_range", asked), self.place)

    def _promql(self, expression: Expression | str) -> str:
        if isinstance(expression, Expression):
            return expression.text(self.namespaces)
        if self.namespaces is not None:
            raise MetricsUnknownError(f"{self.place}: a query that cannot be limited to namespaces")
        return expression

    def alerts(self) -> dict[str, str]:
        """Return the state of each loaded alert by name; `firing` if any instance fires.

        Raises MetricsUnknownError.
        """
        if self.namespaces is not None:
            raise MetricsUnknownError(f"{self.place}: alerts are of all teams")
        return _alert_states(self._text("/api/v1/rules", [("type", "alert")]), self.place)

    def _text(self, path: str, query: Query) -> str:
        try:
            text = self.get(path, query)
        except ForbiddenError:
            raise MetricsUnknownError(f"your role may not query {self.place}") from None
        except ClusterError as error:
            raise MetricsUnknownError(str(error)) from None
        if text is None:
            raise MetricsUnknownError(
                f"no Prometheus found at {self.place}: the stack has none, or it has not started yet"
            )
        return text


def _alert_states(text: str, place: str) -> dict[str, str]:
    try:
        groups = json.loads(text)["data"]["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        firing = {rule["name"]: "firing" for rule in rules if rule["state"] == "firing"}
        return {rule["name"]: rule["state"] for rule in rules} | firing
    except (ValueError, TypeError, KeyError):
        raise MetricsUnknownError(f"{place}: the response is not Prometheus's") from None


def connect(url: str, cluster: Cluster) -> PrometheusClient:
    """Return the Prometheus at a URL; if empty, the cluster's own through the API server.

    USER:PASSWORD@ in the URL are used, and in no message; so is the token in the file of TOKEN_ENV.
    """
    if url:
        split = urlsplit(url)
        login, _, host = split.netloc.rpartition("@")
        place = urlunsplit(split._replace(netloc=host)).rstrip("/")
        return PrometheusClient(place, lambda path, query: _fetch(place, path, query, login))
    namespace = naming.MONITORING_NAMESPACE
    root = f"/api/v1/namespaces/{namespace}/services/http:{_SERVICE}/proxy"
    return PrometheusClient(
        f"service {_SERVICE} of {namespace}",
        lambda path, query: cluster.text(root + path, query, DEADLINE_S),
    )


def _fetch(place: str, path: str, query: Query, login: str) -> str | None:
    authority = _file_of(CA_ENV)
    # Encoded as a signature requires it, which the client's own encoding of spaces is not.
    url = f"{place}{path}?{urlencode(query, quote_via=quote)}"
    headers = _credentials(login, url)
    try:
        # A redirect is not followed: it leads to a login page, and the credentials are not for another host.
        with urllib3.PoolManager(ca_certs=authority) as pool:
            answer = pool.request(
                "GET",
                url,
                headers=headers,
                timeout=DEADLINE_S,
                retries=False,
            )
    except (urllib3.exceptions.HTTPError, ValueError) as error:
        why = str(error)
        if isinstance(error, urllib3.exceptions.HTTPError):
            why = describe_http_error(error)
        remedy = f"; set {CA_ENV} to the file of its CA" if "CERTIFICATE_VERIFY" in why else ""
        raise MetricsUnknownError(f"{place} does not answer: {why}{remedy}") from None
    if answer.status == 404:
        return None
    if answer.status >= 300:
        raise MetricsUnknownError(f"{place}: {_refusal(answer.status, answer.data)}")
    return answer.data.decode(errors="replace")


def _credentials(login: str, url: str) -> dict[str, str]:
    if login:
        return urllib3.make_headers(basic_auth=unquote(login))
    if region := os.environ.get(REGION_ENV):
        return _signature(url, region)
    file = _file_of(TOKEN_ENV)
    # Tokens of service accounts are replaced while a program runs.
    return {"Authorization": f"Bearer {Path(file).read_text().strip()}"} if file else {}


def _signature(url: str, region: str) -> dict[str, str]:
    """Return the headers of a GET that is signed with the caller's AWS credentials (SigV4)."""
    try:
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest
        from botocore.exceptions import BotoCoreError
        from botocore.session import Session
    except ModuleNotFoundError:
        raise MetricsUnknownError(
            f'{REGION_ENV}: requires botocore; pip install "trainyard[cli,s3]"'
        ) from None
    try:
        credentials = Session().get_credentials()
        if credentials is None:
            raise MetricsUnknownError(f"{REGION_ENV}: no AWS credentials; log in: aws sso login")
        request = AWSRequest("GET", url)
        SigV4Auth(credentials, "aps", region).add_auth(request)
    except BotoCoreError as error:
        raise MetricsUnknownError(f"{REGION_ENV}: no AWS credentials: {error}; log in") from None
    return dict(request.headers.items())


def _file_of(variable: str) -> str | None:
    """Return the file that a variable names; None without one. Raises MetricsUnknownError."""
    name = os.environ.get(variable)
    if name and not os.access(name, os.R_OK):
        raise MetricsUnknownError(f"{variable}: got {name}; must be a readable file; correct it")
    return name or None


def _refusal(status: int, body: bytes) -> str:
    """Return what an answer other than 2xx says, in one line."""
    said = f"HTTP {status} {http.client.responses.get(status, '')}".strip()
    if status in (401, 403) or status < 400:
        return (
            f"{said}: no or other credentials; set {TOKEN_ENV} to the file of a token, {REGION_ENV} for Amazon's "
            f"service, or {PROMETHEUS_ENV} to https://USER:PASSWORD@HOST"
        )
    try:
        error = " ".join(str(json.loads(body)["error"]).split())
    except (ValueError, TypeError, KeyError):
        return said
    return f"{said}: {error}"


def _samples(text: str, place: str) -> list[Sample]:
    found = _results(
        text, place, lambda one: Sample(labels=dict(one["metric"]), value=float(one["value"][1]))
    )
    return [sample for sample in found if not math.isnan(sample.value)]


def _histories(text: str, place: str) -> list[History]:
    return _results(
        text,
        place,
        lambda one: History(labels=dict(one["metric"]), points=_finite(one["values"])),
    )


def _results(text: str, place: str, read: Callable[[Any], _T]) -> list[_T]:
    try:
        answer: Any = json.loads(text)
        if answer.get("status") != "success":
            raise MetricsUnknownError(f"{place}: {answer.get('error', 'no success')}")
        return [read(one) for one in answer["data"]["result"]]
    except (ValueError, TypeError, KeyError, AttributeError, IndexError):
        raise MetricsUnknownError(f"{place}: the response is not Prometheus's") from None


def _finite(values: Sequence[Sequence[Any]]) -> list[tuple[float, float]]:
    found = [(float(time), float(value)) for time, value in values]
    return [(time, value) for time, value in found if math.isfinite(value)]


@dataclass(frozen=True, kw_only=True)
class GpuFault:
    """A GPU that reports a hardware error."""

    node: str
    gpu: str
    what: str
    """`XID 79`, `uncorrectable memory errors`."""


@dataclass(frozen=True, kw_only=True)
class Vitals:
    """Metrics of a run; None where there is no series. Ratios are 0 to 1."""

    steps_per_s: float | None = None
    """Optimizer steps, over the last 5 minutes."""
    reported: bool | None = None
    """Whether its ranks have reported steps within HISTORY; None: the query was not answered."""
    tokens_per_s: float | None = None
    """Of all ranks, over the last 5 minutes."""
    loader: float | None = None
    """Share of the step time spent waiting for data."""
    collective: float | None = None
    """Share of the step time that the leading rank waited for the others."""
    gpu_busy: float | None = None
    """Mean utilization of the GPUs that its pods hold."""
    checkpoint_write_s: float | None = None
    """Seconds that the last checkpoint took to write."""
    stall: float | None = None
    """Share of the time that training was blocked by saves."""
    restarts_in_pod: float = 0.0
    """Starts of its ranks again in its pod, after failures."""
    saves_failed: float = 0.0
    """Failed saves of this attempt."""
    log_matches: Mapping[str, float] = field(default_factory=dict)
    """Log lines by pattern, including those of pods deleted within the last hour."""
    speeds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """By run id, of all its versions: median tokens/s and maximum GPUs over HISTORY."""
    gpu_faults: tuple[GpuFault, ...] = ()
    """Faulty GPUs on its nodes."""
    culprits: tuple[Culprit, ...] = ()
    """Ranks that its attempts of the last hour have named."""

    @property
    def known(self) -> bool:
        """Whether any series of this run exists."""
        nothing = Vitals(gpu_faults=self.gpu_faults, reported=self.reported)
        return bool(self.reported) or self != nothing


def vitals_for(
    metrics: PrometheusClient, run_id: str, name: str, namespace: str, nodes: Sequence[str]
) -> Vitals:
    """Query the metrics of a run on these nodes. Raises MetricsUnknownError."""
    questions = queries(run_id, name, namespace, nodes)
    came = concurrent.gather_with_deadline(
        {key: functools.partial(metrics.query, one) for key, one in questions.items()},
        DEADLINE_S,
    )
    answers = {name: found for name, found in came.items() if isinstance(found, list)}
    if not answers:
        reason = next(
            (str(error) for error in came.values()), f"{metrics.place} did not answer in time"
        )
        raise MetricsUnknownError(reason)
    return parse_vitals(answers)


def queries(run_id: str, name: str, namespace: str, nodes: Sequence[str]) -> dict[str, Expression]:
    """Return PromQL expressions by the keys that `parse_vitals` reads.

    The trainer's series are queried raw, because they exist before the first rule evaluation. Other
    versions of the run are found by id, because their objects are deleted.
    """
    versions = {"namespace": namespace, "run_id": Regex(ids_of_runs(name))}

    def run(template: str, one: series.Series) -> Expression:
        return Expression(template, select(one, run_id=run_id))

    def rate(counter: series.Series) -> Expression:
        return run("sum(rate({}[5m]))", counter)

    stalls, steps = rate(series.CHECKPOINT_STALL_SECONDS), rate(series.STEP_SECONDS)
    found = {
        "steps_per_s": rate(series.STEPS),
        "reported": run(f"count(last_over_time({{}}[{HISTORY}]))", series.STEPS),
        "tokens_per_s": rate(series.TOKENS),
        "loader": Expression("{} / {}", rate(series.LOADER_SECONDS), steps),
        "collective": Expression("{} / {}", rate(series.COLLECTIVE_SECONDS), steps),
        "stall": Expression("{} / ({} + {})", stalls, stalls, steps),
        "gpu_busy": run("avg({})", series.RUN_GPU_UTILIZATION),
        "checkpoint_write_s": run("max({})", series.CHECKPOINT_WRITE_SECONDS),
        "culprits": run(
            "max by (symptom, culprit_rank, culprit_node, culprit_pod)"
            f" (last_over_time({{}}[{RECENT}]))",
            series.CULPRIT_TIME,
        ),
        "restarts_in_pod": run("max({})", series.RESTARTS_IN_POD),
        "events": run("sum by (event) ({})", series.EVENTS),
        "log_matches": run(f"sum by (pattern) (max_over_time({{}}[{RECENT}]))", series.LOG_MATCHES),
        "speeds": Expression(
            f"max by (run_id) (quantile_over_time(0.5, {{}}[{HISTORY}]))",
            select(series.TOKENS_PER_SECOND, **versions),
        ),
        "gpus": Expression(
            f"max by (run_id) (max_over_time({{}}[{HISTORY}]))",
            select(series.RUN_GPUS, **versions),
        ),
    }
    if nodes:
        place = any_of(nodes)
        found["xid"] = Expression(
            "max by (node, gpu, xid) (max_over_time({}[15m]))",
            select(series.GPU_XID_SEEN, node=place),
        )
        found["ecc"] = Expression("{} > 0", select(series.GPU_ECC, node=place))
        found["remap"] = Expression("{} > 0", select(series.GPU_REMAP_FAILED, node=place))
    return found


def parse_vitals(answers: Mapping[str, Sequence[Sample]]) -> Vitals:
    def one(name: str) -> float | None:
        return next((sample.value for sample in answers.get(name, ())), None)

    events = {s.labels.get("event", ""): s.value for s in answers.get("events", ())}
    gpus = {s.labels.get("run_id", ""): s.value for s in answers.get("gpus", ())}
    return Vitals(
        steps_per_s=one("steps_per_s"),
        reported=bool(one("reported")) if "reported" in answers else None,
        tokens_per_s=one("tokens_per_s"),
        loader=one("loader"),
        collective=one("collective"),
        gpu_busy=one("gpu_busy"),
        checkpoint_write_s=one("checkpoint_write_s"),
        stall=one("stall"),
        restarts_in_pod=one("restarts_in_pod") or 0.0,
        saves_failed=events.get("checkpoint_failed", 0.0),
        log_matches={
            s.labels["pattern"]: s.value
            for s in answers.get("log_matches", ())
            if s.value and "pattern" in s.labels
        },
        speeds={
            run: (s.value, gpus[run])
            for s in answers.get("speeds", ())
            if gpus.get(run := s.labels.get("run_id", "")) and s.value
        },
        gpu_faults=tuple(_gpu_faults(answers)),
        culprits=tuple(_culprits(answers.get("culprits", ()))),
    )


def _culprits(samples: Sequence[Sample]) -> Iterator[Culprit]:
    """Yield what the run has named; the values are when, in Unix seconds."""
    for one in samples:
        symptom, rank = one.labels.get("symptom", ""), one.labels.get("culprit_rank", "")
        if symptom in SYMPTOMS and rank.lstrip("-").isdigit():
            yield Culprit(
                symptom=symptom,
                rank=int(rank),
                node=one.labels.get("culprit_node", ""),
                pod=one.labels.get("culprit_pod", ""),
                step=0,
                attempt=0,
                time=one.value,
                what="",
            )


def _gpu_faults(answers: Mapping[str, Sequence[Sample]]) -> list[GpuFault]:
    faults = [
        (sample, f"XID {code}")
        for sample in answers.get("xid", ())
        if (code := sample.labels.get("xid", "?")) not in _APPLICATION_XIDS
    ]
    faults += [(sample, "uncorrectable memory errors") for sample in answers.get("ecc", ())]
    faults += [
        (sample, "failed to remap a row of its memory") for sample in answers.get("remap", ())
    ]
    return [
        GpuFault(node=s.labels.get("node", "?"), gpu=s.labels.get("gpu", "?"), what=what)
        for s, what in faults
    ]
