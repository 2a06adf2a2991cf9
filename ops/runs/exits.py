"""Exits of a run's containers, and its exit code. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ops import objects
from ops.runs import states
from ops.snapshot import Snapshot
from trainyard import contract

_EXIT_CODE: Final = re.compile(r"exit code (\d+)")


@dataclass(frozen=True, kw_only=True)
class Exit:
    """How a container ended. `pod` is empty where only the Job's condition is left."""

    pod: str
    container: str
    code: int
    reason: str
    finished: str = ""
    """RFC 3339 time stamp; empty if not recorded."""

    @property
    def evidence(self) -> str:
        """`OBJECT: observation`."""
        reason = f" ({self.reason})" if self.reason else ""
        return f"pod/{self.pod}: container {self.container} exited with {self.code}{reason}"


def container_exits(snapshot: Snapshot) -> Iterator[Exit]:
    """Yield the non-zero exits of the run's containers that are still recorded."""
    for pod in snapshot.pods:
        for one in objects.containers(pod, init=True):
            for state in (one.get("state") or {}, one.get("lastState") or {}):
                ended = state.get("terminated") or {}
                if ended.get("exitCode"):
                    yield Exit(
                        pod=objects.name(pod),
                        container=one["name"],
                        code=int(ended["exitCode"]),
                        reason=str(ended.get("reason", "")),
                        finished=str(ended.get("finishedAt", "")),
                    )
    for item in (*snapshot.jobs, snapshot.run):
        message = str(objects.condition(item, "Failed").get("message", ""))
        if found := _EXIT_CODE.search(message):
            yield Exit(pod="", container="", code=int(found[1]), reason="")


def first_exit(snapshot: Snapshot) -> Exit | None:
    """Return the earliest failed container: later failures usually follow from it."""
    known = [e for e in container_exits(snapshot) if e.pod and e.code != contract.EXIT_PREEMPTED]
    return min(known, key=lambda e: e.finished or "9", default=None)


def exit_code(snapshot: Snapshot) -> int:
    """Return the exit code of a run that has ended; 1 for a failed one whose code is not recorded any more."""
    ending = snapshot.ending
    if ending is None or ending.state == states.STOPPED:
        return contract.EXIT_PREEMPTED
    if ending.state == states.FINISHED:
        return 0
    first = first_exit(snapshot) or next(container_exits(snapshot), None)
    return first.code if first and first.code != contract.EXIT_PREEMPTED else 1
