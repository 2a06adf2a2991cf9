"""The stages of the readiness check, run in order until one fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from ops.ready import pools, probes, queueing
from ops.ready.jobs import Session
from ops.ready.results import Check, Outcome, StageResult, skipped


@dataclass(frozen=True, kw_only=True)
class Stage:
    name: str
    """Stable name for scripts and --until."""
    title: str
    """One-line description."""
    check: Callable[[Session], Iterator[Check]]
    starts: bool = True
    """Whether it starts Jobs or requires the results of an earlier stage's Jobs."""


STAGES: Final = (
    Stage(
        name="capacity",
        title="the expected nodes are ready with their GPUs",
        check=pools.check_pools,
        starts=False,
    ),
    Stage(name="gpu-smoke", title="every GPU runs a kernel", check=probes.SMOKE),
    Stage(
        name="homogeneous",
        title="the nodes of a pool are homogeneous",
        check=pools.compare_nodes,
    ),
    Stage(
        name="collective",
        title="collectives work across the nodes of a pool",
        check=probes.COLLECTIVE,
    ),
    Stage(name="single-node", title="a single-node run trains", check=probes.SINGLE_NODE),
    Stage(name="multi-node", title="a multi-node run trains", check=probes.MULTI_NODE),
    Stage(name="restore", title="checkpoints can be restored", check=probes.check_teams),
    Stage(
        name="queueing", title="higher priority preempts lower priority", check=queueing.check_queue
    ),
)


def run_stages(
    session: Session,
    started: Callable[[int, Stage], None],
    checked: Callable[[Check], None],
    *,
    until: str = STAGES[-1].name,
    start: bool = True,
) -> Iterator[StageResult]:
    """Run every stage up to `until`; stages after a failed one are not reached.

    Without `start`, stages that start Jobs are skipped.
    """
    failed = False
    last = [stage.name for stage in STAGES].index(until)
    for number, stage in enumerate(STAGES[: last + 1], 1):
        if failed:
            yield StageResult(stage=stage.name, title=stage.title)
            continue
        started(number, stage)
        checks = []
        for check in _run_checks(session, stage, start):
            checked(check)
            checks.append(check)
        found = StageResult(stage=stage.name, title=stage.title, checks=tuple(checks))
        failed = found.outcome is Outcome.FAILED
        yield found


def _run_checks(session: Session, stage: Stage, start: bool) -> Iterator[Check]:
    if stage.starts and not start:
        yield skipped("", "it starts Jobs, which --look disables")
        return
    none = True
    for check in stage.check(session):
        none = False
        yield check
    if none:
        yield skipped("", "there is nothing to check")
