"""Volcano reads a PodGroup, which pods name in an annotation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from infra.domain import quantity
from infra.domain.platform import Platform
from infra.kubernetes.objects import Manifest
from infra.queueing.volcano import BACKEND as QUEUES
from training.gangs import GangBackend, Membership, pod_group
from training.spec import RunSpec

GROUP: Final = "scheduling.k8s.io/group-name"
QUEUE: Final = "scheduling.volcano.sh/queue-name"
_API: Final = "scheduling.volcano.sh/v1beta1"


class VolcanoGangs(GangBackend):
    """A PodGroup per run."""

    def membership(
        self,
        run: RunSpec,
        platform: Platform,
        pod: Mapping[str, Any],
        requests: Mapping[str, str],
    ) -> Membership:
        """Return group, queue and scheduler."""
        return Membership(
            annotations={GROUP: run.run_id, QUEUE: platform.teams[run.team].local_queue},
            spec={"schedulerName": QUEUES.pod_scheduler},
        )

    def groups(
        self,
        run: RunSpec,
        platform: Platform,
        labels: Mapping[str, str],
        requests: Mapping[str, str],
    ) -> list[Manifest]:
        """Return the PodGroup with the resources of all workers."""
        spec = {
            "minMember": run.nodes,
            "minResources": {name: _times(name, one, run.nodes) for name, one in requests.items()},
            "queue": platform.teams[run.team].local_queue,
            "priorityClassName": run.priority or platform.default_priority[run.tier],
        }
        return [pod_group(_API, run, platform, labels, spec)]


def _times(resource: str, one: str, nodes: int) -> str:
    if resource == "cpu":
        return quantity.cpu(quantity.millicores(one) * nodes)
    total = quantity.bytes_(one) * nodes
    return quantity.memory(total) if resource == "memory" else str(total)


BACKEND: Final = VolcanoGangs()
