"""The result of a sweep as a picture: the metric over steps, and against each parameter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from ops.sweep import state as states
from ops.sweep.state import SweepState, Trial

COLUMNS: Final = 3
PARAMETERS_MAX: Final = 8
"""Parameters with a panel; more are left out."""
TICKS_MAX: Final = 4
"""Most values of a parameter that are marked themselves."""
_OTHER: Final = "#8a8a8a"
_BEST: Final = "#c1272d"
_LOG_SPAN: Final = 30.0
"""Ratio of a parameter's largest and smallest value from which its axis is logarithmic."""


def draw(state: SweepState, file: Path) -> None:
    """Write the picture. Raises OSError, or ValueError for an unknown file format."""
    from matplotlib.figure import Figure

    names = list(state.trials[0].parameters)[:PARAMETERS_MAX] if state.trials else []
    rows = math.ceil((1 + len(names)) / COLUMNS)
    columns = min(COLUMNS, 1 + len(names))
    figure = Figure(figsize=(4.6 * columns, 3.6 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    panels = [panel for row in grid for panel in row]
    best = state.best()
    _curves(panels[0], state, best)
    for panel, name in zip(panels[1:], names, strict=False):
        _scatter(panel, state, name, best)
    for panel in panels[1 + len(names) :]:
        panel.set_axis_off()
    figure.suptitle(_title(state, best))
    figure.savefig(file, dpi=120)


def _title(state: SweepState, best: Trial | None) -> str:
    ended = sum(one.state in states.ENDED for one in state.trials)
    text = f"{state.sweep}: {ended} of {len(state.trials)} runs ended"
    if best is None:
        return f"{text}; no run has reported {state.metric}"
    return f"{text}; best {state.metric} {best.value:.4g} in {best.name}"


def _curves(panel: Any, state: SweepState, best: Trial | None) -> None:
    for trial in state.trials:
        points = [(s, v) for s, v in sorted(trial.values.items()) if math.isfinite(v)]
        if not points:
            continue
        chosen = best is not None and trial.run_id == best.run_id
        stopped = trial.state == states.STOPPED
        panel.plot(
            *zip(*points, strict=True),
            color=_BEST if chosen else _OTHER,
            linewidth=2.0 if chosen else 1.0,
            linestyle=":" if stopped else "-",
            marker="x" if stopped else "o",
            markersize=3,
            markevery=[-1],
            zorder=3 if chosen else 2,
        )
    panel.set_xlabel("step")
    panel.set_ylabel(state.metric)
    panel.set_title("dotted, x: stopped early; red: best", fontsize=9)
    panel.grid(alpha=0.25)


def _scatter(panel: Any, state: SweepState, name: str, best: Trial | None) -> None:
    known = [t for t in state.trials if t.value is not None and math.isfinite(t.value)]
    numbers = all(_is_number(t.parameters.get(name)) for t in state.trials)
    labels = [] if numbers else sorted({str(t.parameters.get(name)) for t in state.trials})
    for early in (False, True):
        mine = [t for t in known if (t.state == states.STOPPED) == early]
        panel.scatter(
            [_position(t, name, labels) for t in mine],
            [t.value for t in mine],
            color=[_BEST if best and t.run_id == best.run_id else _OTHER for t in mine],
            marker="x" if early else "o",
            s=28,
            zorder=3,
        )
    if labels:
        panel.set_xticks(range(len(labels)), labels)
        panel.set_xlim(-0.5, len(labels) - 0.5)
    elif len(values := sorted({_number(t, name) for t in state.trials})) <= TICKS_MAX:
        panel.set_xticks(values, [f"{value:g}" for value in values])
    elif _spans_orders(values):
        panel.set_xscale("log")
    panel.set_xlabel(name)
    panel.set_ylabel(f"last {state.metric}")
    panel.grid(alpha=0.25)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(trial: Trial, name: str) -> float:
    value = trial.parameters.get(name)
    return float(value) if isinstance(value, int | float) else math.nan


def _position(trial: Trial, name: str, labels: Sequence[str]) -> float:
    return labels.index(str(trial.parameters.get(name))) if labels else _number(trial, name)


def _spans_orders(values: Sequence[float]) -> bool:
    return bool(values) and min(values) > 0 and max(values) / min(values) >= _LOG_SPAN
