"""Divide the time of all nodes among the buckets. Pure: facts in, amounts out.

Per node, time is cut where a hold, a fault or the window begins or ends. Inside a hold the phases of its run
decide; shares of GPUs that nobody holds are unused, and are booked as waiting for as many nodes as runs wait for,
oldest run first, else as idle. Each cut of a node is divided completely, so the buckets add up to the nodes'
time.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, TypeVar

from ops.ledger.model import (
    Account,
    Amount,
    Book,
    Bucket,
    Cause,
    Fact,
    Fault,
    Hold,
    Node,
    Phase,
    Wait,
)

_PART: Final = 1e-9
"""Shares of a node below this are rounding."""

_OnNode = TypeVar("_OnNode", Hold, Fault)


@dataclass(frozen=True)
class _Unused:
    """A share of a node without a run."""

    start: float
    end: float
    share: float
    node: Node


def account(facts: Iterable[Fact], since: float, until: float) -> Book:
    """Return the amounts of all nodes between two times. What goes on ends at `until`.

    Of facts with the same identity the last one counts.
    """
    known = list({fact.identity: fact for fact in facts}.values())
    nodes = [f for f in known if isinstance(f, Node)]
    holds = _by_node(f for f in known if isinstance(f, Hold))
    faults = _by_node(f for f in known if isinstance(f, Fault))
    runs = _Runs([f for f in known if isinstance(f, Phase)])
    book: Book = defaultdict(Amount)
    unused: dict[str, list[_Unused]] = defaultdict(list)
    for node in sorted(nodes, key=lambda n: n.uid):
        start, end = max(node.start, since), min(_end(node.end, until), until)
        if start < end:
            cuts = _divide(node, start, end, holds[node.uid], faults[node.uid], runs, until, book)
            unused[node.pool] += cuts
    waits = [f for f in known if isinstance(f, Wait)]
    for pool, found in unused.items():
        _book_unused(found, [w for w in waits if not w.pools or pool in w.pools], until, book)
    return dict(book)


def _end(end: float | None, until: float) -> float:
    return until if end is None else end


def _by_node(facts: Iterable[_OnNode]) -> Mapping[str, list[_OnNode]]:
    found: dict[str, list[_OnNode]] = defaultdict(list)
    for fact in facts:
        found[fact.node].append(fact)
    return found


def _divide(
    node: Node,
    start: float,
    end: float,
    holds: Sequence[Hold],
    faults: Sequence[Fault],
    runs: _Runs,
    until: float,
    book: Book,
) -> Iterator[_Unused]:
    """Book a node's held and faulty time; yield the rest."""
    both: list[Hold | Fault] = [*holds, *faults]
    spans = [(f.start, _end(f.end, until), f) for f in both]
    spans = [one for one in spans if one[0] < end and one[1] > start and one[0] < one[1]]
    times = sorted({start, end, *(min(max(t, start), end) for a, b, _ in spans for t in (a, b))})
    spans.sort(key=lambda one: one[0])
    active: list[tuple[float, Hold | Fault]] = []
    waiting = 0
    for a, b in pairwise(times):
        while waiting < len(spans) and spans[waiting][0] <= a:
            active.append((spans[waiting][1], spans[waiting][2]))
            waiting += 1
        active = [one for one in active if one[0] > a]
        broken = [f for _, f in active if isinstance(f, Fault)]
        held = [f for _, f in active if isinstance(f, Hold)]
        total = math.fsum(max(f.share, 0.0) for f in held)
        scale = 1.0 / max(total, 1.0)
        for one in held:
            share = max(one.share, 0.0) * scale
            if broken:
                _book(book, node, Bucket.STARTING, share * (b - a), one, 0, broken[0].cause)
            else:
                runs.book(book, node, one, a, b, share, until)
        left = 1.0 - min(total, 1.0)
        if left > _PART and broken:
            _book(book, node, Bucket.IDLE, left * (b - a), None, 0, broken[0].cause)
        elif left > _PART:
            yield _Unused(a, b, left, node)


def _book(
    book: Book,
    node: Node,
    bucket: Bucket,
    seconds: float,
    of: Hold | Wait | None,
    attempt: int = 0,
    cause: str = "",
) -> None:
    key = Account(
        bucket=bucket,
        pool=node.pool,
        purchase=node.purchase,
        team=of.team if of else "",
        run=of.run if of else "",
        attempt=attempt,
        cause=cause,
    )
    book[key].add(seconds, node.usd_per_hour, node.gpus)


def with_replays(phases: Sequence[Phase]) -> list[Phase]:
    """Return the phases of a run in order, with the steps that a later attempt repeated as REPLAYED.

    The repeated steps are the last ones of an attempt, from the first step of the one after it. All steps of an
    attempt count as equally long.
    """
    found = []
    for index, phase in enumerate(phases):
        after = min((p.first_step for p in phases[index + 1 :] if p.first_step), default=0)
        lost = phase.first_step + phase.steps - after if after and phase.first_step else 0
        lost = min(max(lost, 0), phase.steps)
        if lost:
            share = lost / phase.steps
            replayed, save = (phase.seconds.get(b, 0.0) for b in (Bucket.REPLAYED, Bucket.SAVE))
            again = max(0.0, phase.end - phase.start - replayed - save) * share
            phase = replace(
                phase,
                seconds={Bucket.SAVE.value: save, Bucket.REPLAYED.value: replayed + again},
                steps=phase.steps - lost,
                tokens=phase.tokens * (1 - share),
            )
        found.append(phase)
    return found


class _Runs:
    """The phases of all runs."""

    def __init__(self, phases: Iterable[Phase]) -> None:
        by_run: dict[str, list[Phase]] = defaultdict(list)
        for phase in sorted(phases, key=lambda p: (p.start, p.attempt)):
            by_run[phase.run].append(phase)
        self._phases = {run: with_replays(found) for run, found in by_run.items()}
        self._starts = {run: [p.start for p in found] for run, found in self._phases.items()}

    def book(
        self, book: Book, node: Node, hold: Hold, a: float, b: float, share: float, until: float
    ) -> None:
        """Book [a, b] of a hold, cut by the run's phases."""
        if hold.group is not None:
            # Until its group is a member, the steps are those of others.
            joined = min(b, until if hold.member is None else hold.member)
            if a < joined:
                _book(book, node, Bucket.STARTING, share * (joined - a), hold)
                a = joined
        last = _end(hold.end, until)
        # Phases that belong to this hold; of overlapping ones, of clocks that differ, the earlier counts.
        own = [p for p in self._near(hold, last) if p.end > hold.start and p.start < last]
        times = sorted({a, b, *(t for p in own for t in (p.start, p.end) if a < t < b)})
        for start, end in pairwise(times):
            seconds = share * (end - start)
            phase = next((p for p in own if p.start <= start and p.end >= end), None)
            if phase:
                self._steps(book, node, hold, phase, seconds)
                continue
            before = next((p for p in reversed(own) if p.end <= start), None)
            after = next((p for p in own if p.start >= end), None)
            gap = Bucket.SAVE if before and not after else Bucket.STARTING
            if before and after and before.attempt == after.attempt:
                gap = Bucket.PRODUCTIVE
            earlier = before or self._last_before(hold.run, start)
            _book(book, node, gap, seconds, hold, *_why(gap, earlier, after))

    def _near(self, hold: Hold, last: float) -> Sequence[Phase]:
        """Return phases that may overlap a hold: from the one before it to the last that begins within."""
        starts = self._starts.get(hold.run, [])
        low = max(bisect_right(starts, hold.start) - 1, 0)
        return self._phases.get(hold.run, [])[low : bisect_right(starts, last)]

    def _last_before(self, run: str, time: float) -> Phase | None:
        starts = self._starts.get(run, [])
        index = bisect_right(starts, time) - 1
        return self._phases[run][index] if index >= 0 else None

    @staticmethod
    def _steps(book: Book, node: Node, hold: Hold, phase: Phase, seconds: float) -> None:
        """Book a part of a phase in the proportions of the whole."""
        length = phase.end - phase.start
        known = {b: max(0.0, phase.seconds.get(b, 0.0)) for b in (Bucket.REPLAYED, Bucket.SAVE)}
        named = math.fsum(known.values())
        known[Bucket.PRODUCTIVE] = max(0.0, length - named)
        scale = seconds / max(length, named)
        for bucket, part in known.items():
            if part > 0:
                cause = phase.ended if bucket is Bucket.REPLAYED else ""
                _book(book, node, bucket, part * scale, hold, phase.attempt, cause)


def _why(gap: Bucket, before: Phase | None, after: Phase | None) -> tuple[int, str]:
    """Return the attempt that a gap belongs to, and the cause."""
    if gap is Bucket.STARTING:
        attempt = after.attempt if after else before.attempt + 1 if before else 1
        ended = before.ended if before else ""
        return attempt, ended if before and ended != Cause.DONE else ""
    return (
        (before.attempt, before.ended if gap is not Bucket.PRODUCTIVE else "")
        if before
        else (0, "")
    )


def _book_unused(found: Sequence[_Unused], waits: Sequence[Wait], until: float, book: Book) -> None:
    """Book unused shares of a pool's nodes: as waiting for the oldest runs that wait, else as idle."""
    queue = sorted(
        ((w.start, _end(w.end, until), w) for w in waits), key=lambda one: (one[0], one[2].run)
    )
    times = sorted(
        {t for one in found for t in (one.start, one.end)}
        | {t for a, b, _ in queue for t in (a, b)}
    )
    parts = sorted(found, key=lambda one: (one.start, one.node.uid))
    nodes: list[_Unused] = []
    runs: list[tuple[float, Wait]] = []
    next_part = next_wait = 0
    for a, b in pairwise(times):
        while next_part < len(parts) and parts[next_part].start <= a:
            nodes.append(parts[next_part])
            next_part += 1
        while next_wait < len(queue) and queue[next_wait][0] <= a:
            runs.append(queue[next_wait][1:])
            next_wait += 1
        nodes = [one for one in nodes if one.end > a]
        runs = [one for one in runs if one[0] > a]
        _assign(nodes, [wait for _, wait in runs], b - a, book)


def _assign(nodes: Sequence[_Unused], waits: Sequence[Wait], seconds: float, book: Book) -> None:
    """Book some seconds of unused nodes."""
    wanted = [wait.nodes for wait in waits]
    index = 0
    for one in nodes:
        share = one.share
        while share > _PART and index < len(waits):
            part = min(share, wanted[index])
            if part > 0:
                _book(book, one.node, Bucket.WAITING, part * seconds, waits[index])
            wanted[index] -= part
            share -= part
            if wanted[index] <= _PART:
                index += 1
        if share > 0:
            _book(book, one.node, Bucket.IDLE, share * seconds, None)
