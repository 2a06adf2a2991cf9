"""Ablation: run the same load with one part of the configuration removed at a time."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from bench import admission, fleet, gangs, rounds
from bench.admission import Progress, Size
from bench.api import Api, Json, wait_until
from bench.embedded import Embedded
from bench.fleet import Arm
from bench.rounds import RoundResult
from infra.addons import kueue_config

_QUOTA_S: Final = 60.0


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """All rounds, in order of execution."""

    size: Size
    rounds: tuple[RoundResult, ...]

    @property
    def violations(self) -> int:
        """Over all rounds."""
        return sum(r.violations for r in self.rounds)


def _without_objects(arm: Arm, *kinds: str) -> Arm:
    return replace(arm, objects=tuple(o for o in arm.objects if o["kind"] not in kinds))


def _without_setting(arm: Arm, setting: str) -> Arm:
    return replace(arm, kueue={k: v for k, v in arm.kueue.items() if k != setting})


def _without_gate(arm: Arm, gate: str) -> Arm:
    left = {name: on for name, on in arm.kueue["featureGates"].items() if name != gate}
    return replace(arm, kueue={**arm.kueue, "featureGates": left})


def _with_change(arm: Arm, kind: str, change: Callable[[Json], object]) -> Arm:
    objects = copy.deepcopy(arm.objects)
    for found in objects:
        if found["kind"] == kind:
            change(found["spec"])
    return replace(arm, objects=objects)


def _without_topology(arm: Arm) -> Arm:
    plain = _with_change(arm, "ResourceFlavor", lambda spec: spec.pop("topologyName", None))
    return _without_objects(plain, "Topology")


def _without_preemption(arm: Arm) -> Arm:
    never = {"reclaimWithinCohort": "Never", "withinClusterQueue": "Never"}
    return _with_change(arm, "ClusterQueue", lambda spec: spec.update(preemption=never))


QUOTA: Final = "the namespaces' ResourceQuota"
PARTS: Final[Mapping[str, Callable[[Arm], Arm]]] = {
    "admission policies": lambda arm: _without_objects(
        arm, "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"
    ),
    "topology": _without_topology,
    "preemption": _without_preemption,
    "fair sharing": lambda arm: _without_setting(arm, "fairSharing"),
    "cached topology trees": lambda arm: _without_gate(arm, kueue_config.TOPOLOGY_CACHE_GATE),
    # Not an object of the queues: it is removed below.
    QUOTA: lambda arm: arm,
}
"""Functions that remove each part."""


def ablation_arms(ours: Arm, least: Arm) -> list[tuple[str, Arm]]:
    """Return each round's removed part (empty: none) and configuration, the full one first and last."""
    out = [
        (part, replace(take(ours), name=f"{fleet.TRAINYARD_ARM}, without {part}"))
        for part, take in PARTS.items()
    ]
    return [("", ours), *out, ("", ours), ("", least)]


def run(cluster: Embedded, size: Size, notify: Progress) -> Outcome:
    """Run all rounds on a cluster that nothing else uses."""
    api = admission.connect(cluster, size)
    notify("rendering the fleet", 0, 0)
    made = fleet.render_fleet(size.nodes)
    kueue = fleet.with_production_settings(cluster.kueue_configuration())
    notify(f"creating {size.nodes} nodes", 0, 0)
    rounds.install_fleet(api, made, fleet.minimal_namespace())
    if not size.pods:
        cluster.without_pods()
    quotas = [o for o in made.common if o["kind"] == "ResourceQuota"]
    results: list[RoundResult] = []
    last: list[Arm] = []
    for part, arm in ablation_arms(
        fleet.trainyard_arm(made, kueue), fleet.minimal_arm(made, kueue)
    ):
        if part == QUOTA and not size.pods:
            continue  # Quotas count pods, and what counts them does not run.
        notify(arm.name, size.workloads, 0)
        rounds.delete_load(api)
        if size.pods:
            _set_quotas(api, quotas, there=part != QUOTA)
        rounds.switch_arm(api, cluster, arm, [other for other in last if other is not arm])
        last = [arm]
        load = admission.load(made, arm, size, 0)
        if part == "topology":
            load = [gangs.without_topology(manifest) for manifest in load]
        report_finished = partial(notify, arm.name, size.workloads)
        results.append(
            admission.run_round(api, cluster, made, arm, load, report_finished, with_pods=size.pods)
        )
    return Outcome(size=size, rounds=tuple(results))


def _set_quotas(api: Api, quotas: Iterable[Json], *, there: bool) -> None:
    for quota in quotas:
        if there:
            api.apply(quota)
            counted = partial(_in_force, api, api.path(quota))
            wait_until(counted, "the quota is in force", _QUOTA_S)
        else:
            api.delete(api.path(quota))


def _in_force(api: Api, path: str) -> bool:
    return bool((api.get(path).get("status") or {}).get("hard"))
