"""`trainyard run cost`, `trainyard stack cost`, `trainyard cost collect|report`."""

from __future__ import annotations

import argparse
import calendar
import datetime as dt
import json
import os
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from rich.console import Console

from infra.domain import naming
from ops import controller, metrics, names, objects
from ops.cluster import Cluster, ClusterError
from ops.collect import NoSuchRunError
from ops.commands import Group, add_prometheus, printer
from ops.ledger import clock, observe, report, stack_cost
from ops.ledger.accounting import account
from ops.ledger.model import Book, Fact, Hold, Node, Wait
from ops.ledger.record import Record
from ops.names import Named

RECORD_ENV: Final = "TRAINYARD_LEDGER"
EVERY_S: Final = 60.0


def add_to_run(commands: Group) -> None:
    cost = commands.add(
        "cost",
        _run_cost,
        "show where a run's node-hours and money went",
        [
            "run cost hello",
            "run cost hello --record ledger --json",
        ],
    )
    cost.add_argument("run_name", metavar="RUN", help="run id, or run name for its newest run")
    cost.add_argument("--json", action="store_true", help="print one JSON object")
    add_record(cost)
    add_prometheus(cost)


def add_to_stack(commands: Group) -> None:
    cost = commands.add_offline(
        "cost",
        _stack_cost,
        "show what a stack costs now, at maximum size and idle",
        [
            "stack cost --stack dev              # with the nodes of the current cluster",
            "stack cost --stack prod --planned   # from the stack file alone",
        ],
    )
    cost.add_argument("--stack", required=True, metavar="STACK", help="such as dev")
    cost.add_argument("--planned", action="store_true", help="do not ask the cluster for its nodes")
    cost.add_argument(
        "--kubeconfig", type=Path, metavar="FILE", help="kubeconfig; default as kubectl"
    )
    cost.add_argument("--context", metavar="NAME", help="its context; default the current one")
    cost.add_argument("--json", action="store_true", help="print one JSON object")
    add_record(cost)


def _stack_cost(args: argparse.Namespace, console: Console) -> int:
    from ops.ledger import stack_file  # Imports the whole configuration, and Pulumi.

    now = time.time()
    stack = stack_file.read(args.stack)
    sight = None
    if not args.planned:
        sight = observe.look(Cluster(args.kubeconfig, args.context), None, now)
    month: Book = {}
    if args.record:
        since, _ = month_bounds(dt.datetime.fromtimestamp(now, dt.UTC).date().replace(day=1))
        month = account(Record(args.record).read(), since, now)
    found = stack_cost.cost(stack.name, stack.pools, stack.services, sight, month)
    if args.json:
        print(json.dumps(found, indent=1))
    else:
        stack_cost.show(found, console)
    return 0


def add_group(commands: Group) -> None:
    collect = commands.add(
        "collect",
        _collect,
        "record what nodes and runs do, for reports",
        ["cost collect --record ledger", "cost collect --record ledger --once"],
    )
    collect.add_argument("--once", action="store_true", help="poll once and end")
    collect.add_argument(
        "--every", type=float, default=EVERY_S, metavar="SECONDS", help="default %(default)g"
    )
    add_record(collect)
    add_prometheus(collect)
    monthly = commands.add_offline(
        "report",
        _report,
        "report a month by team, pool and bucket",
        [
            "cost report --record ledger --month 2026-11",
            "cost report --month 2026-11 --csv november.csv",
        ],
    )
    monthly.add_argument("--month", type=_month, metavar="YYYY-MM", help="default the current one")
    monthly.add_argument("--by", choices=sorted(_KEYS), default="team", help="default %(default)s")
    monthly.add_argument("--csv", type=Path, metavar="FILE", help="write one row per account")
    monthly.add_argument("--json", action="store_true", help="print the rows as JSON")
    add_record(monthly)


_KEYS: Final = {
    "team": report.team_of,
    "run": lambda a: a.run or report.UNUSED,
    "pool": lambda a: a.pool,
    "purchase": lambda a: a.purchase or "?",
}


def add_record(parser: argparse.ArgumentParser) -> None:
    default = os.environ.get(RECORD_ENV)
    parser.add_argument(
        "--record",
        type=Path,
        default=Path(default) if default else None,
        metavar="FOLDER",
        help=f"record of `cost collect`; default ${RECORD_ENV}",
    )


def _month(text: str) -> dt.date:
    if not re.fullmatch(r"\d{4}-(0[1-9]|1[0-2])", text):
        raise argparse.ArgumentTypeError(f"got {text}; expected YYYY-MM, such as 2026-11")
    return dt.date.fromisoformat(f"{text}-01")


def month_bounds(first: dt.date) -> tuple[float, float]:
    """Return the begin and end of a month in UTC, in Unix seconds."""
    days = calendar.monthrange(first.year, first.month)[1]
    begin = dt.datetime(first.year, first.month, 1, tzinfo=dt.UTC)
    return begin.timestamp(), (begin + dt.timedelta(days=days)).timestamp()


def required(record: Path | None) -> Record:
    """Return the record in a folder. Raises ClusterError without one."""
    if record is None:
        raise ClusterError(
            f"--record: missing; expected the folder of `trainyard cost collect`, or ${RECORD_ENV}"
        )
    return Record(record)


def _collect(args: argparse.Namespace, cluster: Cluster, console: Console) -> int:
    record, show = required(args.record), printer(console)
    prometheus = metrics.connect(args.prometheus, cluster)

    def look() -> None:
        """Record what is there now, and say so."""
        clock.check(cluster)
        now = time.time()
        sight = observe.look(cluster, prometheus, now)
        changed = record.write(observe.facts(sight, record.read()))
        gaps = [*(f"may not read {name}" for name in sorted(sight.hidden)), sight.gap]
        note = "".join(f"; {gap}" for gap in gaps if gap)
        found = f"{len(sight.nodes)} nodes, {len(sight.pods)} pods, {changed} facts{note}"
        show(f"{objects.stamp(dt.datetime.fromtimestamp(now, dt.UTC))} {found}")

    return controller.repeat(args, look, None, show)


def _report(args: argparse.Namespace, console: Console) -> int:
    now = time.time()
    first = args.month or dt.datetime.now(dt.UTC).date().replace(day=1)
    since, until = month_bounds(first)
    facts = required(args.record).read()
    book = account(facts, since, min(until, max(now, since)))
    _write_csv(args.csv, book)
    if args.json:
        print(json.dumps(report.rows(book), indent=1))
        return 0
    if not book:
        printer(console)(f"{first:%Y-%m}: no nodes are recorded")
        return 1
    console.print(report.bucket_table(book, f"{first:%Y-%m}, all nodes"))
    console.print(report.cross_table(book, _KEYS[args.by], args.by))
    console.print(report.cause_table(book))
    if dates := report.price_dates(facts):
        printer(console)(dates)
    return 0


def _write_csv(file: Path | None, book: Book) -> None:
    try:
        if file:
            file.write_text(report.to_csv(book), encoding="utf-8")
    except OSError as error:
        raise ClusterError(f"{file}: not written: {error}") from None


def _run_cost(args: argparse.Namespace, cluster: Cluster, console: Console) -> int:
    now = time.time()
    known: list[Fact] = Record(args.record).read() if args.record else []
    sight = observe.look(cluster, metrics.connect(args.prometheus, cluster), now)
    merged = {f.identity: f for f in (*known, *observe.facts(sight, known))}
    facts = list(merged.values())
    of_team = [f for f in facts if args.team in (None, getattr(f, "team", None))]
    run = _find(args.run_name, of_team, sight)
    since = min((f.start for f in facts if isinstance(f, Node)), default=now)
    book = report.of_run(account(facts, since, now), run)
    steps, tokens = report.useful(facts, run)
    if args.json:
        print(json.dumps(report.run_json(book, run, steps, tokens), indent=1))
        return 0
    console.print(report.bucket_table(book, run))
    show = printer(console)
    for line in report.sentences(book, steps, tokens):
        show(line)
    for line in (report.price_dates(facts, run), sight.gap, "" if args.record else _NO_RECORD):
        if line:
            show(line)
    return 0


_NO_RECORD: Final = (
    "without a record, only pods that still exist are counted; see `trainyard cost collect`"
)


def _find(wanted: str, facts: Iterable[Fact], sight: observe.Sight) -> str:
    """Return the id of the run with this id, else of the newest of this name.

    Raises NoSuchRunError; AmbiguousNameError if several teams have one.
    """
    starts: dict[tuple[str, str], float] = {}
    for fact in facts:
        if isinstance(fact, Hold | Wait):
            key = fact.run, fact.team
            starts[key] = max(fact.start, starts.get(key, 0.0))
    of_pods = {
        objects.label(pod, naming.RUN_ID): objects.label(pod, naming.RUN) for pod in sight.pods
    }

    def named(run: tuple[str, str]) -> Named:
        name = of_pods.get(run[0]) or _VERSION.sub("", run[0])
        return Named(id=run[0], name=name, namespace=naming.namespace(run[1]))

    newest = sorted(starts, key=lambda run: starts[run], reverse=True)
    found = names.find("run", newest, wanted, named)
    if found is None:
        known = ", ".join(sorted({run for run, _ in starts})[:20]) or "none"
        raise NoSuchRunError(f"run {wanted!r}: no node-time is known; runs with some: {known}")
    return found[0]


_VERSION: Final = re.compile(r"-v\d+-[0-9a-f]+$")
"""End of a run id, after its name."""
