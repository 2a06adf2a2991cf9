"""What makes a run's pods one gang, and names its queue, in the words of the stack's scheduler.

Kueue reads labels of the run's own object. The others read pods, and some a group that the pods name. Pods
that carry no GPUs (mpirun's) queue with their gang and are no part of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from infra.domain import naming, quantity
from infra.domain.platform import Platform
from infra.domain.scheduler import YUNIKORN_QUEUE, Scheduler
from infra.kubernetes.objects import Manifest, metadata
from training.spec import RunSpec

VOLCANO_GROUP: Final = "scheduling.k8s.io/group-name"
VOLCANO_QUEUE: Final = "scheduling.volcano.sh/queue-name"

YUNIKORN_APP: Final = "yunikorn.apache.org/app-id"
YUNIKORN_GROUP: Final = "yunikorn.apache.org/task-group-name"
YUNIKORN_GROUPS: Final = "yunikorn.apache.org/task-groups"
YUNIKORN_PARAMETERS: Final = "yunikorn.apache.org/schedulingPolicyParameters"

_WORKERS: Final = "workers"
_PLACEHOLDER_TIMEOUT_S: Final = 1800
"""From the first placeholder that has a node to the last, or the run fails: new nodes take minutes."""


@dataclass(frozen=True, kw_only=True)
class Membership:
    """What a pod template gains."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    spec: Mapping[str, Any] = field(default_factory=dict)


def queue_labels(run: RunSpec, platform: Platform) -> dict[str, str]:
    """Labels by which Kueue queues the run's object; none with another scheduler.

    The object is never created with `suspend`: Kueue's webhook sets that, and a value of ours would
    suspend the run again with every update.
    """
    if platform.scheduler is not Scheduler.KUEUE:
        return {}
    found = {
        naming.QUEUE_NAME: platform.teams[run.team].local_queue,
        naming.WORKLOAD_PRIORITY: run.priority or platform.default_priority[run.tier],
    }
    if run.max_hours is not None:
        found[naming.MAX_EXEC_SECONDS] = str(round(run.max_hours * 3600))
    return found


def membership(
    run: RunSpec, platform: Platform, pod: Mapping[str, Any], requests: Mapping[str, str]
) -> Membership:
    """What a template with this pod spec gains; `requests` are those of a worker."""
    queue = platform.teams[run.team].local_queue
    if platform.scheduler is Scheduler.VOLCANO:
        return Membership(
            annotations={VOLCANO_GROUP: run.run_id, VOLCANO_QUEUE: queue},
            spec={"schedulerName": Scheduler.VOLCANO.pod_scheduler},
        )
    if platform.scheduler is Scheduler.YUNIKORN:
        return Membership(
            labels={YUNIKORN_APP: run.run_id, YUNIKORN_QUEUE: queue},
            annotations=_task_groups(run, pod, requests),
            spec={"schedulerName": Scheduler.YUNIKORN.pod_scheduler},
        )
    if platform.scheduler is Scheduler.NATIVE and run.nodes > 1:
        return Membership(spec={"schedulingGroup": {"podGroupName": run.run_id}})
    return Membership()


def _task_groups(
    run: RunSpec, pod: Mapping[str, Any], requests: Mapping[str, str]
) -> dict[str, str]:
    """What YuniKorn's placeholders look like: as large as the workers, and on the same nodes.

    Without their anti-affinity: a worker takes its placeholder's node while that is still there. A gang
    takes whole nodes, which keeps its placeholders apart as well. One pod alone needs none.
    """
    if run.nodes == 1:
        return {}
    group = {
        "name": _WORKERS,
        "minMember": run.nodes,
        "minResource": dict(requests),
        "tolerations": pod["tolerations"],
        "affinity": {"nodeAffinity": pod["affinity"]["nodeAffinity"]},
    }
    return {
        YUNIKORN_GROUP: _WORKERS,
        YUNIKORN_GROUPS: json.dumps([group]),
        YUNIKORN_PARAMETERS: f"placeholderTimeoutInSeconds={_PLACEHOLDER_TIMEOUT_S} "
        "gangSchedulingStyle=Hard",
    }


def groups(
    run: RunSpec, platform: Platform, labels: Mapping[str, str], requests: Mapping[str, str]
) -> list[Manifest]:
    """Objects that stand for the gang; they go before the run, and have these labels."""
    if platform.scheduler is Scheduler.VOLCANO:
        api, spec = "scheduling.volcano.sh/v1beta1", _volcano_group(run, platform, requests)
    elif platform.scheduler is Scheduler.NATIVE and run.nodes > 1:
        api, spec = platform.gang_api, {"schedulingPolicy": {"gang": {"minCount": run.nodes}}}
    else:
        return []
    namespace = platform.teams[run.team].namespace
    return [
        {
            "apiVersion": api,
            "kind": "PodGroup",
            "metadata": metadata(run.run_id, namespace=namespace, labels=labels),
            "spec": spec,
        }
    ]


def _volcano_group(run: RunSpec, platform: Platform, requests: Mapping[str, str]) -> dict[str, Any]:
    return {
        "minMember": run.nodes,
        "minResources": {name: _times(name, one, run.nodes) for name, one in requests.items()},
        "queue": platform.teams[run.team].local_queue,
        "priorityClassName": run.priority or platform.default_priority[run.tier],
    }


def _times(resource: str, one: str, nodes: int) -> str:
    """What all nodes together ask for."""
    if resource == "cpu":
        return quantity.cpu(quantity.millicores(one) * nodes)
    total = quantity.bytes_(one) * nodes
    return quantity.memory(total) if resource == "memory" else str(total)
