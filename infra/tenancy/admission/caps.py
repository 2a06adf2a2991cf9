"""Caps of what members of a team create: runs that they submit, and dev pods. Runs that a stack deploys were
reviewed, and have none.

Cost is capped in GPU-hours, which do not change with the catalog's prices.
"""

from __future__ import annotations

from typing import Final

from infra.domain import naming
from infra.domain.dev_pods import ENDING_S
from infra.domain.launcher_support import KINDS
from infra.kubernetes import pod_templates
from infra.kubernetes.admission_policy import Rule, labels_of, policy, resources, text
from infra.kubernetes.objects import Manifest
from infra.sections.teams import CapsConfig
from infra.tenancy.admission.ownership import PEOPLE, groups_of_run, without_deployers

_NODES: Final = f"{naming.DOMAIN}/cap-nodes"
_SECONDS: Final = f"{naming.DOMAIN}/cap-seconds"
_GPU_HOURS: Final = f"{naming.DOMAIN}/cap-gpu-hours"
_NODE_GPUS: Final = f"{naming.DOMAIN}/cap-gpus-per-node"
_DEV_GPUS: Final = f"{naming.DOMAIN}/cap-dev-gpus"
_DEV_SECONDS: Final = f"{naming.DOMAIN}/cap-dev-seconds"
_DEV_GPU_HOURS: Final = f"{naming.DOMAIN}/cap-dev-gpu-hours"
"""Annotations of the team's namespace, which only the platform writes."""

_SPEC: Final = "dyn(object).spec"


def cap_annotations(caps: CapsConfig, gpus_per_node: int) -> dict[str, str]:
    """Return the annotations of the team's namespace from which the policies read its caps.

    `gpus_per_node`: most GPUs of a node among the team's pools, with which the nodes of a run are counted.
    Dev pods have the hours and GPU-hours of runs unless the stack file says otherwise.
    """
    dev = caps.dev_pods
    dev_hours = caps.hours if dev.hours is None else dev.hours
    dev_gpu_hours = caps.gpu_hours if dev.gpu_hours is None else dev.gpu_hours
    found: dict[str, float | int | None] = {
        _NODES: caps.nodes,
        _SECONDS: _seconds(caps.hours),
        _GPU_HOURS: caps.gpu_hours,
        _NODE_GPUS: None if caps.gpu_hours is None else gpus_per_node,
        # An empty cap and none are not the same: 0 GPUs leave dev pods without any.
        _DEV_GPUS: dev.gpus,
        _DEV_SECONDS: _seconds(dev_hours),
        _DEV_GPU_HOURS: dev_gpu_hours,
    }
    return {name: str(value) for name, value in found.items() if value is not None}


def _seconds(hours: float | None) -> int | None:
    return None if hours is None else round(hours * 3600)


def _pods() -> str:
    """Return CEL for the number of pods of a run, each of which has a node."""
    jobs = f"{_SPEC}.?replicatedJobs.orValue([])"
    cases = []
    for one in KINDS:
        if one.replicated_jobs:
            each = "j.?replicas.orValue(1) * j.template.spec.?parallelism.orValue(1)"
            cases.append((one.kind, f"{jobs}.map(j, {each}).sum()"))
        elif one.runtime:
            cases.append((one.kind, f"{_SPEC}.trainer.numNodes"))
        elif one.replica_specs:
            every = f"{_SPEC}.?{one.replica_specs}.orValue({{}})"
            cases.append((one.kind, f"{every}.map(k, {every}[k].?replicas.orValue(1)).sum()"))
    chosen = "".join(f"request.kind.kind == {text(kind)} ? int({n}) : " for kind, n in cases)
    return f"{chosen}int({_SPEC}.?parallelism.orValue(1))"


def _cap(name: str) -> str:
    found = f"namespaceObject.metadata.?annotations[?{text(name)}].orValue('0')"
    return f"double({found})"


def submitted_within_caps() -> Manifest:
    """Bound nodes, hours and GPU-hours of a submitted run."""
    limit = pod_templates.label(naming.MAX_EXEC_SECONDS)
    return policy(
        "caps",
        matches=pod_templates.runs(operations=("CREATE",)),
        conditions=PEOPLE
        | without_deployers()
        | {"run": f"{pod_templates.label(naming.RUN_ID)} != ''"},
        variables={
            # Each group is an object of its own, and the cap is the run's.
            "nodes": f"double(({_pods()}) * {groups_of_run()})",
            "seconds": f"{limit} == '' ? 0.0 : double({limit})",
            "capNodes": _cap(_NODES),
            "capSeconds": _cap(_SECONDS),
            "capGpuHours": _cap(_GPU_HOURS),
            "nodeGpus": _cap(_NODE_GPUS),
        },
        rules=[
            Rule(
                holds="variables.capNodes == 0.0 || variables.nodes <= variables.capNodes",
                message=(
                    "the run has more nodes than caps.nodes of the team allows a submitted run; "
                    "request fewer, or deploy it by the stack"
                ),
            ),
            Rule(
                holds=(
                    "variables.capSeconds == 0.0 || "
                    "(variables.seconds > 0.0 && variables.seconds <= variables.capSeconds)"
                ),
                message=(
                    "the run's time limit is absent or longer than caps.hours of the team allows a submitted "
                    "run; set maxHours, or deploy it by the stack"
                ),
            ),
            Rule(
                holds=(
                    "variables.capGpuHours == 0.0 || (variables.seconds > 0.0 && variables.nodes * "
                    "variables.nodeGpus * variables.seconds / 3600.0 <= variables.capGpuHours)"
                ),
                message=(
                    "the run may use more GPU-hours than caps.gpuHours of the team allows a submitted run, "
                    "counted as whole nodes; set or lower maxHours, request fewer nodes, or deploy it by the stack"
                ),
            ),
        ],
    )


def _dev_cap(name: str) -> str:
    """Return CEL for a cap of dev pods, which may be 0; below 0: none."""
    found = f"namespaceObject.metadata.?annotations[?{text(name)}].orValue('-1')"
    return f"double({found})"


def _gpus() -> str:
    """Return CEL for the GPUs of a Job's pod, those of init containers included."""
    gpu = text(naming.GPU)
    amount = (
        f"int(string(c.?resources.?limits[?{gpu}].orValue("
        f"c.?resources.?requests[?{gpu}].orValue('0'))))"
    )
    pod = f"{_SPEC}.template.spec"
    main = f"{pod}.?containers.orValue([]).map(c, {amount}).sum()"
    before = f"{pod}.?initContainers.orValue([]).map(c, {amount}).sum()"
    return f"double({main} + {before})"


def dev_pods_within_caps() -> Manifest:
    """Bound GPUs, hours and GPU-hours of a dev pod; the namespace's quota bounds how many there are."""
    return policy(
        "dev-caps",
        matches=[resources("batch", "jobs", operations=("CREATE",))],
        conditions=PEOPLE
        | without_deployers()
        | {"dev": f"{text(naming.DEV)} in {labels_of('object')}"},
        variables={
            "gpus": _gpus(),
            # The last seconds are for its end.
            "seconds": f"double({_SPEC}.?activeDeadlineSeconds.orValue(0)) - {ENDING_S}.0",
            "capGpus": _dev_cap(_DEV_GPUS),
            "capSeconds": _dev_cap(_DEV_SECONDS),
            "capGpuHours": _dev_cap(_DEV_GPU_HOURS),
        },
        rules=[
            Rule(
                holds="variables.capGpus < 0.0 || variables.gpus <= variables.capGpus",
                message=(
                    "the dev pod has more GPUs than caps.devPods.gpus of the team; use: trainyard dev start "
                    "--gpus with fewer"
                ),
            ),
            Rule(
                holds="variables.capSeconds < 0.0 || variables.seconds <= variables.capSeconds",
                message=(
                    "the dev pod stays longer than caps.devPods.hours of the team; use: trainyard dev start "
                    "--hours with fewer"
                ),
            ),
            Rule(
                holds=(
                    "variables.capGpuHours < 0.0 || "
                    "variables.gpus * variables.seconds / 3600.0 <= variables.capGpuHours"
                ),
                message=(
                    "the dev pod may use more GPU-hours than caps.devPods.gpuHours of the team; use: trainyard "
                    "dev start --hours or --gpus with less"
                ),
            ),
        ],
    )
