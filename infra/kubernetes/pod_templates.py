"""Pod templates in each kind of object, as variables of CEL expressions.

Rules about pods are written once and apply to pods and to everything that creates pods. Pods of a kind of object
that is not listed here are checked when they are created.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from infra.domain import naming
from infra.domain.launcher_support import KINDS, resources_by_group
from infra.kubernetes.admission_policy import WRITES, resources, text, texts
from infra.kubernetes.controller_accounts import SPEC_WRITERS, is_one_of

RUN_KINDS: Final = tuple(one.kind for one in KINDS)
"""Kinds that can be queued."""

_RUNTIMES: Final = tuple((one.group, (one.runtime[1],)) for one in KINDS if one.runtime)
"""Kinds that hold the pods of a run that refers to them."""

_TEMPLATE_RESOURCES: Final = (
    ("", ("replicationcontrollers",)),
    ("apps", ("deployments", "statefulsets", "daemonsets", "replicasets")),
    ("batch", ("cronjobs",)),
    *_RUNTIMES,
)

PODSET: Final = "kueue.x-k8s.io/podset"
"""Label that Kueue sets on a run's pods on admission, and removes on eviction."""


def runs(*subresources: str, operations: tuple[str, ...] = WRITES) -> list[dict[str, Any]]:
    found = []
    for group, names in resources_by_group().items():
        each = [f"{name}/{sub}" for name in names for sub in subresources] or names
        found.append(resources(group, *each, operations=operations))
    return found


def runtimes() -> list[dict[str, Any]]:
    return [resources(group, *names) for group, names in _RUNTIMES]


def templates() -> list[dict[str, Any]]:
    """Return resource rules for everything else that creates pods."""
    return [resources(group, *names) for group, names in _TEMPLATE_RESOURCES]


def everything_with_pods() -> list[dict[str, Any]]:
    return [resources("", "pods", operations=("CREATE",)), *runs(), *templates()]


NEW_PODS: Final = {
    # Other changes must always pass: else an object that an older rule admitted could not lose its finalizer.
    # Controllers only place a run; its pods are checked again.
    "makes-pods": (
        "request.operation == 'CREATE' || "
        f"(object.spec != oldObject.spec && !({is_one_of(SPEC_WRITERS)}))"
    )
}
"""Match condition of rules about the content of pods."""

_SPEC: Final = "dyn(object).spec"
_JOBS: Final = ".?replicatedJobs.orValue([]).map(j, j.template.spec.template)"


def _replicas(field: str) -> str:
    each = f"{_SPEC}.?{field}.orValue({{}})"
    return f"{each}.map(k, {each}[k].template)"


def _of_runs() -> Iterator[tuple[str, str]]:
    """Kinds of runs whose pod template is not `spec.template`."""
    for one in KINDS:
        if one.replicated_jobs:
            yield one.kind, f"{_SPEC}{_JOBS}"
        if one.runtime:
            yield one.runtime[0], f"{_SPEC}.template.?spec{_JOBS}"
            # Its pods are in its runtime.
            yield one.kind, "[]"
        if one.replica_specs:
            yield one.kind, _replicas(one.replica_specs)


_TEMPLATES: Final[Mapping[str, str]] = {
    "Pod": "[dyn(object)]",
    "CronJob": f"[{_SPEC}.jobTemplate.spec.template]",
    **dict(_of_runs()),
}


def _by_kind() -> str:
    cases = [
        f"request.kind.kind == {text(kind)} ? {found} : " for kind, found in _TEMPLATES.items()
    ]
    return f"{''.join(cases)}[{_SPEC}.template]"


PODS: Final = {
    "pods": _by_kind(),
    "containers": (
        "variables.pods.map(p, p.spec.?containers.orValue([]) + "
        "p.spec.?initContainers.orValue([]) + p.spec.?ephemeralContainers.orValue([]))"
    ),
}
"""Variables: `pods`, every pod or pod template of the object; `containers`, all containers of each of them."""

TEAM: Final = {
    "team": f"namespaceObject.metadata.labels[{text(naming.TEAM)}]",
    "tier": f"namespaceObject.metadata.labels[?{text(naming.TIER)}].orValue('')",
}
"""Variables from namespace labels, which only the platform sets."""


def tainted_keys(taint_key: str) -> list[str]:
    """Return keys of the taints of GPU nodes: the platform's and those of common device plugins."""
    return sorted({taint_key, naming.SPOT_TAINT, naming.GPU, naming.EFA})


def on_gpu_nodes(taint_key: str) -> dict[str, str]:
    """Return the variable `gpu`: a pod requests a device, or tolerates a taint of GPU nodes."""
    device = (
        f"r.startsWith('nvidia.com/') || r == {text(naming.EFA)} || "
        f"r.startsWith({text(naming.RDMA_RESOURCES)})"
    )
    asks = " || ".join(
        f"c.?resources.?{part}.orValue({{}}).exists(r, {device})" for part in ("requests", "limits")
    )
    tolerated = f"t.?key.orValue('') == '' || t.key in {texts(tainted_keys(taint_key))}"
    return {
        "gpu": (
            "request.kind.kind == 'TrainJob' || "
            f"variables.containers.exists(cs, cs.exists(c, {asks})) || "
            f"variables.pods.exists(p, p.spec.?tolerations.orValue([]).exists(t, {tolerated}))"
        )
    }


def label(name: str, of: str = "object") -> str:
    """Return CEL for a label's value; empty without the label."""
    return f"{of}.metadata.?labels[?{text(name)}].orValue('')"
