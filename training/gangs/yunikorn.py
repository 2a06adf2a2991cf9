"""YuniKorn reads labels and annotations of pods, and reserves nodes by placeholder pods."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from infra.queueing.yunikorn import BACKEND as QUEUES
from infra.queueing.yunikorn import QUEUE_LABEL
from training.gangs import Gang, GangBackend, Membership

APP: Final = "yunikorn.apache.org/app-id"
GROUP: Final = "yunikorn.apache.org/task-group-name"
GROUPS: Final = "yunikorn.apache.org/task-groups"
PARAMETERS: Final = "yunikorn.apache.org/schedulingPolicyParameters"

_WORKERS: Final = "workers"
_PLACEHOLDER_TIMEOUT_S: Final = 1800
"""From the first placeholder that has a node to the last, or the run fails: new nodes take minutes."""


class YunikornGangs(GangBackend):
    """A task group per run."""

    # A placeholder has a worker's size.
    worker_annotations = (GROUP,)

    def membership(self, gang: Gang, pod: Mapping[str, Any]) -> Membership:
        return Membership(
            labels={APP: gang.run.run_id, QUEUE_LABEL: gang.queue},
            annotations=_task_groups(gang, pod),
            spec={"schedulerName": QUEUES.pod_scheduler},
        )


def _task_groups(gang: Gang, pod: Mapping[str, Any]) -> dict[str, str]:
    """Return the shape of placeholders: as large as the workers, and on the same nodes.

    Without the workers' anti-affinity: a worker takes its placeholder's node while that is still there. A gang
    takes whole nodes, which keeps its placeholders apart as well. A single pod needs none.
    """
    if gang.run.nodes == 1:
        return {}
    group = {
        "name": _WORKERS,
        "minMember": gang.run.nodes,
        "minResource": dict(gang.requests),
        "tolerations": pod["tolerations"],
        "affinity": {"nodeAffinity": pod["affinity"]["nodeAffinity"]},
    }
    return {
        GROUP: _WORKERS,
        GROUPS: json.dumps([group]),
        PARAMETERS: f"placeholderTimeoutInSeconds={_PLACEHOLDER_TIMEOUT_S} "
        "gangSchedulingStyle=Hard",
    }


BACKEND: Final = YunikornGangs()
