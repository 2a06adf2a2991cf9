"""`python -m bench [NAME]`: run benchmarks on a cluster of their own, show and perhaps record the results."""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench import ablation, admission, embedded, report, storm, trainer

Notify = Callable[[str, int, int], None]
Section = tuple[str, bool]
"""Markdown, and whether all that must hold held."""

BACKLOG_PAIRS: Final = 1
ADMISSION: Final = {
    "small": {"nodes": 40, "workloads": 40, "pairs": 1},
    "full": {"nodes": 1000, "workloads": 1000, "pairs": 10},
}
BACKLOG: Final = {
    "small": {"nodes": 40, "workloads": 80, "pairs": BACKLOG_PAIRS},
    "full": {"nodes": 1000, "workloads": 10_000, "pairs": BACKLOG_PAIRS},
}
ABLATION: Final = {
    "small": {"nodes": 40, "workloads": 40, "pairs": 1},
    "full": {"nodes": 200, "workloads": 150, "pairs": 1},
}
STORM: Final = {
    "small": {"nodes": 24, "low": 20, "high": 20, "kills": 4, "kill_every_s": 2.0, "seconds": 2.0},
    "full": {
        "nodes": 200,
        "low": 500,
        "high": 500,
        "kills": 16,
        "kill_every_s": 10.0,
        "seconds": 15.0,
    },
}


def main(argv: list[str] | None = None) -> int:
    """Run what was asked for; 1 when a promise was broken, 130 when interrupted."""
    parser = _parser()
    args = parser.parse_args(argv)
    if unknown := sorted(set(args.names) - set(NAMES)):
        parser.error(f"NAME: got {', '.join(unknown)}; allowed {', '.join(NAMES)}")
    signal.signal(signal.SIGTERM, _interrupted)
    console = Console(width=None if sys.stdout.isatty() else 150)
    console.print(f"seed {args.seed}")
    try:
        good = [_run(name, args, console) for name in args.names or NAMES]
    except KeyboardInterrupt:
        print("interrupted; the cluster is gone, what had ended is recorded", file=sys.stderr)
        return 130
    except TimeoutError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0 if all(good) else 1


def _interrupted(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _run(name: str, args: argparse.Namespace, console: Console) -> bool:
    """One benchmark, recorded as soon as it ends; whether every promise was kept."""
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

        text, good = _run_benchmark(name, args, notify)
    console.print(text, markup=False, highlight=False)
    if args.results:
        report.record(args.results, {name: text})
        console.print(f"recorded in {args.results}")
    return good


def _run_benchmark(name: str, args: argparse.Namespace, notify: Notify) -> Section:
    """Alone, or on a fresh cluster."""
    if name in trainer.MODULES:
        found = cast(trainer.Benchmark, importlib.import_module(trainer.MODULES[name]))
        text, good = found.run(found.SIZES[args.scale], args.seed, notify)
        return report.trainer_section(text), good
    with embedded.running_cluster(lambda what: notify(what, 0, 0)) as cluster:
        return CLUSTER_BENCHMARKS[name](cluster, args, notify)


def _sizes(defaults: dict[str, dict[str, Any]], args: argparse.Namespace) -> dict[str, Any]:
    """The sizes of a scale, with those that were named on the command line."""
    found = dict(defaults[args.scale])
    named = {key: getattr(args, key) for key in found if getattr(args, key, None) is not None}
    return found | named | {"seed": args.seed}


def _admission(cluster: embedded.Embedded, args: argparse.Namespace, notify: Notify) -> Section:
    outcome = admission.run(cluster, admission.Size(**_sizes(ADMISSION, args)), notify)
    return report.admission(outcome), not outcome.violations


def _backlog(cluster: embedded.Embedded, args: argparse.Namespace, notify: Notify) -> Section:
    outcome = admission.run(cluster, admission.Size(**_sizes(BACKLOG, args), pods=False), notify)
    return report.admission(outcome), not outcome.violations


def _ablation(cluster: embedded.Embedded, args: argparse.Namespace, notify: Notify) -> Section:
    outcome = ablation.run(cluster, admission.Size(**_sizes(ABLATION, args)), notify)
    return report.ablation(outcome), not outcome.violations


def _storm(cluster: embedded.Embedded, args: argparse.Namespace, notify: Notify) -> Section:
    outcome = storm.run(cluster, storm.Size(**_sizes(STORM, args)), notify)
    return report.storm(outcome), outcome.good


CLUSTER_BENCHMARKS: Final[
    dict[str, Callable[[embedded.Embedded, argparse.Namespace, Notify], Section]]
] = {
    "admission": _admission,
    "backlog": _backlog,
    "parts": _ablation,
    "storm": _storm,
}
NAMES: Final = [*trainer.MODULES, *CLUSTER_BENCHMARKS]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; default all"
    )
    parser.add_argument("--scale", choices=("small", "full"), default="small")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--results", type=Path, help="file whose sections are written anew")
    for name in ("nodes", "workloads", "pairs", "low", "high", "kills"):
        parser.add_argument(f"--{name}", type=int, help="instead of the scale's own")
    return parser


if __name__ == "__main__":
    sys.exit(main())
