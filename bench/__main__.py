"""Run benchmarks, print the results, and optionally record them; see request.py for what a benchmark is."""

from __future__ import annotations

import argparse
import importlib
import json
import signal
import sys
from pathlib import Path
from typing import Any, Final, cast

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench import report
from bench.request import Benchmark, Notify, Request, RequestError, Result

BENCHMARKS: Final = {
    "stall": "bench.trainer.stall",
    "durable": "bench.trainer.durable",
    "restart": "bench.trainer.restart",
    "host": "bench.trainer.host",
    "loader": "bench.trainer.loader",
    "elastic": "bench.elastic",
    "spot": "bench.spot.measure",
    "economy": "bench.spot.economy",
    "critical-path": "bench.critical_path",
    "admission": "bench.admission",
    "backlog": "bench.backlog",
    "storm": "bench.storm",
    "submit": "bench.submit",
    "deploy": "bench.deploy",
}
"""Module by name."""
_SIZES: Final = ("changes", "nodes", "workloads", "pairs", "low", "high", "kills")
"""Sizes that have an option."""


def main(argv: list[str] | None = None) -> int:
    """Run the named benchmarks. Return 0; 1 if a requirement was violated; 130 if interrupted."""
    parser = _parser()
    args = parser.parse_args(argv)
    if unknown := sorted(set(args.names) - set(BENCHMARKS)):
        parser.error(f"NAME: got {', '.join(unknown)}; expected {', '.join(BENCHMARKS)}")
    if args.changes is not None and args.changes < 1:
        parser.error(f"--changes: got {args.changes}; expected 1 or more")
    signal.signal(signal.SIGTERM, _interrupted)
    console = Console(width=None if sys.stdout.isatty() else 150, stderr=args.json)
    console.print(f"seed {args.seed}")
    try:
        good = [_run(name, args, console) for name in args.names or BENCHMARKS]
    except RequestError as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        print(
            "interrupted; the cluster is deleted, completed benchmarks are recorded",
            file=sys.stderr,
        )
        return 130
    except TimeoutError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0 if all(good) else 1


def _interrupted(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _run(name: str, args: argparse.Namespace, console: Console) -> bool:
    """Run one benchmark and record it; return whether all requirements were met."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        line = progress.add_task(name, total=None)
        last = ""

        def notify(what: str, total: int = 0, done: int = 0) -> None:
            nonlocal last
            progress.update(
                line, description=f"{name}: {what}", total=total or None, completed=done
            )
            if what != last and not console.is_terminal:
                console.print(f"{name}: {what}")
            last = what

        result = _measure(name, args, notify)
    text = f"{report.environment(result.versions)}\n\n{result.text}"
    if args.json:
        print(json.dumps({"benchmark": name, "good": result.good, **result.values}, indent=1))
    else:
        console.print(text, markup=False, highlight=False)
    if args.results:
        report.record(args.results, {name: text})
        console.print(f"recorded in {args.results}")
    return result.good


def _measure(name: str, args: argparse.Namespace, notify: Notify) -> Result:
    found = cast(Benchmark, importlib.import_module(BENCHMARKS[name]))
    chosen: dict[str, Any] = {key: getattr(args, key) for key in _SIZES}
    sizes = dict(found.SIZES[args.scale])
    sizes |= {key: chosen[key] for key in sizes if chosen.get(key) is not None}
    return found.run(
        Request(
            sizes=sizes, seed=args.seed, notify=notify, traces=args.traces, program=args.program
        )
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=__doc__,
        epilog="example: python -m bench admission --scale full --results bench/RESULTS.md",
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"benchmarks to run: {', '.join(BENCHMARKS)}; default all",
    )
    parser.add_argument(
        "--scale", choices=("small", "full"), default="small", help="size of the benchmarks"
    )
    parser.add_argument("--seed", type=int, default=1, help="random seed")
    parser.add_argument("--results", type=Path, help="Markdown file whose sections are replaced")
    parser.add_argument("--changes", type=int, help="elastic: changes of the membership to play")
    for name in _SIZES[1:]:
        parser.add_argument(f"--{name}", type=int, help="override the scale")
    parser.add_argument(
        "--traces", type=Path, help="elastic, spot, economy: folder with recorded traces (JSON)"
    )
    parser.add_argument(
        "--program", type=Path, help="elastic: folder of the program (default: examples/ddp)"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
