"""What is remembered of one gang, as an annotation of its Workload: a restarted controller, anywhere, goes on.

Pure. It ends with the Workload, as Kueue's own record of the run does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

import pydantic

from ops import groups, objects
from ops.objects import Json
from training.spot.decide import Place
from training.spot.steer import Empty, History

_KEPT: Final = 16
"""Losses kept; annotations are small."""
_UNNOTICED_S: Final = 120.0
"""A gang that is ready so long after a loss runs, even if Kueue never saw it incomplete."""
_TIMEOUT: Final = "PodsReadyTimeout"


@dataclass(frozen=True, kw_only=True)
class Memory:
    """What is remembered of a gang."""

    pool: str = ""
    """Pool that it held when it was last seen with one."""
    nodes: tuple[str, ...] = ()
    """UIDs of the nodes that it held."""
    starts: int = 0
    recoveries: int = 0
    """Kueue's time-outs of this Workload that are in the history: before all pods were ready, and after."""
    down: float | None = None
    """Since when it waits to run again; None: it runs, or never did."""
    queued: float | None = None
    """Since when it waits for quota."""
    moving: bool = False
    """Whether the controller has deactivated it, to activate it again."""
    moves: int = 0
    place: Place | Literal[""] = ""
    reason: str = ""
    history: History = field(default_factory=History)

    def text(self) -> str:
        return _FORM.dump_json(self).decode()


_FORM: Final = pydantic.TypeAdapter(Memory)


def parse(text: str) -> Memory:
    """Return what an annotation says; a new memory if it is not ours."""
    try:
        return _FORM.validate_json(text)
    except pydantic.ValidationError:
        return Memory()


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A Workload at one look. Times in Unix seconds."""

    created: float
    pool: str = ""
    """Pool that it is admitted to; empty: it waits."""
    nodes: tuple[str, ...] = ()
    """UIDs of the nodes of its running pods."""
    ready: float | None = None
    """Since when all of its pods are ready; None: they are not."""
    starts: int = 0
    recoveries: int = 0
    of_group: bool = False
    """Whether it is one of a run's groups: it may be incomplete because others are missing."""


def seen(workload: Json, nodes: Collection[str]) -> Seen:
    """Return a Workload as it is seen. `nodes`: UIDs of the nodes of its running pods."""
    status = objects.status(workload)
    counts: dict[str, int] = {}
    for one in (status.get("schedulingStats") or {}).get("evictions") or []:
        if one.get("reason") == _TIMEOUT:
            counts[str(one.get("underlyingCause"))] = int(one.get("count", 0))
    ready = objects.condition(workload, "PodsReady")
    ready_at = objects.time(ready.get("lastTransitionTime"))
    created = objects.time(objects.meta(workload).get("creationTimestamp"))
    return Seen(
        created=created.timestamp() if created else 0.0,
        pool=held_pool(workload),
        nodes=tuple(sorted(nodes)),
        ready=ready_at.timestamp() if ready_at and ready.get("status") == "True" else None,
        starts=counts.get("WaitForStart", 0),
        recoveries=counts.get("WaitForRecovery", 0),
        of_group=groups.number_of(workload) is not None,
    )


def held_pool(workload: Json) -> str:
    """Return the flavor that a Workload is admitted to; empty while it waits."""
    admission = objects.status(workload).get("admission") or {}
    for one in admission.get("podSetAssignments") or []:
        for flavor in (one.get("flavors") or {}).values():
            return str(flavor)
    return ""


def update(old: Memory, now: float, look: Seen, gone: Collection[str]) -> Memory:
    """Return what is remembered after a look. `gone`: UIDs of remembered nodes that were lost."""
    losses, empty = list(old.history.losses), dict(old.history.empty)
    restart_s, down = old.history.restart_s, old.down
    lost = set(old.nodes) & set(gone)
    timed_out = look.recoveries > old.recoveries and not look.of_group
    if old.pool and not old.moving and (lost or timed_out) and down is None:
        losses.append((now, old.pool))
        down = now
    if look.starts > old.starts and old.pool and not (look.of_group and old.nodes):
        before = empty.get(old.pool)
        empty[old.pool] = Empty(at=now, times=before.times + 1 if before else 1)
    if look.pool and look.ready is not None and not lost and not timed_out:
        empty.pop(look.pool, None)
        if down is not None and look.ready > down:
            took = look.ready - down
            restart_s = took if restart_s is None else (restart_s + took) / 2
            down = None
        elif down is not None and now > down + _UNNOTICED_S:
            down = None
    waits = old.queued if old.queued is not None else (now if old.pool else look.created)
    kept = look.nodes or tuple(sorted(set(old.nodes) - lost))
    return dataclasses.replace(
        old,
        pool=look.pool or old.pool,
        nodes=kept if look.pool else (),
        starts=look.starts,
        recoveries=look.recoveries,
        down=down,
        queued=None if look.pool else waits,
        history=History(losses=tuple(losses[-_KEPT:]), empty=empty, restart_s=restart_s),
    )


def losses_by_pool(memories: Mapping[str, Memory], gone: Collection[str]) -> dict[str, set[str]]:
    """Return the lost nodes that gangs held, by the gangs' pool."""
    found: dict[str, set[str]] = {}
    for one in memories.values():
        if lost := set(one.nodes) & set(gone):
            found.setdefault(one.pool, set()).update(lost)
    return found
