"""YuniKorn reads labels and annotations of pods, and reserves nodes by placeholder pods."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from infra.domain.platform import Platform
from infra.queueing.yunikorn import BACKEND as QUEUES
from infra.queueing.yunikorn import QUEUE_LABEL
from training.gangs import GangBackend, Membership
from training.spec import RunSpec

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

    def membership(
        self,
        run: RunSpec,
        platform: Platform,
        pod: Mapping[str, Any],
        requests: Mapping[str, str],
    ) -> Membership:
        """Return application, queue, task group and scheduler."""
        return Membership(
            labels={APP: run.run_id, QUEUE_LABEL: platform.teams[run.team].local_queue},
            annotations=_task_groups(run, pod, requests),
            spec={"schedulerName": QUEUES.pod_scheduler},
        )


def _task_groups(
    run: RunSpec, pod: Mapping[str, Any], requests: Mapping[str, str]
) -> dict[str, str]:
    """Return the shape of placeholders: as large as the workers, and on the same nodes.

    Without the workers' anti-affinity: a worker takes its placeholder's node while that is still there. A gang
    takes whole nodes, which keeps its placeholders apart as well. A single pod needs none.
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
        GROUP: _WORKERS,
        GROUPS: json.dumps([group]),
        PARAMETERS: f"placeholderTimeoutInSeconds={_PLACEHOLDER_TIMEOUT_S} "
        "gangSchedulingStyle=Hard",
    }


BACKEND: Final = YunikornGangs()
