"""Query a run's metrics from Prometheus: time-bounded instant queries, all of them optional.

Queries use the recorded series of infra.observability, which hide the metric names of exporters.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import urllib3

from infra.domain import naming
from infra.observability import dcgm, series
from ops import concurrent
from ops.cluster import Cluster, ClusterError, describe_http_error
from training.spec import ids_of_runs

PROMETHEUS_ENV: Final = "PROMETHEUS_URL"
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

    def query(self, expression: str) -> list[Sample]:
        """Run an instant query. Raises MetricsUnknownError."""
        return _samples(self._text("/api/v1/query", [("query", expression)]), self.place)

    def range(self, expression: str, start: float, end: float, step_s: float) -> list[History]:
        """Run a range query; times in Unix seconds. Raises MetricsUnknownError."""
        span = [("start", f"{start:.3f}"), ("end", f"{end:.3f}"), ("step", f"{step_s:.3f}")]
        return _histories(
            self._text("/api/v1/query_range", [("query", expression), *span]), self.place
        )

    def alerts(self) -> dict[str, str]:
        """Return the state of each loaded alert by name; `firing` if any instance fires.

        Raises MetricsUnknownError.
        """
        return _alert_states(self._text("/api/v1/rules", [("type", "alert")]), self.place)

    def _text(self, path: str, query: Query) -> str:
        try:
            text = self.get(path, query)
        except ClusterError as error:
            raise MetricsUnknownError(str(error)) from None
        if text is None:
            raise MetricsUnknownError(f"no Prometheus found at {self.place}")
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
    """Return the Prometheus at a URL; if empty, the cluster's own through the API server."""
    if url:
        return PrometheusClient(url, lambda path, query: _fetch(url.rstrip("/") + path, query))
    namespace = naming.MONITORING_NAMESPACE
    root = f"/api/v1/namespaces/{namespace}/services/http:{_SERVICE}/proxy"
    return PrometheusClient(
        f"service {_SERVICE} of {namespace}",
        lambda path, query: cluster.text(root + path, query, DEADLINE_S),
    )


def _fetch(address: str, query: Query) -> str:
    try:
        answer = urllib3.request(
            "GET", address, fields=dict(query), timeout=DEADLINE_S, retries=False
        )
    except (urllib3.exceptions.HTTPError, ValueError) as error:
        why = (
            describe_http_error(error) if isinstance(error, urllib3.exceptions.HTTPError) else error
        )
        raise MetricsUnknownError(f"{address} does not answer: {why}") from None
    return answer.data.decode(errors="replace")


def _samples(text: str, place: str) -> list[Sample]:
    try:
        answer: Any = json.loads(text)
        if answer.get("status") != "success":
            raise MetricsUnknownError(f"{place}: {answer.get('error', 'no success')}")
        found = [
            Sample(labels=dict(one["metric"]), value=float(one["value"][1]))
            for one in answer["data"]["result"]
        ]
    except (ValueError, TypeError, KeyError, AttributeError, IndexError):
        raise MetricsUnknownError(f"{place}: the response is not Prometheus's") from None
    return [sample for sample in found if not math.isnan(sample.value)]


def _histories(text: str, place: str) -> list[History]:
    try:
        answer: Any = json.loads(text)
        if answer.get("status") != "success":
            raise MetricsUnknownError(f"{place}: {answer.get('error', 'no success')}")
        return [
            History(labels=dict(one["metric"]), points=_finite(one["values"]))
            for one in answer["data"]["result"]
        ]
    except (ValueError, TypeError, KeyError, AttributeError, IndexError):
        raise MetricsUnknownError(f"{place}: the response is not Prometheus's") from None


def _finite(values: Sequence[Sequence[Any]]) -> list[tuple[float, float]]:
    found = [(float(time), float(value)) for time, value in values]
    return [(time, value) for time, value in found if math.isfinite(value)]


@dataclass(frozen=True, kw_only=True)
class RunIdentity:
    """The run to query."""

    run_id: str
    name: str
    namespace: str


@dataclass(frozen=True, kw_only=True)
class GpuFault:
    """A GPU that reports a hardware error."""

    node: str
    gpu: str
    what: str
    """`XID 79`, `uncorrectable memory errors`."""


@dataclass(frozen=True, kw_only=True)
class NamedRank:
    """A rank that a run has named as the cause of trouble."""

    symptom: str
    rank: str
    node: str
    pod: str
    time: float
    """When it was last named, in Unix seconds."""


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
    culprits: tuple[NamedRank, ...] = ()
    """Ranks that its attempts of the last hour have named."""

    @property
    def known(self) -> bool:
        """Whether any series of this run exists."""
        nothing = Vitals(gpu_faults=self.gpu_faults, reported=self.reported)
        return bool(self.reported) or self != nothing


def vitals_for(metrics: PrometheusClient, asked: RunIdentity, nodes: Sequence[str]) -> Vitals:
    """Query the metrics of a run on these nodes. Raises MetricsUnknownError."""
    questions = queries(asked, nodes)
    came = concurrent.gather_with_deadline(
        {name: _bind_query(metrics, expression) for name, expression in questions.items()},
        DEADLINE_S,
    )
    answers = {name: found for name, found in came.items() if isinstance(found, list)}
    if not answers:
        reason = next(
            (str(error) for error in came.values()), f"{metrics.place} did not answer in time"
        )
        raise MetricsUnknownError(reason)
    return parse_vitals(answers)


def _bind_query(metrics: PrometheusClient, expression: str) -> Callable[[], list[Sample]]:
    return lambda: metrics.query(expression)


def queries(asked: RunIdentity, nodes: Sequence[str]) -> dict[str, str]:
    """Return PromQL expressions by the keys that `parse_vitals` reads.

    The trainer's series are queried raw, because they exist before the first rule evaluation. Other
    versions of the run are found by id, because their objects are deleted.
    """
    run = f'run_id="{asked.run_id}"'
    versions = f'namespace="{asked.namespace}",run_id=~`{ids_of_runs(asked.name)}`'

    def rate(counter: series.Series) -> str:
        return f"sum(rate({counter}{{{run}}}[5m]))"

    stalls = rate(series.CHECKPOINT_STALL_SECONDS)
    found = {
        "steps_per_s": rate(series.STEPS),
        "reported": f"count(last_over_time({series.STEPS}{{{run}}}[{HISTORY}]))",
        "tokens_per_s": rate(series.TOKENS),
        "loader": f"{rate(series.LOADER_SECONDS)} / {rate(series.STEP_SECONDS)}",
        "collective": f"{rate(series.COLLECTIVE_SECONDS)} / {rate(series.STEP_SECONDS)}",
        "stall": f"{stalls} / ({stalls} + {rate(series.STEP_SECONDS)})",
        "gpu_busy": f"avg({series.RUN_GPU_UTILIZATION}{{{run}}})",
        "checkpoint_write_s": f"max({series.CHECKPOINT_WRITE_SECONDS}{{{run}}})",
        "culprits": "max by (symptom, culprit_rank, culprit_node, culprit_pod)"
        f" (last_over_time({series.CULPRIT_TIME}{{{run}}}[{RECENT}]))",
        "restarts_in_pod": f"max({series.RESTARTS_IN_POD}{{{run}}})",
        "events": f"sum by (event) ({series.EVENTS}{{{run}}})",
        "log_matches": f"sum by (pattern) (max_over_time({series.LOG_MATCHES}{{{run}}}[{RECENT}]))",
        "speeds": "max by (run_id) (quantile_over_time(0.5, "
        f"{series.TOKENS_PER_SECOND}{{{versions}}}[{HISTORY}]))",
        "gpus": f"max by (run_id) (max_over_time({series.RUN_GPUS}{{{versions}}}[{HISTORY}]))",
    }
    if nodes:
        place = f"node=~{_any_of(nodes)}"
        seen = f"max_over_time({series.GPU_XID_SEEN}{{{place}}}[15m])"
        found["xid"] = f"max by (node, gpu, xid) ({seen})"
        found["ecc"] = f"{series.GPU_ECC}{{{place}}} > 0"
        found["remap"] = f"{series.GPU_REMAP_FAILED}{{{place}}} > 0"
    return found


def _any_of(values: Sequence[str]) -> str:
    """Return a regex matcher for any of these values, in backquotes, which require no escapes."""
    return "`" + "|".join(re.escape(value) for value in values) + "`"


def parse_vitals(answers: Mapping[str, Sequence[Sample]]) -> Vitals:
    """Build Vitals from query results. Pure."""

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
        culprits=tuple(map(_named_rank, answers.get("culprits", ()))),
    )


def _named_rank(sample: Sample) -> NamedRank:
    labels = sample.labels
    return NamedRank(
        symptom=labels.get("symptom", ""),
        rank=labels.get("culprit_rank", ""),
        node=labels.get("culprit_node", ""),
        pod=labels.get("culprit_pod", ""),
        time=sample.value,
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
