"""The rungs, and the climb: one after the other until one fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from ops.ready import capacity, homogeneity, probes, queueing, restore
from ops.ready.context import Climb
from ops.ready.outcome import Check, Found, Outcome, skipped


@dataclass(frozen=True, kw_only=True)
class Rung:
    """One rung."""

    name: str
    """For scripts; it never changes."""
    title: str
    """What it is about, for people."""
    look: Callable[[Climb], Iterator[Check]]
    starts: bool = True
    """It starts Jobs, or needs what a rung below found by starting some."""


RUNGS: Final = (
    Rung(
        name="capacity",
        title="the nodes are there, with their GPUs",
        look=capacity.look,
        starts=False,
    ),
    Rung(name="gpu-smoke", title="every GPU computes", look=probes.SMOKE),
    Rung(name="alike", title="a pool's nodes are alike", look=homogeneity.look),
    Rung(name="collective", title="a pool's nodes reach each other", look=probes.COLLECTIVE),
    Rung(name="single-node", title="one node trains", look=probes.SINGLE),
    Rung(name="multi-node", title="several nodes train together", look=probes.MULTI),
    Rung(name="restore", title="checkpoints come back", look=restore.look),
    Rung(name="queueing", title="what matters more goes first", look=queueing.look),
)


class Teller(Protocol):
    """Who is told how the climb goes."""

    def begins(self, number: int, rung: Rung) -> None:
        """A rung is looked at."""

    def found(self, check: Check) -> None:
        """Something was found on it."""


def climb(
    on: Climb, teller: Teller, *, until: str = RUNGS[-1].name, start: bool = True
) -> Iterator[Found]:
    """Every rung up to `until`; those above one that failed are not reached.

    Without `start`, rungs that start Jobs are skipped.
    """
    failed = False
    for number, rung in enumerate(_up_to(until), 1):
        if failed:
            yield Found(rung=rung.name, title=rung.title)
            continue
        teller.begins(number, rung)
        checks = []
        for check in _checks(on, rung, start):
            teller.found(check)
            checks.append(check)
        found = Found(rung=rung.name, title=rung.title, checks=tuple(checks))
        failed = found.outcome is Outcome.FAILED
        yield found


def _checks(on: Climb, rung: Rung, start: bool) -> Iterator[Check]:
    if rung.starts and not start:
        yield skipped("", "it starts Jobs, and --look starts nothing")
        return
    none = True
    for check in rung.look(on):
        none = False
        yield check
    if none:
        yield skipped("", "there is nothing that it could look at")


def _up_to(name: str) -> Sequence[Rung]:
    names = [rung.name for rung in RUNGS]
    return RUNGS[: names.index(name) + 1]
