"""`trainyard cost enforce` and `trainyard cost override`."""

from __future__ import annotations

import argparse
import datetime as dt
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from rich.console import Console

from ops import controller, metrics
from ops.budgets import control, decision
from ops.budgets.control import TeamState
from ops.budgets.decision import Budget, Level, Override, Reading, decide
from ops.cluster import Cluster, ClusterError, ConflictError, UnreachableError
from ops.commands import Group, add_prometheus, printer
from ops.exposition import Page, add_metrics, serving
from ops.lease import Lease
from ops.ledger import clock, observe
from ops.ledger.accounting import account
from ops.ledger.command import EVERY_S, add_record, month_bounds, required
from ops.ledger.model import Book, Bucket, Fact, Hold, Node
from ops.ledger.record import Record
from ops.submission.record import caller

_FORESEEN: Final = 0.5
"""Share of the time until a limit after which it is looked at again: rates change."""


def add(commands: Group) -> None:
    enforce = commands.add(
        "enforce",
        _enforce,
        "record as `cost collect` does, and hold teams to the budgets of the stack file",
        ["cost enforce --stack dev --record ledger", "cost enforce --stack dev --once --dry-run"],
    )
    budgets = enforce.add_mutually_exclusive_group(required=True)
    budgets.add_argument("--stack", metavar="STACK", help="such as dev")
    budgets.add_argument(
        "--budgets", type=Path, metavar="FILE", help="budgets that the stack has written"
    )
    controller.add_options(enforce, EVERY_S, "poll once and end")
    add_metrics(enforce)
    add_record(enforce)
    add_prometheus(enforce)
    allow = commands.add(
        "override",
        _override,
        "allow a team to exceed its budget for a time",
        [
            'cost override --team research --hours 24 --reason "paper deadline"',
            "cost override --team research --withdraw",
        ],
    )
    allow.add_argument("--hours", type=float, metavar="HOURS", help="how long it holds")
    allow.add_argument("--reason", default="", metavar="TEXT", help="why; kept with your user name")
    allow.add_argument("--withdraw", action="store_true", help="end it now")


def readings_of(
    facts: Iterable[Fact], book: Book, teams: Iterable[str], now: float, *, complete: bool
) -> dict[str, Reading]:
    """Return what each team has spent by the book, and spends now by the facts. Pure.

    Only nodes that its runs hold count: neither idle ones nor those that could not start its waiting runs.
    """
    known = list({fact.identity: fact for fact in facts}.values())
    nodes = {f.uid: f for f in known if isinstance(f, Node)}
    usd, gpu_hours = defaultdict[str, float](float), defaultdict[str, float](float)
    for one, amount in book.items():
        if one.bucket not in (Bucket.WAITING, Bucket.IDLE):
            usd[one.team] += amount.usd
            gpu_hours[one.team] += amount.gpu_seconds / 3600
    rate, gpus = defaultdict[str, float](float), defaultdict[str, float](float)
    for fact in known:
        node = nodes.get(fact.node) if isinstance(fact, Hold) and fact.end is None else None
        if isinstance(fact, Hold) and node is not None and node.end is None:
            rate[fact.team] += fact.share * (node.usd_per_hour or 0.0)
            gpus[fact.team] += fact.share * node.gpus
    return {
        team: Reading(
            at=now,
            usd=usd[team],
            gpu_hours=gpu_hours[team],
            usd_per_hour=rate[team],
            gpus=gpus[team],
            complete=complete,
        )
        for team in teams
    }


class Controller:
    """Holds teams to their budgets. All that it must remember is in the record and on the queues."""

    def __init__(
        self,
        cluster: Cluster,
        record: Record,
        budgets: Sequence[Budget],
        show: Callable[[str], None],
        *,
        dry_run: bool = False,
        lease: Lease | None = None,
        page: Page | None = None,
    ) -> None:
        """`lease`: what must be held to write; None: nobody else writes. `page`: where metrics are shown."""
        self._lease, self._page = lease, page
        self._states: dict[str, TeamState] = {}
        self._cluster, self._record, self._budgets = cluster, record, budgets
        self._show, self._dry_run = show, dry_run
        self._readings: dict[str, list[Reading]] = {}
        self._month = ""
        self._said: dict[str, str] = {}

    def step(self, prometheus: metrics.PrometheusClient | None, now: float) -> float:
        """Look, record, decide and act once; return the seconds until a limit can be reached.

        Raises WrongClockError, UnreachableError: nothing was recorded or decided.
        """
        if self._lease:
            self._lease.renew()
        clock.check(self._cluster)
        sight = observe.look(self._cluster, prometheus, now)
        self._may_write()
        self._record.write(observe.facts(sight, self._record.read()))
        first = dt.datetime.fromtimestamp(now, dt.UTC).date().replace(day=1)
        month = f"{first:%Y-%m}"
        if month != self._month:
            self._month, self._readings = month, {}
        since, _ = month_bounds(first)
        complete = not sight.hidden & {"nodes", "pods"}
        teams = [one.team for one in self._budgets]
        facts = self._record.read()
        book = account(facts, since, now)
        found = readings_of(facts, book, teams, now, complete=complete)
        left = min(
            (self._try_team(one, found[one.team], sight) for one in self._budgets),
            default=float("inf"),
        )
        if self._page:
            self._page.put(control.samples(book, self._states.values(), now))
        return left

    def _may_write(self) -> None:
        if self._lease:
            self._lease.check()

    def _try_team(self, budget: Budget, reading: Reading, sight: observe.Sight) -> float:
        """Decide and act for a team; what fails for it alone is reported, and the others go on."""
        try:
            return self._of_team(budget, reading, sight)
        except UnreachableError:
            raise
        except ClusterError as error:
            self._say(budget.team, f"nothing done: {error}")
            return float("inf")

    def _of_team(self, budget: Budget, reading: Reading, sight: observe.Sight) -> float:
        team = budget.team
        kept = [*self._readings.get(team, []), reading][-2:]
        self._readings[team] = kept
        queue = control.queue_of(self._cluster, team)
        state = control.read_state(queue)
        # A level of another month is no longer in force; nothing has to be confirmed to end it.
        current = state.level if state.month == self._month else Level.NONE
        granted = control.read_override(queue)
        decision = decide(budget, kept, current, granted)
        self._say(team, f"{decision.level.name.lower()}: {decision.reason}")
        if not self._dry_run:
            stops = control.drainable(
                queue, sight.workloads, budget.spot_flavors, budget.usual_priority
            )
            self._may_write()
            try:
                control.apply(self._cluster, queue, decision.level, self._month, stops, self._show)
            except ConflictError:
                return 0.0
        before = self._states[team].decided if team in self._states else None
        self._states[team] = TeamState(
            budget=budget,
            reading=reading,
            level=decision.level,
            override=granted if granted and reading.at < granted.until else None,
            decided=reading.at if reading.complete else before,
        )
        return decision.look_again_s

    def _say(self, team: str, text: str) -> None:
        level = text.partition(":")[0]
        if self._said.get(team) != level:
            self._show(f"team {team}: {text}")
            self._said[team] = level


def _enforce(args: argparse.Namespace, cluster: Cluster, console: Console) -> int:
    show = printer(console)
    budgets = [one for one in _budgets(args) if args.team in (None, one.team)]
    lease = controller.lease_of(args, cluster)
    page = Page()
    enforcing = Controller(
        cluster, required(args.record), budgets, show, dry_run=args.dry_run, lease=lease, page=page
    )
    prometheus = metrics.connect(args.prometheus, cluster)
    with serving(args.metrics, page):
        # One look decides nothing that stops a run.
        return controller.repeat(
            args,
            lambda: _FORESEEN * enforcing.step(prometheus, time.time()),
            lease,
            show,
            looks=2,
        )


def _budgets(args: argparse.Namespace) -> list[Budget]:
    if args.budgets:
        parse = decision.parse_budgets  # none is valid: then spending is only recorded
        return controller.read_published("--budgets", args.budgets, "budgets", parse)
    from ops.ledger import stack_file  # Imports the whole configuration, and Pulumi.

    budgets = stack_file.team_budgets(args.stack)
    if not budgets:
        raise ClusterError(f"stack {args.stack}: no team has a budget; add teams[].budget")
    return budgets


def _override(args: argparse.Namespace, cluster: Cluster, console: Console) -> int:
    if not args.team:
        raise ClusterError("--team: missing; expected the team that may spend more")
    if args.withdraw:
        control.override(cluster, args.team, None)
        printer(console)(f"team {args.team}: its budget holds again")
        return 0
    if not args.hours or args.hours <= 0 or not args.reason.strip():
        raise ClusterError(
            "--hours, --reason: missing; expected a number of hours above 0, and why; or --withdraw"
        )
    who = caller(cluster)
    until = time.time() + args.hours * 3600
    control.override(cluster, args.team, Override(until=until, by=who, reason=args.reason.strip()))
    end = dt.datetime.fromtimestamp(until, dt.UTC).strftime("%Y-%m-%dT%H:%MZ")
    printer(console)(f"team {args.team}: may exceed its budget until {end}, by {who}")
    return 0
