"""What runs cost, and where their time went. Pure: facts in, values out.

The accounting is the ledger's. Without a record, an earlier attempt's pods are gone: the run page then divides the
wall-clock time of the run by its metrics, and prices it as the nodes that it holds now.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ops.ledger import report
from ops.ledger.accounting import account
from ops.ledger.model import Account, Amount, Book, Bucket, Cause, Fact, Fault, Hold, Node, Phase

_WALL_CLOCK: Final = "wall-clock"


@dataclass(frozen=True, kw_only=True)
class Spending:
    """Cost of one run by the facts that are known."""

    usd: float | None
    """None: no price is known."""
    usd_per_hour: float | None
    """Of the nodes that it holds now; None: no price is known."""
    hours: float
    """Node-hours."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A share of a run's time."""

    bucket: str
    cause: str
    seconds: float
    share: float
    """Of the whole, 0 to 1."""
    usd: float | None


@dataclass(frozen=True, kw_only=True)
class Division:
    """Where the time of a run went."""

    parts: Sequence[Part]
    goodput: float
    """Share of steps that count, 0 to 1."""
    usd: float | None
    lost_usd: float | None
    lost_seconds: float
    interrupted_usd: float | None
    """Of it, by interruptions: repeated steps, and starts and ends with a cause."""
    interrupted_seconds: float


def spending_by_run(facts: Sequence[Fact], now: float) -> dict[str, Spending]:
    """Return the cost of each run whose node-time is known.

    Idle nodes that a run could have used while it waited are not part of it; `run cost` names them.
    """
    since = min((f.start for f in facts if isinstance(f, Node)), default=now)
    books: dict[str, Book] = defaultdict(dict)
    for one, amount in account(facts, since, now).items():
        if one.bucket is not Bucket.WAITING:
            books[one.run][one] = amount
    hourly = usd_per_hour_by_run(facts)
    found = {}
    for run, book in books.items():
        whole = report.total(book)
        found[run] = Spending(
            usd=_usd(whole), usd_per_hour=hourly.get(run), hours=whole.seconds / 3600
        )
    return found


def facts_of_run(facts: Sequence[Fact], run: str) -> list[Fact]:
    """Return the facts about a run and about the nodes that it held.

    With these alone the accounting of the run is the same: time of other runs on its nodes becomes idle.
    """
    mine = [f for f in facts if isinstance(f, Hold | Phase) and f.run == run]
    held = {f.node for f in mine if isinstance(f, Hold)}
    around = [
        f
        for f in facts
        if (isinstance(f, Node) and f.uid in held) or (isinstance(f, Fault) and f.node in held)
    ]
    return [*mine, *around]


def usd_per_hour_by_run(facts: Iterable[Fact]) -> dict[str, float | None]:
    """Return the price of the nodes that each run holds now; None where one has no known price."""
    known = list(facts)
    prices = {fact.uid: fact.usd_per_hour for fact in known if isinstance(fact, Node)}
    found: dict[str, float | None] = {}
    for fact in known:
        if isinstance(fact, Hold) and fact.end is None:
            price, before = prices.get(fact.node), found.get(fact.run, 0.0)
            whole = None if price is None or before is None else before + fact.share * price
            found[fact.run] = whole
    return found


def _usd(amount: Amount) -> float | None:
    return None if amount.unpriced and not amount.usd else amount.usd


def divide_book(book: Mapping[tuple[str, str], Amount]) -> Division:
    whole = Amount()
    for amount in book.values():
        whole.merge(amount)
    parts = [
        Part(
            bucket=bucket,
            cause=cause,
            seconds=amount.seconds,
            share=amount.seconds / whole.seconds if whole.seconds else 0.0,
            usd=_usd(amount),
        )
        for (bucket, cause), amount in book.items()
        if amount.seconds > 0
    ]
    order = [bucket.value for bucket in Bucket]
    parts.sort(key=lambda part: (order.index(part.bucket), part.cause))
    lost = [part for part in parts if part.bucket in report.LOST]
    interrupted = [part for part in lost if part.cause or part.bucket == Bucket.REPLAYED]
    return Division(
        parts=parts,
        goodput=sum(part.share for part in parts if part.bucket == Bucket.PRODUCTIVE),
        usd=_usd(whole),
        lost_usd=_sum_usd(lost),
        lost_seconds=sum(part.seconds for part in lost),
        interrupted_usd=_sum_usd(interrupted),
        interrupted_seconds=sum(part.seconds for part in interrupted),
    )


def _sum_usd(parts: Sequence[Part]) -> float | None:
    known = [part.usd for part in parts if part.usd is not None]
    return sum(known) if len(known) == len(parts) else None


def by_record(facts: Sequence[Fact], run: str, now: float) -> Division:
    since = min((f.start for f in facts if isinstance(f, Node)), default=now)
    book = report.of_run(account(facts, since, now), run)
    held = {one: amount for one, amount in book.items() if one.bucket is not Bucket.WAITING}
    return divide_book(_by_cause(held))


def by_wall_clock(
    run: str,
    phases: Sequence[Phase],
    start: float,
    end: float,
    readmitted: float | None,
    usd_per_hour: float | None,
) -> Division:
    """Return the division of a run's wall-clock time from its first start, without waits in the queue.

    `readmitted`: begin of its current attempt, if it waited in the queue before it. `usd_per_hour`: price of
    all its nodes.
    """
    wall = Node(uid=_WALL_CLOCK, pool=_WALL_CLOCK, start=start, end=end, usd_per_hour=usd_per_hour)
    before = [phase.end for phase in phases if readmitted and phase.end <= readmitted]
    spans = [(start, end)]
    if readmitted and before and start < max(before) < readmitted < end:
        spans = [(start, max(before)), (readmitted, end)]
    holds = [
        Hold(uid=str(index), node=wall.uid, run=run, team="", start=first, end=last)
        for index, (first, last) in enumerate(spans)
    ]
    book = account([wall, *holds, *phases], start, end)
    return divide_book(_by_cause(report.of_run(book, run)))


def _by_cause(book: Mapping[Account, Amount]) -> dict[tuple[str, str], Amount]:
    found: dict[tuple[str, str], Amount] = defaultdict(Amount)
    for one, amount in book.items():
        found[one.bucket.value, "" if one.cause == Cause.DONE else one.cause].merge(amount)
    return found
