"""Run benchmarks of the trainer and of the queues, print the results, and optionally record them."""

from __future__ import annotations

import argparse
import importlib
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench import (
    admission,
    critical_path,
    deploy,
    embedded,
    report,
    storm,
    submit,
    trainer,
)
from bench.spot import economy, synthetic
from bench.spot import measure as spot
from bench.trainer import TRACES, elastic
from training.spot.traces import Trace, TraceError
from training.spot.traces import load as load_traces

Notify = Callable[[str, int, int], None]
Section = tuple[str, bool]
"""Markdown, and whether all requirements were met."""

ADMISSION: Final = {
    "small": {"nodes": 40, "workloads": 40, "pairs": 1},
    "full": {"nodes": 1000, "workloads": 1000, "pairs": 10},
}
BACKLOG: Final = {
    "small": {"nodes": 40, "workloads": 80, "pairs": 1},
    "full": {"nodes": 1000, "workloads": 10_000, "pairs": 2},
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
    """Run the named benchmarks. Return 0; 1 if a requirement was violated; 130 if interrupted."""
    parser = _parser()
    args = parser.parse_args(argv)
    if unknown := sorted(set(args.names) - set(NAMES)):
        parser.error(f"NAME: got {', '.join(unknown)}; expected {', '.join(NAMES)}")
    if issue := _trace_issue(args):
        parser.error(issue)
    signal.signal(signal.SIGTERM, _interrupted)
    if args.json:
        return _spot_json(args) if args.names == ["spot"] else _elastic_json(args)
    console = Console(width=None if sys.stdout.isatty() else 150)
    console.print(f"seed {args.seed}")
    try:
        good = [_run(name, args, console) for name in args.names or NAMES]
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


def _trace_issue(args: argparse.Namespace) -> str | None:
    """Return what is wrong with the options of the benchmarks `elastic` and `spot`."""
    if args.names in (["spot"], ["economy"]) and args.changes is None:
        if args.json and args.names == ["economy"]:
            return "--json: expected with elastic or spot"
        try:
            _spot_traces(args)
        except (TraceError, OSError) as error:
            return f"--traces: {error}"
        return None
    if args.names != ["elastic"] and (args.json or args.traces or args.changes is not None):
        return (
            "--traces, --changes and --json: expected with the one benchmark elastic, the others also with spot;"
            " --traces also with economy"
        )
    if args.changes is not None and args.changes < 1:
        return f"--changes: got {args.changes}; expected 1 or more"
    if args.traces and not any(args.traces.glob("*.json")):
        return f"--traces: no trace in {args.traces}; expected a folder with NAME.json files"
    return None


def _spot_traces(args: argparse.Namespace) -> list[Trace]:
    return load_traces(args.traces, args.nodes) if args.traces else synthetic.traces(args.seed)


def _spot_json(args: argparse.Namespace) -> int:
    found = spot.measure(_spot_traces(args), args.scale, lambda *_: None)
    print(json.dumps(spot.as_json(found), indent=1))
    return 0 if spot.in_time(found) else 1


def _elastic_json(args: argparse.Namespace) -> int:
    found = elastic.measure(_elastic_sizes(args), args.seed, args.traces or TRACES, lambda *_: None)
    print(json.dumps(found, indent=1))
    return 0 if found["exact"] else 1


def _elastic_sizes(args: argparse.Namespace) -> dict[str, int]:
    given = {} if args.changes is None else {"changes": args.changes}
    return {**elastic.SIZES[args.scale], **given}


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

        text, good = _run_benchmark(name, args, notify)
    console.print(text, markup=False, highlight=False)
    if args.results:
        report.record(args.results, {name: text})
        console.print(f"recorded in {args.results}")
    return good


def _run_benchmark(name: str, args: argparse.Namespace, notify: Notify) -> Section:
    """Run a benchmark, on a new cluster if it requires one."""
    if name == "elastic":
        traces = args.traces or TRACES
        measured = elastic.measure(_elastic_sizes(args), args.seed, traces, notify)
        return report.trainer_section(elastic.section(measured)), measured["exact"]
    if name == "spot":
        replayed = spot.measure(_spot_traces(args), args.scale, notify)
        return spot.section(replayed), spot.in_time(replayed)
    if name == "economy":
        earned = economy.measure(_spot_traces(args), args.scale, notify)
        return report.plain_section(economy.section(earned)), bool(earned)
    if name == "critical-path":
        text, good = critical_path.run(critical_path.SIZES[args.scale], args.seed, notify)
        return report.plain_section(text), good
    if name in trainer.MODULES:
        found = cast(trainer.Benchmark, importlib.import_module(trainer.MODULES[name]))
        text, good = found.run(found.SIZES[args.scale], args.seed, notify)
        return report.trainer_section(text), good
    tuned = name != "deploy"  # It needs the sandbox's S3.
    with embedded.running_cluster(lambda what: notify(what, 0, 0), tuned=tuned) as cluster:
        return CLUSTER_BENCHMARKS[name](cluster, args, notify)


def _sizes(defaults: dict[str, dict[str, Any]], args: argparse.Namespace) -> dict[str, Any]:
    """Return the sizes of a scale, overridden by the command line."""
    found = dict(defaults[args.scale])
    named = {key: getattr(args, key) for key in found if getattr(args, key, None) is not None}
    return found | named | {"seed": args.seed}


def _admission(cluster: embedded.Embedded, args: argparse.Namespace, notify: Notify) -> Section:
    outcome = admission.run(cluster, admission.Size(**_sizes(ADMISSION, args)), notify)
    return report.admission(outcome), not outcome.violations


def _backlog(cluster: embedded.Embedded, args: argparse.Namespace, notify: Notify) -> Section:
    outcome = admission.run(cluster, admission.Size(**_sizes(BACKLOG, args), pods=False), notify)
    return report.admission(outcome), not outcome.violations


def _storm(cluster: embedded.Embedded, args: argparse.Namespace, notify: Notify) -> Section:
    outcome = storm.run(cluster, storm.Size(**_sizes(STORM, args)), notify)
    return report.storm(outcome), outcome.good


def _submit(cluster: embedded.Embedded, args: argparse.Namespace, notify: Notify) -> Section:
    sizes = {k: v for k, v in _sizes(submit.SIZES, args).items() if k != "seed"}
    outcome = submit.run(cluster, sizes, notify)
    return report.cluster_section(submit.section(outcome)), outcome.good


def _deploy(cluster: embedded.Embedded, args: argparse.Namespace, notify: Notify) -> Section:
    outcome = deploy.run(cluster, deploy.SIZES[args.scale], notify)
    return report.cluster_section(deploy.section(outcome)), True


CLUSTER_BENCHMARKS: Final[
    dict[str, Callable[[embedded.Embedded, argparse.Namespace, Notify], Section]]
] = {
    "admission": _admission,
    "backlog": _backlog,
    "storm": _storm,
    "submit": _submit,
    "deploy": _deploy,
}
NAMES: Final = [*trainer.MODULES, "spot", "economy", "critical-path", *CLUSTER_BENCHMARKS]


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
        help=f"benchmarks to run: {', '.join(NAMES)}; default all",
    )
    parser.add_argument(
        "--scale", choices=("small", "full"), default="small", help="size of the benchmarks"
    )
    parser.add_argument("--seed", type=int, default=1, help="random seed")
    parser.add_argument("--results", type=Path, help="Markdown file whose sections are replaced")
    for name in ("nodes", "workloads", "pairs", "low", "high", "kills"):
        parser.add_argument(f"--{name}", type=int, help="override the scale")
    parser.add_argument(
        "--traces", type=Path, help="elastic, spot, economy: folder with recorded traces (JSON)"
    )
    parser.add_argument("--changes", type=int, help="elastic: changes of the membership to play")
    parser.add_argument(
        "--json", action="store_true", help="elastic, spot: print the result as JSON"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
