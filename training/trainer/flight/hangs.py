"""Whom to blame when a gang stands still, from the reports of its ranks. Pure.

In this order: a rank that does not answer; one that issued another number of collectives than ever before; one
that is behind the others; one that waits for no other rank; one that waits in a collective which never came after
those before it. Where all wait in the same collective, no rank is named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from training.trainer.flight.reports import Report
from training.trainer.flight.ring import Mark, Phase
from trainyard.culprits import HUNG, MISMATCHED, NO_RANK

_STEPS_NEEDED: Final = 3
"""Steps of which the number of collectives must be known before a difference counts."""
_Counted = Callable[[Mark], int]
"""What is counted: `issued` of all ranks, or `inside` a group."""
_Counts = Mapping[int, Mapping[int, int]]
"""Collectives since the step began, by step and phase."""
_OF_STEP: Final = (Phase.PASSES, Phase.UPDATE, Phase.AGREE, Phase.BETWEEN)
"""Phases of a step, before each of which the same number of collectives is issued in every step."""


@dataclass(frozen=True, kw_only=True)
class Suspect:
    """The rank that others wait for."""

    symptom: str
    rank: int
    what: str
    evidence: tuple[str, ...]


def find(reports: Mapping[int, Report], silent: Mapping[int, str], world: int) -> Suspect | None:
    """Return the culprit of a standstill; None while that may be ordinary, or is not clear yet.

    `reports`: of the ranks that answer; `silent`: what is known of those that do not.
    """
    if silent:
        return _silent(reports, silent)
    if suspect := mismatched(reports):
        return suspect
    if len(reports) < world:
        return None
    behind = _behind(reports)
    if suspect := _departed(reports, behind):
        return suspect
    if len(behind) == world > 1:
        return _elsewhere(reports) or _nobody(reports)
    late = [rank for rank in behind if reports[rank].seconds >= reports[rank].allowed]
    if not late:
        return None
    return _skipped(reports, late[0]) or _hung(reports, late[0], len(late))


def _silent(reports: Mapping[int, Report], silent: Mapping[int, str]) -> Suspect:
    rank = min(silent)
    known = silent[rank]
    others = f", and {len(silent) - 1} more ranks do not either" if len(silent) > 1 else ""
    seen = next((r.silent[rank] for r in reports.values() if rank in r.silent), "")
    return Suspect(
        symptom=HUNG,
        rank=rank,
        what=f"does not answer{others}",
        evidence=tuple(filter(None, (seen, known, *_waiting_lines(reports, rank)))),
    )


def mismatched(reports: Mapping[int, Report]) -> Suspect | None:
    """Return the rank that skipped or added a collective: others cannot continue with it."""
    groups: dict[str, dict[int, Report]] = {}
    for rank, report in reports.items():
        groups.setdefault(report.group, {})[rank] = report
    found = _odd_counts(reports, lambda mark: mark.issued)
    for group in groups.values():
        if len(group) > 1:
            found += _odd_counts(group, lambda mark: mark.inside)
    if not found:
        return None
    step, rank, phase, count, expected = min(found)
    report = reports[rank]
    return Suspect(
        symptom=MISMATCHED,
        rank=rank,
        what=f"{'skipped' if count < expected else 'added'} a collective in step {step}",
        evidence=(
            f"rank {rank} issued {count} collectives in step {step} before {Phase(phase).text},"
            f" {expected} in each step before",
            *report.collectives[-1:],
            *_waiting_lines(reports, rank),
        ),
    )


def _odd_counts(
    reports: Mapping[int, Report], counted: _Counted
) -> list[tuple[int, int, int, int, int]]:
    """Return the ranks with a number that no other rank has in that step.

    As step, rank, phase, the number and what it has been in most steps.
    """
    found = []
    counts = {rank: _counts(report.marks, counted) for rank, report in reports.items()}
    for rank, steps in counts.items():
        usual = _usual(steps)
        for step, phase, count in _last(steps):
            expected = usual.get(phase, count)
            if count != expected and not any(
                other != rank and theirs.get(step, {}).get(phase) == count
                for other, theirs in counts.items()
            ):
                found.append((step, rank, phase, count, expected))
                break
    return found


def usual_counts(marks: Sequence[Mark], counted: _Counted) -> dict[int, int]:
    """Return how many collectives are issued in a step before each of its phases; none after few steps."""
    return _usual(_counts(marks, counted))


def _usual(steps: _Counts) -> dict[int, int]:
    seen: dict[int, Counter[int]] = {}
    for step in sorted(steps)[:-1]:
        for phase, count in steps[step].items():
            seen.setdefault(phase, Counter())[count] += 1
    return {
        phase: counter.most_common(1)[0][0]
        for phase, counter in seen.items()
        if counter.total() >= _STEPS_NEEDED
    }


def _counts(marks: Sequence[Mark], counted: _Counted) -> _Counts:
    """Return by step and phase the collectives issued since the step began.

    Without those of earlier views of an elastic run: their exchanges were counted from another number, and a group
    may have had another part of the step.
    """
    found: dict[int, dict[int, int]] = {}
    begun: dict[int, int] = {}
    for mark in marks:
        if mark.phase == Phase.STARTUP:
            found.clear()
            begun.clear()
        elif mark.phase == Phase.LOADER:
            begun[mark.step] = counted(mark)
        elif mark.phase in _OF_STEP and mark.step in begun:
            found.setdefault(mark.step, {}).setdefault(mark.phase, counted(mark) - begun[mark.step])
    return found


def _last(steps: _Counts) -> list[tuple[int, int, int]]:
    """Return step, phase and count of the last two steps."""
    return [
        (step, phase, count)
        for step in sorted(steps)[-2:]
        for phase, count in sorted(steps[step].items())
    ]


def _behind(reports: Mapping[int, Report]) -> list[int]:
    """Return the ranks that others may be waiting for."""
    fewest = min(report.issued for report in reports.values())
    behind = [rank for rank, report in reports.items() if report.issued == fewest]
    groups = {report.group for report in reports.values()}
    # Where all groups are equally far, ranks of each may lag behind others of their group: that says nothing.
    if len(behind) < len(reports) or len(groups) == 1:
        inside = {
            group: min(reports[rank].inside for rank in behind if reports[rank].group == group)
            for group in {reports[rank].group for rank in behind}
        }
        behind = [r for r in behind if reports[r].inside == inside[reports[r].group]]
    free = [rank for rank in behind if reports[rank].waiting is False]
    return free or behind


def _departed(reports: Mapping[int, Report], behind: Sequence[int]) -> Suspect | None:
    """Of ranks that are equally far: the one whose collective does not belong there, by what it did before."""
    wrong = [rank for rank in behind if reports[rank].departs and reports[rank].waiting]
    if len(wrong) != 1 or len(behind) == 1:
        return None
    report = reports[wrong[0]]
    if report.seconds < report.allowed:
        return None
    return _mismatch(reports, report.rank, "its last collective never came after those before it")


def _skipped(reports: Mapping[int, Report], rank: int) -> Suspect | None:
    """Return the rank if it has issued a collective where another one of its group has issued another kind."""
    mine = reports[rank]
    for other in reports.values():
        if other.group != mine.group:
            continue
        for place in mine.kinds.keys() & other.kinds.keys():
            if mine.kinds[place] != other.kinds[place]:
                seen = (
                    f"{place} is {mine.kinds[place]} on rank {rank},"
                    f" {other.kinds[place]} on rank {other.rank}"
                )
                return _mismatch(reports, rank, seen)
    return None


def _mismatch(reports: Mapping[int, Report], rank: int, seen: str) -> Suspect:
    mine = reports[rank]
    return Suspect(
        symptom=MISMATCHED,
        rank=rank,
        what=f"skipped or added a collective in {Phase(mine.phase).text} of step {mine.step}",
        evidence=(seen, *mine.collectives[-1:], *_waiting_lines(reports, rank)),
    )


def _hung(reports: Mapping[int, Report], rank: int, count: int) -> Suspect:
    report = reports[rank]
    more = f", as {count - 1} more ranks do" if count > 1 else ""
    frames = [f"its main thread: {frame}" for frame in reversed(report.frames[-3:])]
    return Suspect(
        symptom=HUNG,
        rank=rank,
        what=f"does not leave {Phase(report.phase).text} for {report.seconds:.0f} s{more}",
        evidence=(*frames[:1], *_waiting_lines(reports, rank), *frames[1:]),
    )


def _elsewhere(reports: Mapping[int, Report]) -> Suspect | None:
    """All wait, in different places: the one that others have passed is in a collective of its own."""
    first = min((report.step, report.phase) for report in reports.values())
    alone = [rank for rank, r in reports.items() if (r.step, r.phase) == first]
    report = reports[alone[0]]
    if len(alone) * 2 > len(reports) or not report.waiting or report.seconds < report.allowed:
        return None
    return Suspect(
        symptom=MISMATCHED,
        rank=report.rank,
        what=f"waits in a collective of {Phase(report.phase).text} that others did not enter",
        evidence=(*report.collectives[-1:], *_waiting_lines(reports, report.rank)),
    )


def _nobody(reports: Mapping[int, Report]) -> Suspect | None:
    """No rank is behind: all wait for the network, or all for the same thing outside of the run."""
    if any(report.seconds < report.allowed for report in reports.values()):
        return None
    first = reports[min(reports)]
    place = Phase(first.phase).text
    if all(report.waiting for report in reports.values()):
        what = f"all ranks wait in {place}: the network between them, not a rank"
    elif all(report.phase == first.phase for report in reports.values()):
        what = f"no rank leaves {place}: what they all use, not a rank"
    else:
        return None
    seen = [
        f"rank {r.rank} on {r.host}: {r.collectives[-1] if r.waiting else r.frame}"
        for r in reports.values()
    ]
    return Suspect(symptom=HUNG, rank=NO_RANK, what=what, evidence=tuple(seen[:4]))


def _waiting_lines(reports: Mapping[int, Report], rank: int) -> list[str]:
    """Return what the others do, by the first of them."""
    others = [report for report in reports.values() if report.rank != rank]
    if not others:
        return []
    first, mine = others[0], reports.get(rank)
    ahead = f", which rank {rank} has not issued" if mine and mine.issued < first.issued else ""
    last = first.collectives[-1] if first.waiting else Phase(first.phase).text
    more = f" and {len(others) - 1} more" if len(others) > 1 else ""
    return [f"rank {first.rank}{more} since {first.seconds:.0f} s in {last}{ahead}"]
