"""A run of replica groups in an imaginary cohort: objects of its groups, their Workloads and pods."""

from __future__ import annotations

from typing import Any

from infra.domain import naming
from ops import groups
from ops.objects import Json
from ops.snapshot import Snapshot
from tests.unit.ops.run_fixtures import (
    RUN_ID,
    condition,
    pod,
    run,
    runs_on,
    snapshot,
    waits,
    workload,
)


def gang(
    number: int, *, of: int = 3, least: int = 1, launched_by: str = "", **changes: Any
) -> Json:
    """The object of a group; it waits in its queue."""
    found = run(**changes)
    labels = found["metadata"]["labels"] | {
        naming.GROUP: str(number),
        naming.GROUPS: str(of),
        naming.GROUPS_MIN: str(least),
    }
    notes = {naming.LAUNCHED_BY: launched_by} if launched_by else {}
    found["metadata"] |= {
        "name": f"{RUN_ID}-g{number}",
        "uid": f"uid-g{number}",
        "labels": labels,
        "annotations": notes,
    }
    return found


def started(number: int, **changes: Any) -> Json:
    """The object of a group that its queue has admitted."""
    return gang(
        number, **{"spec": {"suspend": False, "failurePolicy": {"maxRestarts": 3}}} | changes
    )


def ended(number: int, kind: str = "Completed", reason: str = "", **changes: Any) -> Json:
    """The object of a group that is done or has failed."""
    status = {"conditions": [condition(kind, reason=reason, message="exit code 1")]}
    return started(number, status=status, **changes)


def queued(number: int, **more: Any) -> Json:
    """The Workload of a group that waits."""
    return _named(workload(waits(), uid=f"uid-g{number}", nodes=1, **more), number)


def admitted(number: int, flavor: str = "spot", **more: Any) -> Json:
    """The Workload of a group that has its node."""
    return _named(runs_on(flavor, uid=f"uid-g{number}", nodes=1, **more), number)


def _named(found: Json, number: int) -> Json:
    found["metadata"]["name"] = f"jobset-{RUN_ID}-g{number}"
    found["metadata"]["labels"][naming.GROUP] = str(number)
    return found


def pod_of(number: int, *, ready: bool = True, phase: str = "Running", **status: Any) -> Json:
    """The pod of a group, which takes part if it is ready."""
    shown = condition("Ready", "True" if ready else "False")
    found = pod(f"hello-g{number}", phase, **{"conditions": [shown]} | status)
    found["metadata"]["labels"] |= {naming.GROUP: str(number), naming.JOB_INDEX: "0"}
    found["spec"]["nodeName"] = f"spot-{number}"
    return found


def seen(gangs: list[Json], workloads: list[Json], pods: list[Json], **more: Any) -> Snapshot:
    """A snapshot of the run of these groups."""
    [whole] = groups.merged(gangs)
    return snapshot(run=whole, workloads=workloads, pods=pods, **more)
