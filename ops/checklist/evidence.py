"""Rows that a climb proves, or a template that ran on its schedule."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Final

from infra.domain import naming
from ops import objects
from ops.checklist.snapshot import Notes, Observed
from ops.objects import Json
from ops.ready.context import ready
from ops.ready.jobs import CRON_JOBS
from ops.ready.outcome import Outcome, Row
from ops.ready.restore import DRILL
from ops.ready.stack_facts import Pool
from ops.snapshot import span

STALE: Final = dt.timedelta(days=30)
"""A proof that is older is none: nodes, drivers and images have changed since."""


def gpu_validation(observed: Observed) -> Row:
    """The smoke test passed on every GPU pool that has nodes."""
    notes = Notes(area="GPU validation", check="Smoke test passes with nvidia-smi")
    return _of_pools(observed, notes, "gpu-smoke", "smoke", nodes=1)


def single_node(observed: Observed) -> Row:
    """A run of one node trained."""
    notes = Notes(area="Single-node training", check="Multi-GPU single-node run succeeds")
    return _of_pools(observed, notes, "single-node", "train-single", nodes=1)


def multi_node(observed: Observed) -> Row:
    """A run of several nodes trained."""
    notes = Notes(area="Multi-node training", check="Distributed workers join successfully")
    return _of_pools(observed, notes, "multi-node", "train-multi", nodes=2)


def nccl(observed: Observed) -> Row:
    """A collective across a pool's nodes was right, and fast enough."""
    notes = Notes(area="NCCL readiness", check="Collective communication test passes")
    return _of_pools(observed, notes, "collective", "collective", nodes=2)


def checkpointing(observed: Observed) -> Row:
    """Checkpoints of teams were restored and compared."""
    notes = Notes(area="Checkpointing", check="Checkpoints are written and restored successfully")
    for team in observed.teams:
        drills = [d for d in observed.team(CRON_JOBS, team) if objects.name(d) == DRILL]
        _prove(observed, notes, "restore", team.subject, drills)
    return _concluded(notes, "restore")


def _of_pools(observed: Observed, notes: Notes, rung: str, kind: str, *, nodes: int) -> Row:
    never = []
    for pool in observed.stack.pools:
        if not pool.gpu or pool.fake:
            continue
        templates = _templates(observed, kind, pool)
        found = _prove(observed, notes, rung, pool.subject, templates)
        there = len([node for node in observed.nodes(pool) if ready(node)])
        if found:
            continue
        if nodes > 1 and pool.gangless and not templates:
            never.append(f"{pool.subject}: not tried: {pool.gangless}")
        elif there >= nodes:
            notes.doubts(f"{pool.subject}: nobody tried within {STALE.days} days", _try(rung))
    return _concluded(notes, rung, never)


def _concluded(notes: Notes, rung: str, never: Sequence[str] = ()) -> Row:
    """The row. `never`: why some can never be tried, which leaves it open only if all are such."""
    if notes.good or notes.bad or notes.unknown:
        notes.good.extend(never)
    elif never:
        for reason in never:
            notes.doubts(reason)
    else:
        notes.doubts("nobody tried yet", _try(rung))
    return notes.row()


def _try(rung: str) -> str:
    return f"python -m ops ready --until {rung}"


def _templates(observed: Observed, kind: str, pool: Pool) -> list[Json]:
    return [
        template
        for template in observed.templates
        if objects.label(template, naming.VALIDATION) == kind
        and objects.label(template, naming.POOL) == pool.name
    ]


def _prove(
    observed: Observed, notes: Notes, rung: str, subject: str, templates: Sequence[Json]
) -> bool:
    """Note what is known of a subject; False: nothing recent is."""
    found = False
    result = observed.results.get(rung, {}).get(subject)
    if result and (age := _age(observed, result.at)) is not None:
        found = True
        told = f"{subject}, {age} ago: {result.seen}"
        if result.outcome is Outcome.FAILED:
            notes.fails(told, _try(rung))
        else:
            notes.good.append(told)
    for template in templates:
        succeeded = objects.status(template).get("lastSuccessfulTime")
        if (age := _age(observed, succeeded)) is not None:
            found = True
            notes.good.append(f"{objects.reference(template)}: succeeded {age} ago")
    return found


def _age(observed: Observed, at: str | None) -> str | None:
    """How long ago, for people; None: never, or too long ago."""
    then = objects.time(at)
    if then is None or observed.now - then > STALE:
        return None
    return span((observed.now - then).total_seconds())
