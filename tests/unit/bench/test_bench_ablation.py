"""Each ablation round removes exactly one part of the configuration."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bench import ablation, fleet
from bench.fleet import Arm
from infra.addons import kueue_config

KUEUE = {
    "fairSharing": {"a": 1},
    "featureGates": {kueue_config.TOPOLOGY_CACHE_GATE: True, kueue_config.RECLAIM_GATE: False},
    "clientConnection": {"qps": 3},
}


@pytest.fixture(scope="module")
def ours() -> Arm:
    return fleet.trainyard_arm(fleet.render_fleet(16), KUEUE)


def _kinds(arm: Arm) -> set[str]:
    return {o["kind"] for o in arm.objects}


def _specs(arm: Arm, kind: str) -> list[dict[str, Any]]:
    return [o["spec"] for o in arm.objects if o["kind"] == kind]


def test_the_full_configuration_runs_first_and_last(ours: Arm) -> None:
    least = Arm(name=fleet.MINIMAL_ARM, objects=(), kueue={})
    played = ablation.ablation_arms(ours, least)
    assert [part for part, _ in played] == ["", *ablation.PARTS, "", ""]
    assert played[0][1] is ours and played[-2][1] is ours and played[-1][1] is least
    assert [arm.name for part, arm in played if part] == [
        f"ours, without {part}" for part in ablation.PARTS
    ]


def test_without_isolation_policies_are_removed_and_queues_kept(ours: Arm) -> None:
    taken = ablation.PARTS["admission policies"](ours)
    gone = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
    assert gone <= _kinds(ours) and _kinds(taken) == _kinds(ours) - gone


def test_without_topology_flavors_name_none(ours: Arm) -> None:
    taken = ablation.PARTS["topology"](ours)
    assert all("topologyName" in spec for spec in _specs(ours, "ResourceFlavor"))
    assert not any("topologyName" in spec for spec in _specs(taken, "ResourceFlavor"))
    assert _kinds(taken) == _kinds(ours) - {"Topology"}


def test_without_preemption_no_queue_reclaims_quota(ours: Arm) -> None:
    taken = ablation.PARTS["preemption"](ours)
    never = {"reclaimWithinCohort": "Never", "withinClusterQueue": "Never"}
    assert all(spec["preemption"] == never for spec in _specs(taken, "ClusterQueue"))
    assert all(spec["preemption"] != never for spec in _specs(ours, "ClusterQueue"))


def test_removing_a_setting_of_kueue_keeps_the_others(ours: Arm) -> None:
    taken = ablation.PARTS["fair sharing"](ours)
    assert dict(taken.kueue) == {k: v for k, v in KUEUE.items() if k != "fairSharing"}
    assert taken.objects == ours.objects


def test_removing_a_feature_gate_keeps_the_others(ours: Arm) -> None:
    taken = ablation.PARTS["cached topology trees"](ours)
    assert dict(taken.kueue) == KUEUE | {"featureGates": {kueue_config.RECLAIM_GATE: False}}
    assert taken.objects == ours.objects


def test_removing_parts_does_not_change_the_original(ours: Arm) -> None:
    before = json.dumps(ours.objects)
    for take in ablation.PARTS.values():
        take(ours)
    assert json.dumps(ours.objects) == before
