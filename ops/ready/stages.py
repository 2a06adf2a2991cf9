"""The rungs, and the climb: one after the other until one fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from ops.ready import capacity, homogeneity, probes, queueing, restore
from ops.ready.context import Session
from ops.ready.outcome import Check, Outcome, StageResult, skipped


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One rung."""

    name: str
    """For scripts; it never changes."""
    title: str
    """What it is about, for people."""
    check: Callable[[Session], Iterator[Check]]
    starts: bool = True
    """It starts Jobs, or needs what a rung below found by starting some."""


STAGES: Final = (
    Stage(
        name="capacity",
        title="the nodes are there, with their GPUs",
        check=capacity.check_pools,
        starts=False,
    ),
    Stage(name="gpu-smoke", title="every GPU computes", check=probes.SMOKE),
    Stage(name="alike", title="a pool's nodes are alike", check=homogeneity.check_pools),
    Stage(name="collective", title="a pool's nodes reach each other", check=probes.COLLECTIVE),
    Stage(name="single-node", title="one node trains", check=probes.SINGLE_NODE),
    Stage(name="multi-node", title="several nodes train together", check=probes.MULTI_NODE),
    Stage(name="restore", title="checkpoints come back", check=restore.check_teams),
    Stage(name="queueing", title="what matters more goes first", check=queueing.check_queue),
)


class ProgressListener(Protocol):
    """Who is told how the climb goes."""

    def stage_started(self, number: int, stage: Stage) -> None:
        """A rung is looked at."""

    def found(self, check: Check) -> None:
        """Something was found on it."""


def run_stages(
    session: Session,
    listener: ProgressListener,
    *,
    until: str = STAGES[-1].name,
    start: bool = True,
) -> Iterator[StageResult]:
    """Every rung up to `until`; those above one that failed are not reached.

    Without `start`, rungs that start Jobs are skipped.
    """
    failed = False
    for number, stage in enumerate(_stages_until(until), 1):
        if failed:
            yield StageResult(stage=stage.name, title=stage.title)
            continue
        listener.stage_started(number, stage)
        checks = []
        for check in _run_checks(session, stage, start):
            listener.found(check)
            checks.append(check)
        found = StageResult(stage=stage.name, title=stage.title, checks=tuple(checks))
        failed = found.outcome is Outcome.FAILED
        yield found


def _run_checks(session: Session, stage: Stage, start: bool) -> Iterator[Check]:
    if stage.starts and not start:
        yield skipped("", "it starts Jobs, and --look starts nothing")
        return
    none = True
    for check in stage.check(session):
        none = False
        yield check
    if none:
        yield skipped("", "there is nothing that it could look at")


def _stages_until(name: str) -> Sequence[Stage]:
    names = [stage.name for stage in STAGES]
    return STAGES[: names.index(name) + 1]
