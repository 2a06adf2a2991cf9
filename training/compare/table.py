"""The comparison as one table: a column per run, a section per question."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich.table import Table

from training.compare import diff
from training.compare.run_reader import RunLogs
from training.trainer.metrics.goodput import CAUSES

Row = tuple[str, list[str]]


def render_table(runs: Sequence[RunLogs]) -> Table:
    """Sections: what was set, what was learned, how fast, where the time went, how it survived."""
    shown = Table(title="Runs compared", title_justify="left")
    shown.add_column("")
    for run in runs:
        shown.add_column(run.name, justify="right", overflow="fold")
    summaries = [diff.summarize_run(run) for run in runs]
    sections = (
        _settings(runs),
        _losses(runs),
        _speed(summaries),
        _time(summaries),
        _survival(runs, summaries),
    )
    for section in filter(None, sections):
        for name, cells in section:
            shown.add_row(name, *cells)
        shown.add_section()
    return shown


def _settings(runs: Sequence[RunLogs]) -> list[Row]:
    differing = diff.differing_settings(runs)
    return [
        (name, ["null" if value is None else str(value) for value in row])
        for name, row in differing.items()
    ] or [("settings", ["the same"] * len(runs))]


def _losses(runs: Sequence[RunLogs]) -> list[Row]:
    rows = [
        (f"loss at step {step}", [_number(run.losses.get(step), "{:.4f}") for run in runs])
        for step in diff.sample_steps(runs)
    ]
    rows.append(("held out, last", [_number(_last(run.evaluations), "{:.4f}") for run in runs]))
    best = [min(run.evaluations.values(), default=None) for run in runs]
    rows.append(("held out, best", [_number(value, "{:.4f}") for value in best]))
    if len(runs) > 1:
        same = [_same(diff.compare_losses(runs[0], run)) for run in runs[1:]]
        rows.append((f"losses against {runs[0].name}", ["", *same]))
    return rows


def _same(found: diff.LossDifference) -> str:
    if found.differing_step is None:
        return f"bit for bit equal ({found.common} steps)"
    return f"differ from step {found.differing_step}, by {found.largest_difference:.2g} at most"


def _speed(summaries: Sequence[dict[str, Any]]) -> list[Row]:
    return [
        _row("ranks", summaries, "world_sizes", _sizes),
        _row("tokens/s, median", summaries, "tokens_per_s", lambda v: f"{v:,.0f}"),
        _row("step, median", summaries, "step_time_s", _seconds),
        _row("of it loader", summaries, "loader_time_s", _seconds),
        _row("of it waiting for ranks", summaries, "collective_time_s", _seconds),
        _row("MFU, median", summaries, "mfu", _percent),
    ]


def _time(summaries: Sequence[dict[str, Any]]) -> list[Row]:
    rows = [
        _row("wall clock", summaries, "wall_s", _seconds),
        _row("goodput", summaries, "goodput", _percent),
    ]
    for cause in CAUSES:
        seconds = [found["seconds"][cause] for found in summaries]
        wall_times = [found["wall_s"] or 1.0 for found in summaries]
        if any(seconds):
            pairs = zip(seconds, wall_times, strict=True)
            rows.append((f"  {cause}", [f"{_seconds(s)}  {_percent(s / w)}" for s, w in pairs]))
    return rows


def _survival(runs: Sequence[RunLogs], summaries: Sequence[dict[str, Any]]) -> list[Row]:
    resumes = [f"{s['resumes_done']} of {s['resumes_due']}" for s in summaries]
    return [
        _row("checkpoints", summaries, "checkpoints", str),
        _row("written in, median", summaries, "checkpoint_write_s", _seconds),
        _row("failed or corrupt", summaries, "checkpoints_failed", str),
        _row("attempts", summaries, "attempts", str),
        ("resumes that worked", resumes),
        ("resumed from step", [", ".join(map(str, run.resumed)) or "-" for run in runs]),
        _row("steps done twice", summaries, "steps_replayed", str),
        _row("ended", summaries, "ended", str),
    ]


def _row(
    title: str, summaries: Sequence[dict[str, Any]], key: str, text: Callable[[Any], str]
) -> Row:
    return title, ["-" if found[key] is None else text(found[key]) for found in summaries]


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def _last(values: dict[int, float]) -> float | None:
    return values[max(values)] if values else None


def _sizes(sizes: list[int]) -> str:
    return ", ".join(map(str, dict.fromkeys(sizes))) or "-"


def _seconds(value: float) -> str:
    if value >= 120:
        return f"{value / 60:.1f} min"
    return f"{value:.1f} s" if value >= 1 else f"{value * 1000:.2f} ms"


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"
