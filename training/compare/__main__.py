"""Compare runs: settings, losses, speed and goodput, as a table or JSON, with their loss curves."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from rich.console import Console

from training.compare.diff import compare_runs
from training.compare.run_reader import RunLogs
from training.compare.table import render_table

_PICTURE = Path("comparison.png")


def main() -> int:
    """Returns the exit code: 0 shown, 1 a folder holds no run."""
    arguments = _parse()
    runs = [RunLogs.read(folder) for folder in arguments.runs]
    pairs = zip(arguments.runs, runs, strict=True)
    if empty := [str(folder) for folder, run in pairs if not (run.metrics or run.events)]:
        print(
            f"{', '.join(empty)}: no run found (no metrics.jsonl, no events.jsonl)", file=sys.stderr
        )
        return 1
    if arguments.json:
        print(json.dumps(compare_runs(runs), indent=2))
    else:
        console = Console(width=None if sys.stdout.isatty() else 120)
        console.print(render_table(runs))
    if arguments.out or not arguments.json:
        from training import curve  # matplotlib takes a second that JSON does not need

        out = arguments.out or _PICTURE
        curve.draw_curves([curve.make_curve(run) for run in runs], out, logarithmic=arguments.log)
        print(f"loss curves: {out}", file=sys.stderr)
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m training.compare",
        description=__doc__,
        epilog="example:\n  python -m training.compare runs/hello-v1 runs/hello-v2",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN_DIR", help="run directory")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE.png",
        help=f"loss curves (default without --json: {_PICTURE})",
    )
    parser.add_argument("--log", action="store_true", help="draw logarithmic axes")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
