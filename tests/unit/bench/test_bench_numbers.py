"""The arithmetic of the benchmarks, and the load: the same for the same seed."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import pytest

from bench import admission, fleet, gangs, report, storm, writes
from bench.fleet import Fleet
from bench.statistics import interleaved, median_and_bound, ratios
from infra.addons import kueue
from infra.domain import naming

METRICS = """
apiserver_request_total{code="201",resource="jobs",subresource="",verb="POST"} 100
apiserver_request_total{code="200",resource="pods",subresource="",verb="PATCH"} 90
apiserver_request_total{code="409",resource="pods",subresource="",verb="PATCH"} 10
apiserver_request_total{code="200",resource="pods",subresource="status",verb="PATCH"} 30
apiserver_request_total{code="200",resource="leases",subresource="",verb="PUT"} 7
apiserver_request_total{code="200",resource="pods",subresource="",verb="WATCH"} 7000
"""


KUEUE = kueue.chart_config()


@pytest.fixture(scope="module")
def made() -> Fleet:
    return fleet.render_fleet(40)


def test_writes_are_counted_by_resource_without_leases() -> None:
    found = writes.by_resource(METRICS)
    assert found == {"jobs": 100, "pods": 100, "pods/status": 30}


@pytest.mark.parametrize(("count", "dropped"), [(1, 0), (5, 0), (8, 0), (9, 1), (10, 1), (20, 5)])
def test_the_bound_of_a_median_has_95_percent_confidence(count: int, dropped: int) -> None:
    ratios = [float(n) for n in range(count)]
    expected = (statistics.median(ratios), ratios[dropped], ratios[-1 - dropped])
    assert median_and_bound(ratios[::-1]) == expected


def test_the_bound_of_thousands_of_values_is_close_to_their_median() -> None:
    middle, low, high = median_and_bound(range(3001))
    assert (middle, low, high) == (1500, 1446, 1554)


def test_arms_take_turns_and_ratios_are_those_of_a_round() -> None:
    calls: list[str] = []
    arms = {name: lambda name=name: calls.append(name) for name in ("a", "b")}
    assert interleaved(arms, 3, lambda *_: None) == {"a": [None] * 3, "b": [None] * 3}
    assert "".join(calls) == "abbaab"
    found = ratios([2.0, 6.0], [1.0, 2.0])
    assert str(found) == "2.50 (2.00 to 3.00)"
    assert found.goal(2.0) == "goal at most 2: missed by 25%"
    assert found.goal(2.0, most=False) == "goal at least 2: met"


def test_rounds_of_a_pair_alternate(made: Fleet) -> None:
    ours, least = fleet.trainyard_arm(made, {}), fleet.minimal_arm(made, {})
    names = [arm.name for arm in admission.arm_order(ours, least, 3)]
    assert names == ["ours", "minimal", "minimal", "ours", "ours", "minimal"]


def test_the_same_seed_gives_the_same_load_and_another_one_does_not() -> None:
    assert list(gangs.generate_gangs(30, 7, "a")) == list(gangs.generate_gangs(30, 7, "a"))
    assert list(gangs.generate_gangs(30, 7, "a")) != list(gangs.generate_gangs(30, 8, "a"))


def test_both_configurations_get_the_same_pods(made: Fleet) -> None:
    for gang in gangs.generate_gangs(20, 1, "a"):
        ours = gangs.render_gang(gang, made.platform)
        least = gangs.for_minimal(gangs.render_gang(gang, made.platform))
        assert least["metadata"]["namespace"] == fleet.MINIMAL
        assert _pods(ours) == _pods(least)


def _pods(made: dict[str, Any]) -> Any:
    """Pod specs and their annotations, which ask for a topology level."""
    replicated = made["spec"].get("replicatedJobs")
    spec = replicated[0]["template"]["spec"] if replicated else made["spec"]
    return spec["template"]["spec"], spec["template"]["metadata"]["annotations"]


def test_the_minimal_configuration_has_the_same_quota_in_one_queue(made: Fleet) -> None:
    arm = fleet.minimal_arm(made, KUEUE)
    topology, flavor, queue, local = arm.objects
    assert [topology["kind"], local["kind"]] == ["Topology", "LocalQueue"]
    assert flavor["spec"]["topologyName"] == topology["metadata"]["name"]
    labels = flavor["spec"]["nodeLabels"].items()
    assert all(labels <= node["metadata"]["labels"].items() for node in made.nodes)
    (group,) = queue["spec"]["resourceGroups"]
    quotas = {r["name"]: r["nominalQuota"] for r in group["flavors"][0]["resources"]}
    assert quotas[naming.GPU] == str(40 * fleet.GPUS_PER_NODE) == str(sum(made.gpus.values()))
    assert arm.kueue["clientConnection"] == KUEUE["clientConnection"]
    assert not {"waitForPodsReady", "fairSharing"} & set(arm.kueue)
    assert arm.kueue["featureGates"] == {}


def test_our_configuration_is_that_of_a_cluster_not_of_the_sandbox() -> None:
    settings = fleet.with_production_settings(KUEUE)
    assert settings["waitForPodsReady"]["timeout"] == "1200s"
    cluster = kueue.chart_config()
    assert settings["featureGates"] == cluster["featureGates"]
    assert settings["clientConnection"] == cluster["clientConnection"]
    assert settings["controller"] == cluster["controller"]


def test_held_queues_admit_no_runs_until_released(made: Fleet) -> None:
    arm = fleet.trainyard_arm(made, {})
    policies = {o["spec"]["stopPolicy"] for o in arm.held() if o["kind"] == "ClusterQueue"}
    assert policies == {"Hold"}
    assert {o["spec"]["stopPolicy"] for o in arm.objects if o["kind"] == "ClusterQueue"} == {"None"}


SIZE = storm.Size(nodes=24, low=8, high=8, kills=8, kill_every_s=2.0, seconds=1.0, seed=3)


def test_controllers_are_killed_equally_often_at_seeded_times() -> None:
    kills = storm.plan_kills(SIZE)
    assert storm.plan_kills(SIZE) == kills
    assert [k.at for k in kills] == sorted(k.at for k in kills)
    assert {name: sum(k.service == name for k in kills) for name in storm.KILLED} == dict.fromkeys(
        storm.KILLED, 2
    )


def test_low_priority_comes_from_research_only() -> None:
    low, high = storm.storm_load(SIZE, (1, 2))
    tiers = dict(fleet.TEAMS)
    assert {tiers[gang.team] for gang in low} == {"research"}
    assert {tiers[gang.team] for gang in high} == {"research", "production"}


def test_a_section_is_replaced_and_the_others_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "RESULTS.md"
    report.record(file, {"admission": "first", "storm": "kept"})
    report.record(file, {"admission": "second"})
    text = file.read_text()
    assert text.startswith(report.HEAD)
    assert "first" not in text
    assert text.endswith("## admission\n\nsecond\n\n## storm\n\nkept\n")
