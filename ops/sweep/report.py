"""The result of a sweep as a table on the terminal, as CSV and as JSON."""

from __future__ import annotations

import csv
import io
import math
from collections import Counter

from rich.table import Table

from ops.sweep.space import Scalar
from ops.sweep.state import SweepState, Trial


def ranked(state: SweepState) -> list[Trial]:
    """Return runs, those that got furthest first, and by their last value among them.

    Runs that were stopped early are not compared with finished ones by values of different steps.
    """
    sign = -1.0 if state.maximize else 1.0

    def order(trial: Trial) -> tuple[int, float, str]:
        value = trial.value
        known = value is not None and math.isfinite(value)
        return (
            -(trial.step or 0) if known else 1,
            sign * value if value is not None and known else 0.0,
            trial.run_id,
        )

    return sorted(state.trials, key=order)


def table(state: SweepState) -> Table:
    """Return the table for a terminal, with the last parts of the parameters' paths."""
    names = list(state.trials[0].parameters) if state.trials else []
    found = Table(box=None, header_style="bold", pad_edge=False)
    found.add_column("run", no_wrap=True)
    for name in names:
        found.add_column(name.rpartition(".")[2], justify="right", no_wrap=True)
    for name in ("state", "step", state.metric, "hours", "reason"):
        right = name not in ("state", "reason")
        found.add_column(name, justify="right" if right else "left", overflow="fold")
    best = state.best()
    for trial in ranked(state):
        found.add_row(
            trial.run_id,
            *(_text(trial.parameters.get(name)) for name in names),
            trial.state,
            "" if trial.step is None else str(trial.step),
            "" if trial.value is None else f"{trial.value:.5g}",
            f"{trial.hours:.2f}",
            trial.reason,
            style="green" if best and trial.run_id == best.run_id else None,
        )
    return found


def csv_text(state: SweepState) -> str:
    """Return one row per run in the order of submission, all digits kept."""
    names = list(state.trials[0].parameters) if state.trials else []
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(
        ["run_id", *names, "state", "step", state.metric, "hours", "usd_at_most", "reason"]
    )
    for trial in state.trials:
        usd = None if state.usd_per_hour is None else trial.hours * state.usd_per_hour
        writer.writerow(
            [
                trial.run_id,
                *(trial.parameters.get(name) for name in names),
                trial.state,
                trial.step,
                trial.value,
                f"{trial.hours:.4f}",
                None if usd is None else f"{usd:.4f}",
                trial.reason,
            ]
        )
    return stream.getvalue()


def _text(value: Scalar) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def parameters_text(trial: Trial) -> str:
    """Return `name=value` of each parameter, by the last part of its path."""
    return " ".join(
        f"{name.rpartition('.')[2]}={value}" for name, value in trial.parameters.items()
    )


def progress_line(state: SweepState) -> str:
    """Return one line: runs by state, the best value so far, the cost so far."""
    counts = Counter(one.state for one in state.trials)
    parts = [", ".join(f"{count} {name}" for name, count in sorted(counts.items()))]
    if best := state.best():
        parts.append(f"best {state.metric} {best.value:.4g} ({best.run_id}, step {best.step})")
    if state.spent_usd is not None:
        cap = f" of {state.cost_cap_usd:g}" if state.cost_cap_usd is not None else ""
        parts.append(f"at most {state.spent_usd:.2f}{cap} USD")
    return f"{state.sweep}: {'; '.join(parts)}"
