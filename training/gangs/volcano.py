"""Volcano reads a PodGroup, which pods name in an annotation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from infra.domain import quantity
from infra.kubernetes.objects import Manifest
from infra.queueing.volcano import BACKEND as QUEUES
from training.gangs import Gang, GangBackend, Membership

GROUP: Final = "scheduling.k8s.io/group-name"
QUEUE: Final = "scheduling.volcano.sh/queue-name"
_API: Final = "scheduling.volcano.sh/v1beta1"


class VolcanoGangs(GangBackend):
    """A PodGroup per run."""

    def membership(self, gang: Gang, pod: Mapping[str, Any]) -> Membership:
        return Membership(
            annotations={GROUP: gang.run.run_id, QUEUE: gang.queue},
            spec={"schedulerName": QUEUES.pod_scheduler},
        )

    def groups(self, gang: Gang, labels: Mapping[str, str]) -> list[Manifest]:
        """Return the PodGroup with the resources of all workers."""
        nodes = gang.run.nodes
        spec = {
            "minMember": nodes,
            "minResources": {n: _times(n, one, nodes) for n, one in gang.requests.items()},
            "queue": gang.queue,
            "priorityClassName": gang.priority,
        }
        return [gang.group(_API, labels, spec)]


def _times(resource: str, one: str, nodes: int) -> str:
    if resource == "cpu":
        return quantity.cpu(quantity.millicores(one) * nodes)
    total = quantity.bytes_(one) * nodes
    return quantity.memory(total) if resource == "memory" else str(total)


BACKEND: Final = VolcanoGangs()
