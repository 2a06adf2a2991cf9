"""Amounts as tables, CSV and JSON."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from rich.table import Table

from ops.ledger.accounting import with_replays
from ops.ledger.model import Account, Amount, Book, Bucket, Fact, Hold, Node, Phase

LOST: Final = (Bucket.REPLAYED, Bucket.SAVE, Bucket.STARTING, Bucket.WAITING)
"""Buckets of time that interruptions, saves and waiting cost."""
OF_STEPS: Final = frozenset({Bucket.PRODUCTIVE, Bucket.REPLAYED})
"""Buckets that are known only if steps are."""
UNUSED: Final = "(no run)"
COLUMNS: Final = (
    *("pool", "purchase", "team", "run", "attempt", "bucket", "cause"),
    *("node_hours", "usd", "unpriced_node_hours"),
)

Key = Callable[[Account], str]


def total(book: Mapping[Account, Amount]) -> Amount:
    found = Amount()
    for amount in book.values():
        found.merge(amount)
    return found


def grouped(book: Mapping[Account, Amount], key: Key) -> dict[str, Amount]:
    """Return sums by a key, the most expensive first."""
    found: dict[str, Amount] = defaultdict(Amount)
    for account, amount in book.items():
        found[key(account)].merge(amount)
    return dict(sorted(found.items(), key=lambda item: (-item[1].usd, -item[1].seconds, item[0])))


def of_run(book: Mapping[Account, Amount], run: str) -> Book:
    return {account: amount for account, amount in book.items() if account.run == run}


def team_of(account: Account) -> str:
    return account.team or UNUSED


def money(amount: Amount) -> str:
    """Return USD; `?` where no price is known."""
    if amount.unpriced and not amount.usd:
        return "?"
    return f"{amount.usd:,.2f}" + ("+?" if amount.unpriced > 1 else "")


def hours(seconds: float) -> str:
    return f"{seconds / 3600:,.1f}"


def bucket_table(book: Mapping[Account, Amount], title: str) -> Table:
    table = Table("bucket", title=title, title_justify="left")
    for name in ("node-hours", "share", "USD"):
        table.add_column(name, justify="right")
    whole = total(book)
    by_bucket = grouped(book, lambda a: a.bucket.value)
    for bucket in Bucket:
        amount = by_bucket.get(bucket.value)
        if amount:
            share = f"{amount.seconds / whole.seconds:.1%}" if whole.seconds else ""
            table.add_row(bucket.value, hours(amount.seconds), share, money(amount))
    table.add_section()
    table.add_row("total", hours(whole.seconds), "", money(whole))
    return table


def cross_table(book: Mapping[Account, Amount], key: Key, name: str) -> Table:
    present = [b for b in Bucket if any(a.bucket is b for a in book)]
    table = Table(name, title=f"USD by {name} and bucket", title_justify="left")
    for one in (*(b.value for b in present), "USD", "node-hours"):
        table.add_column(one, justify="right")
    cells: dict[tuple[str, Bucket], Amount] = defaultdict(Amount)
    for account, amount in book.items():
        cells[key(account), account.bucket].merge(amount)
    for row, amount in grouped(book, key).items():
        parts = [cells.get((row, bucket)) for bucket in present]
        texts = ["" if part is None else money(part) for part in parts]
        table.add_row(row, *texts, money(amount), hours(amount.seconds))
    return table


def cause_table(book: Mapping[Account, Amount]) -> Table:
    lost = {a: amount for a, amount in book.items() if a.bucket in LOST}
    return cross_table(lost, lambda a: a.cause or "-", "cause of loss")


def rows(book: Mapping[Account, Amount]) -> list[dict[str, Any]]:
    """Return one row per account, in a stable order."""
    found = []
    for a, amount in book.items():
        values = (a.pool, a.purchase, a.team, a.run, a.attempt, a.bucket.value, a.cause)
        numbers = (amount.seconds / 3600, amount.usd, amount.unpriced / 3600)
        found.append(dict(zip(COLUMNS, (*values, *(round(n, 6) for n in numbers)), strict=True)))
    return sorted(found, key=lambda row: tuple(str(row[name]) for name in COLUMNS[:7]))


def to_csv(book: Mapping[Account, Amount]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows(book))
    return text.getvalue()


def useful(facts: Iterable[Fact], run: str) -> tuple[int, float]:
    found = sorted(
        (f for f in facts if isinstance(f, Phase) and f.run == run), key=lambda p: p.start
    )
    counted = with_replays(found)
    return sum(p.steps for p in counted), sum(p.tokens for p in counted)


def price_dates(facts: Iterable[Fact], run: str = "") -> str:
    """Return the dates of the prices of all nodes, or of those that a run held; empty where none is known."""
    facts = list(facts)
    held = {fact.node for fact in facts if isinstance(fact, Hold) and fact.run == run}
    nodes = (fact for fact in facts if isinstance(fact, Node) and (not run or fact.uid in held))
    found = sorted({node.price_date for node in nodes} - {""})
    return f"node prices {'; '.join(found)}" if found else ""


def run_json(book: Mapping[Account, Amount], run: str, steps: int, tokens: float) -> dict[str, Any]:
    whole = total(book)
    return {
        "run": run,
        "usd": round(whole.usd, 6),
        "nodeHours": round(whole.seconds / 3600, 6),
        "unpricedNodeHours": round(whole.unpriced / 3600, 6),
        "usefulSteps": steps,
        "usdPerUsefulStep": whole.usd / steps if steps else None,
        "usdPerBillionTokens": whole.usd / tokens * 1e9 if tokens else None,
        "buckets": {
            name: {"usd": round(a.usd, 6), "nodeHours": round(a.seconds / 3600, 6)}
            for name, a in grouped(book, lambda one: one.bucket.value).items()
        },
        "rows": rows(book),
    }


def sentences(book: Mapping[Account, Amount], steps: int, tokens: float) -> Sequence[str]:
    whole = total(book)
    lost = sum(a.usd for account, a in book.items() if account.bucket in LOST)
    found = []
    if steps:
        found.append(f"{whole.usd / steps:,.6g} USD per useful step ({steps:,} steps)")
    if tokens:
        found.append(f"{whole.usd / tokens * 1e9:,.2f} USD per billion tokens")
    if whole.usd and not any(account.bucket in OF_STEPS for account in book):
        found.append(
            "what its time was spent on is not known: no step of it was found; pass a Prometheus that has its"
            " metrics"
        )
    elif whole.usd:
        found.append(
            f"{lost:,.2f} USD ({lost / whole.usd:.1%}) for interruptions, saves and waiting"
        )
    if whole.unpriced > 1:
        found.append(f"{hours(whole.unpriced)} node-hours have no known price and are not included")
    return found
