"""Production checks proven by stored results or by scheduled runs of the templates."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Final

from infra.domain import naming
from ops import objects
from ops.objects import Json
from ops.ready.jobs import CRON_JOBS, is_schedulable
from ops.ready.probes import DRILL
from ops.ready.production.snapshot import RowBuilder, StackSnapshot
from ops.ready.results import Check, Outcome
from ops.ready.stack_facts import Pool
from ops.snapshot import format_duration

MAX_AGE: Final = dt.timedelta(days=30)
"""Older evidence does not count, because nodes, drivers and images change."""


def gpu_validation(snapshot: StackSnapshot) -> Check:
    notes = snapshot.row("GPU validation", "Smoke test passes with nvidia-smi")
    return _pool_row(snapshot, notes, "gpu-smoke", "smoke", nodes=1)


def single_node(snapshot: StackSnapshot) -> Check:
    notes = snapshot.row("Single-node training", "Multi-GPU single-node run succeeds")
    return _pool_row(snapshot, notes, "single-node", "train-single", nodes=1)


def multi_node(snapshot: StackSnapshot) -> Check:
    notes = snapshot.row("Multi-node training", "Distributed workers join successfully")
    return _pool_row(snapshot, notes, "multi-node", "train-multi", nodes=2)


def nccl(snapshot: StackSnapshot) -> Check:
    notes = snapshot.row("NCCL readiness", "Collective communication test passes")
    return _pool_row(snapshot, notes, "collective", "collective", nodes=2)


def checkpointing(snapshot: StackSnapshot) -> Check:
    notes = snapshot.row("Checkpointing", "Checkpoints are written and restored successfully")
    for team in snapshot.teams:
        drills = [d for d in snapshot.team(CRON_JOBS, team) if objects.name(d) == DRILL]
        _add_evidence(snapshot, notes, "restore", team.subject, drills)
    return _finish_row(notes, "restore")


def _pool_row(
    snapshot: StackSnapshot, notes: RowBuilder, stage: str, kind: str, *, nodes: int
) -> Check:
    never = []
    for pool in snapshot.stack.pools:
        if not pool.gpu or pool.simulated:
            continue
        templates = _pool_templates(snapshot, kind, pool)
        found = _add_evidence(
            snapshot, notes, stage, pool.subject, templates, hardware=pool.hardware
        )
        there = len([node for node in snapshot.nodes(pool) if is_schedulable(node)])
        if found:
            continue
        if nodes > 1 and pool.no_gang_reason and not templates:
            never.append(f"{pool.subject}: not applicable: {pool.no_gang_reason}")
        elif there >= nodes:
            notes.add_unknown(
                f"{pool.subject}: not run within {MAX_AGE.days} days", _stage_command(stage)
            )
    return _finish_row(notes, stage, never)


def _finish_row(notes: RowBuilder, stage: str, never: Sequence[str] = ()) -> Check:
    """Build the row. `never`: subjects that cannot be checked; unknown only if there are no others."""
    if notes.good or notes.simulated or notes.bad or notes.unknown:
        notes.good.extend(never)
    elif never:
        for reason in never:
            notes.add_unknown(reason)
    else:
        notes.add_unknown("not run yet", _stage_command(stage))
    return notes.row()


def _stage_command(stage: str) -> str:
    return f"trainyard stack ready --until {stage}"


def _pool_templates(snapshot: StackSnapshot, kind: str, pool: Pool) -> list[Json]:
    return [
        template
        for template in snapshot.templates
        if objects.label(template, naming.VALIDATION) == kind
        and objects.label(template, naming.POOL) == pool.name
    ]


def _add_evidence(
    snapshot: StackSnapshot,
    notes: RowBuilder,
    stage: str,
    subject: str,
    templates: Sequence[Json],
    *,
    hardware: bool = True,
) -> bool:
    """Add the recent evidence of a subject; return whether there is any. Without `hardware` it is simulated."""
    found = False
    good = notes.good if hardware else notes.simulated
    result = snapshot.results.get(stage, {}).get(subject)
    if result and (age := _age(snapshot, result.at)) is not None:
        found = True
        evidence = f"{subject}, {age} ago: {result.seen}"
        if result.outcome is Outcome.FAILED:
            notes.add_failure(evidence, _stage_command(stage))
        elif result.outcome is Outcome.SIMULATED:
            notes.simulated.append(evidence)
        else:
            good.append(evidence)
    for template in templates:
        succeeded = objects.status(template).get("lastSuccessfulTime")
        if (age := _age(snapshot, succeeded)) is not None:
            found = True
            good.append(f"{objects.reference(template)}: succeeded {age} ago")
    return found


def _age(snapshot: StackSnapshot, at: str | None) -> str | None:
    """Return the age of a time stamp; None without one or beyond MAX_AGE."""
    then = objects.time(at)
    if then is None or snapshot.now - then > MAX_AGE:
        return None
    return format_duration((snapshot.now - then).total_seconds())
