"""`python -m training.curve RUN_DIR [RUN_DIR ...] --out FILE.png`: the loss curves of runs.

Per run: each step's training loss (faint), its moving average, the held-out losses, the unigram
baseline, and a vertical mark where an interrupted run resumed. Needs no display and no torch.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

from training.spec import EVENTS_FILE, METRICS_FILE

_SMOOTHING = 0.8
"""Weight of the past in the moving average."""
_COLOURS = ("tab:blue", "tab:orange", "tab:green", "tab:purple", "tab:brown", "tab:cyan")


@dataclass(frozen=True, kw_only=True)
class Curve:
    """What one run directory says about its losses."""

    name: str
    steps: list[int]
    losses: list[float]
    evaluated: list[tuple[int, float]]
    """(step, held-out loss), the last word on each step."""
    unigram_loss: float | None
    resumed: list[int]


def main() -> int:
    """Parse, read, draw."""
    arguments = _parse()
    curves = [read(folder) for folder in arguments.runs]
    missing = [curve.name for curve in curves if not curve.steps]
    if missing:
        print(f"no steps in {METRICS_FILE} of {', '.join(missing)}", file=sys.stderr)
        return 1
    draw(curves, arguments.out)
    print(arguments.out)
    return 0


def read(run_dir: Path) -> Curve:
    """The curve of one run; empty when it has no metrics yet."""
    metrics = list(_lines(run_dir / METRICS_FILE))
    events = list(_lines(run_dir / EVENTS_FILE))
    evaluated = {e["step"]: e["loss"] for e in events if e["event"] == "evaluated"}
    baselines = [e["unigram_loss"] for e in events if e["event"] == "evaluated"]
    return Curve(
        name=run_dir.resolve().name,
        steps=[line["step"] for line in metrics],
        losses=[line["loss"] for line in metrics],
        evaluated=sorted(evaluated.items()),
        unigram_loss=baselines[-1] if baselines else None,
        resumed=[e["from_step"] for e in events if e["event"] == "resumed"],
    )


def draw(curves: list[Curve], out: Path) -> None:
    """Write one picture with all curves."""
    figure, axes = pyplot.subplots(figsize=(10, 5.5), dpi=120)
    for number, curve in enumerate(curves):
        colour = _COLOURS[number % len(_COLOURS)]
        axes.plot(curve.steps, curve.losses, color=colour, alpha=0.25, linewidth=0.8)
        axes.plot(curve.steps, smoothed(curve.losses), color=colour, label=curve.name)
        if curve.evaluated:
            steps, losses = zip(*curve.evaluated, strict=True)
            last = f"held out, last {losses[-1]:.3f}"
            axes.plot(steps, losses, "o--", color=colour, markersize=5, linewidth=1, label=last)
        for position, step in enumerate(curve.resumed):
            label = "resumed" if position == 0 else None
            axes.axvline(step, color=colour, linestyle=":", linewidth=1.2, label=label)
    baselines = sorted({curve.unigram_loss for curve in curves if curve.unigram_loss})
    for baseline in baselines:
        label = f"unigram model {baseline:.3f}"
        axes.axhline(baseline, color="grey", linestyle="--", linewidth=1, label=label)
    axes.set_xlabel("step")
    axes.set_ylabel("loss (nats per token)")
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    figure.tight_layout()
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, format="png")
    pyplot.close(figure)


def smoothed(losses: list[float]) -> list[float]:
    """Exponential moving average, corrected for its beginning."""
    averages, average, weight = [], 0.0, 0.0
    for loss in losses:
        average = _SMOOTHING * average + (1 - _SMOOTHING) * loss
        weight = _SMOOTHING * weight + (1 - _SMOOTHING)
        averages.append(average / weight)
    return averages


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    """Every whole JSON object; a run that is still writing may end in a torn line."""
    if not file.exists():
        return
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            continue


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m training.curve", description="Draw the loss curves of runs."
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN_DIR")
    parser.add_argument("--out", required=True, type=Path, metavar="FILE.png")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
