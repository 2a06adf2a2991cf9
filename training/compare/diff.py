"""Differences between runs as plain values for tables and JSON."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from training.compare.run_reader import RunLogs

_LOSS_ROWS = 6


@dataclass(frozen=True, kw_only=True)
class LossDifference:
    """Difference of two runs' losses on their common steps."""

    common: int
    differing_step: int | None
    """First step whose losses differ in any bit, or None."""
    largest_difference: float


def differing_settings(runs: Sequence[RunLogs]) -> dict[str, list[Any]]:
    """Return settings that differ, by dotted name, with each run's value; None if unset."""
    names = sorted({name for run in runs for name in run.settings})
    rows = {name: [run.settings.get(name) for run in runs] for name in names}
    return {name: row for name, row in rows.items() if any(value != row[0] for value in row)}


def sample_steps(runs: Sequence[RunLogs]) -> list[int]:
    """Return steps to show: the first, the last of each run, and some in between."""
    last = max((max(run.losses, default=0) for run in runs), default=0)
    if not last:
        return []
    ends = {max(run.losses) for run in runs if run.losses}
    between = {max(1, round(last * n / (_LOSS_ROWS - 1))) for n in range(_LOSS_ROWS)}
    return sorted(between | ends)


def compare_losses(one: RunLogs, other: RunLogs) -> LossDifference:
    """Compare the losses of all common steps."""
    mine, theirs = one.losses, other.losses
    common = sorted(mine.keys() & theirs.keys())
    differing = [step for step in common if mine[step] != theirs[step]]
    return LossDifference(
        common=len(common),
        differing_step=differing[0] if differing else None,
        largest_difference=max((abs(mine[s] - theirs[s]) for s in differing), default=0.0),
    )


def summarize_run(run: RunLogs) -> dict[str, Any]:
    """Return one run's numbers; None if unknown."""
    found, saves = run.goodput, run.checkpoint_seconds
    return {
        "name": run.name,
        "ended": run.ended,
        "steps": max(run.losses, default=0),
        "loss": run.metrics[-1]["loss"] if run.metrics else None,
        "held_out_loss": run.evaluations[max(run.evaluations)] if run.evaluations else None,
        "best_held_out_loss": min(run.evaluations.values(), default=None),
        "unigram_loss": run.unigram_loss,
        "world_sizes": run.world_sizes,
        "tokens_per_s": run.median("tokens_per_s"),
        "step_time_s": run.median("step_time_s"),
        "loader_time_s": run.median("loader_time_s"),
        "collective_time_s": run.median("collective_time_s"),
        "mfu": run.median("mfu"),
        "wall_s": found.wall_s,
        "goodput": found.fraction,
        "seconds": dict(found.seconds),
        "attempts": found.attempts,
        "steps_replayed": found.steps_replayed,
        "resumed_from": run.resumed,
        "resumes_due": found.resumes_due,
        "resumes_done": found.resumes_done,
        "checkpoints": len(saves),
        "checkpoint_write_s": statistics.median(saves) if saves else None,
        "checkpoints_failed": run.checkpoints_failed,
    }


def compare_runs(runs: Sequence[RunLogs]) -> dict[str, Any]:
    """Return the whole comparison for JSON; runs are compared with the first."""
    others = [compare_losses(runs[0], run) for run in runs[1:]]
    return {
        "runs": [summarize_run(run) for run in runs],
        "settings": differing_settings(runs),
        "losses": {step: [run.losses.get(step) for run in runs] for step in sample_steps(runs)},
        "against_first": [vars(found) for found in others],
    }
