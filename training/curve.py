"""Draw loss curves: `python -m training.curve RUN_DIR [RUN_DIR ...] --out FILE.png`.

Per run: training loss per step (faint), its moving average, held-out losses (circles), the unigram
baseline, and a triangle at each resume. The palette is safe for colour-blind readers. Needs neither a
display nor torch.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes

from training.compare.run_reader import RunLogs
from training.spec import METRICS_FILE

_SMOOTHING = 0.8
"""Weight of the past in the moving average."""
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Okabe and Ito's palette, without black and without yellow, which is too faint for lines."""
_STYLES = ("-", "--", "-.")


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Losses of one run."""

    name: str
    steps: list[int]
    losses: list[float]
    evaluated: list[tuple[int, float]]
    """(step, held-out loss); the last value of each step."""
    unigram_loss: float | None
    resumed: list[int]


def main() -> int:
    """Draw the curves; returns the exit code, 1 when a run has no steps."""
    arguments = _parse()
    curves = [read_curve(folder) for folder in arguments.runs]
    missing = [curve.name for curve in curves if not curve.steps]
    if missing:
        print(f"no steps in {METRICS_FILE} of {', '.join(missing)}", file=sys.stderr)
        return 1
    draw_curves(curves, arguments.out, logarithmic=arguments.log)
    print(arguments.out)
    return 0


def read_curve(run_dir: Path) -> Curve:
    """Read the curve of one run; empty when it has no metrics yet."""
    return make_curve(RunLogs.read(run_dir))


def make_curve(run: RunLogs) -> Curve:
    """Return the curve of a run's logs."""
    return Curve(
        name=run.name,
        steps=list(run.losses),
        losses=list(run.losses.values()),
        evaluated=sorted(run.evaluations.items()),
        unigram_loss=run.unigram_loss,
        resumed=run.resumed,
    )


def draw_curves(curves: list[Curve], out: Path, *, logarithmic: bool = False) -> None:
    """Write all curves to one PNG; `logarithmic` applies to steps and loss."""
    figure, axes = pyplot.subplots(figsize=(10, 5.5), dpi=120)
    for number, curve in enumerate(curves):
        _draw_one(axes, curve, _COLOURS[number % len(_COLOURS)], _STYLES[number % len(_STYLES)])
    for baseline in sorted({curve.unigram_loss for curve in curves if curve.unigram_loss}):
        label = f"unigram model {baseline:.3f}"
        axes.axhline(baseline, color="grey", linestyle=":", linewidth=1, label=label)
    if logarithmic:
        axes.set_xscale("log")
        axes.set_yscale("log")
    axes.set_xlabel("step")
    axes.set_ylabel("loss (nats per token)")
    axes.grid(alpha=0.25, which="both")
    axes.legend(frameon=False)
    figure.tight_layout()
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, format="png")
    pyplot.close(figure)


def _draw_one(axes: Axes, curve: Curve, colour: str, style: str) -> None:
    averages = smoothed(curve.losses)
    axes.plot(curve.steps, curve.losses, color=colour, alpha=0.25, linewidth=0.8)
    axes.plot(curve.steps, averages, color=colour, linestyle=style, label=curve.name)
    if curve.evaluated:
        steps, losses = zip(*curve.evaluated, strict=True)
        label = f"held out, last {losses[-1]:.3f}"
        axes.plot(steps, losses, "o", color=colour, mfc="white", zorder=3, label=label)
    by_step = dict(zip(curve.steps, averages, strict=True))
    marks = [step for step in curve.resumed if step in by_step]
    if marks:
        heights = [by_step[step] for step in marks]
        label = f"resumed ({len(curve.resumed)})"
        axes.plot(marks, heights, "^", color=colour, mec="black", ms=8, zorder=4, label=label)


def smoothed(losses: list[float]) -> list[float]:
    """Return the bias-corrected exponential moving average."""
    averages, average, weight = [], 0.0, 0.0
    for loss in losses:
        average = _SMOOTHING * average + (1 - _SMOOTHING) * loss
        weight = _SMOOTHING * weight + (1 - _SMOOTHING)
        averages.append(average / weight)
    return averages


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m training.curve",
        description="Draw the loss curves of runs.",
        epilog="example:\n  python -m training.curve runs/hello-v1 --out curve.png",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN_DIR", help="run directory")
    parser.add_argument(
        "--out", required=True, type=Path, metavar="FILE.png", help="picture to write"
    )
    parser.add_argument("--log", action="store_true", help="draw logarithmic axes")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
