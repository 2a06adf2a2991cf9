"""Compare runs: settings, losses, speed, where the time went; draw their loss curves."""

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
    """0 shown; 1 when a folder holds no run."""
    arguments = _parse()
    runs = [RunLogs.read(folder) for folder in arguments.runs]
    pairs = zip(arguments.runs, runs, strict=True)
    if empty := [str(folder) for folder, run in pairs if not (run.metrics or run.events)]:
        print(f"no run in {', '.join(empty)}: neither metrics nor events", file=sys.stderr)
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
    parser = argparse.ArgumentParser(prog="python -m training.compare", description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN_DIR")
    parser.add_argument(
        "--out", type=Path, metavar="FILE.png", help=f"the picture; {_PICTURE} with a table"
    )
    parser.add_argument("--log", action="store_true", help="logarithmic axes in the picture")
    parser.add_argument("--json", action="store_true", help="values instead of a table")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
