"""Scrape targets of Prometheus and their labels."""

from __future__ import annotations

import re
from typing import Any

import pytest

from infra.domain import naming
from infra.observability import component, monitors, series
from infra.observability.component import ObservabilityArgs


def relabelled(
    monitor: dict[str, Any], meta: dict[str, str], stage: str = "relabelings", number: int = 0
) -> dict[str, str] | None:
    """Labels of a target (or a sample) after relabelling, as Prometheus does it; None: it is dropped.

    `number`: of the monitor's endpoint.
    """
    endpoints = monitor["spec"].get("podMetricsEndpoints") or monitor["spec"]["endpoints"]
    endpoint = endpoints[number]
    found = dict(meta)
    for rule in endpoint[stage]:
        if rule.get("action") == "labeldrop":
            found = {n: v for n, v in found.items() if not re.fullmatch(rule["regex"], n)}
            continue
        value = ";".join(found.get(label, "") for label in rule.get("sourceLabels", []))
        matched = re.fullmatch(rule.get("regex", "(.*)"), value)
        if rule.get("action") == "keep":
            if matched is None:
                return None
        elif rule.get("action") == "drop":
            if matched:
                return None
        elif matched:
            found[rule["targetLabel"]] = rule.get("replacement", value)
    return {name: value for name, value in found.items() if not name.startswith("__")}


POD = {
    "__meta_kubernetes_pod_node_name": "node-7",
    "__meta_kubernetes_pod_label_trainyard_dev_run_id": "llama-v1-0a1b2c3d",
    "__meta_kubernetes_pod_label_trainyard_dev_team": "research",
}
INDEX = "__meta_kubernetes_pod_label_batch_kubernetes_io_job_completion_index"


@pytest.mark.parametrize(("number", "job"), list(enumerate(("trainer", "culprits"))))
def test_run_series_have_run_team_and_node_labels(number: int, job: str) -> None:
    assert relabelled(monitors.runs(30), POD, number=number) == {
        "job": job,
        "node": "node-7",
        "run_id": "llama-v1-0a1b2c3d",
        "team": "research",
    }


def test_run_cannot_forge_identity_labels() -> None:
    sample = {"run_id": "llama-v1-0a1b2c3d", "exported_run_id": "other", "exported_team": "other"}
    sample["__name__"] = "trainyard_step"
    assert relabelled(monitors.runs(30), sample, "metricRelabelings") == {
        "run_id": "llama-v1-0a1b2c3d"
    }


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        (str(series.TOKENS), True),
        (series.POD_LABEL_INFO.name, False),
        ("ALERTS", False),
        (str(series.BUDGET_STATE), False),
        (str(series.COSTS_RECORDED), False),
    ],
)
def test_scrape_keeps_only_bounded_series_of_runs(name: str, kept: bool) -> None:
    monitor = monitors.runs(30)
    found = relabelled(monitor, {"__name__": name}, "metricRelabelings")
    assert (found is not None) is kept
    assert monitor["spec"]["sampleLimit"] == 500


@pytest.mark.parametrize(("series_", "kept"), [(series.CULPRIT_TIME, True), (series.STEP, False)])
def test_named_ranks_are_scraped_often_and_nothing_else_is(
    series_: series.Series, kept: bool
) -> None:
    monitor = monitors.runs(30)
    all_series, culprits = monitor["spec"]["podMetricsEndpoints"]
    assert (all_series["interval"], culprits["interval"]) == ("30s", "2s")
    found = relabelled(monitor, {"__name__": str(series_)}, "metricRelabelings", 1)
    assert (found is not None) is kept


@pytest.mark.parametrize(
    ("role", "kept"), [("leader", True), ("standalone", True), ("", True), ("follower", False)]
)
def test_queue_metrics_come_from_the_leading_manager(role: str, kept: bool) -> None:
    sample = {"cluster_queue": "research", "replica_role": role}
    found = relabelled(monitors.kueue(30), sample, "metricRelabelings")
    assert (found is not None) is kept


@pytest.mark.parametrize(("index", "kept"), [("0", True), ("1", False), ("10", False)])
def test_only_the_first_pod_of_a_gang_is_scraped(index: str, kept: bool) -> None:
    assert (relabelled(monitors.runs(30), POD | {INDEX: index}) is not None) is kept


@pytest.mark.parametrize("exporter", sorted(monitors.GPU_EXPORTERS))
def test_exporter_labels_override_target_labels(exporter: str) -> None:
    monitor = monitors.gpus(exporter, 30)
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["honorLabels"] is True
    assert relabelled(monitor, POD) == {"job": "dcgm-exporter", "node": "node-7"}


@pytest.mark.parametrize("exporter", sorted(monitors.GPU_EXPORTERS))
def test_idle_gpu_is_not_attributed_to_the_exporter(exporter: str) -> None:
    # What prometheus-operator writes before relabelings of a monitor, pkg/prometheus/promcfg.go of 0.93.
    own = {"namespace": "gpu-operator", "pod": "exporter-x2b", "container": "exporter"}
    found = relabelled(monitors.gpus(exporter, 30), POD | own)
    assert found is not None and not own.keys() & found.keys()


ARGS = ObservabilityArgs(
    groups=[{"name": "trainyard-runs", "rules": []}, {"name": "trainyard-gpus", "rules": []}],
    dashboards={"fleet": "{}", "run": "{}"},
    scrape_seconds=30,
)


def kinds(args: ObservabilityArgs) -> list[tuple[str, str]]:
    return [(m["kind"], m["metadata"]["name"]) for m in component.manifests(args)]


def test_costs_are_scraped_where_the_add_on_is_and_keep_their_own_teams() -> None:
    costs = ObservabilityArgs(groups=[], dashboards={}, scrape_seconds=30, costs=True)
    assert ("PodMonitor", "costs") in kinds(costs) and ("PodMonitor", "costs") not in kinds(ARGS)
    monitor = monitors.costs(30)
    assert relabelled(monitor, {"team": "research"}) == {"job": "costs", "team": "research"}
    assert monitor["spec"]["namespaceSelector"] == {"matchNames": [naming.COSTS_NAMESPACE]}


def test_steering_is_scraped_where_the_add_on_is_and_no_run_can_export_its_metrics() -> None:
    args = ObservabilityArgs(groups=[], dashboards={}, scrape_seconds=30, steering=True)
    assert ("PodMonitor", "steering") in kinds(args)
    assert ("PodMonitor", "steering") not in kinds(ARGS)
    monitor = monitors.steering(30)
    assert monitor["spec"]["namespaceSelector"] == {"matchNames": [naming.STEERING_NAMESPACE]}
    dropped = re.compile(series.NOT_OF_RUNS)
    own = [name for name in series.ALL if name.startswith("trainyard_")]
    loops = {name for name in own if dropped.fullmatch(name)}
    assert {series.STEERING_LOOKED.name, series.COSTS_RECORDED.name} <= loops
    assert series.STEPS.name not in loops
