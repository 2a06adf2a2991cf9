"""Replay one job on a trace with a policy.

At each tick a policy sees which zones have capacity now, then holds a zone, on-demand nodes or nothing for the
tick. Whatever it starts first spends the restart without progress; nodes are paid per second, a lost zone's not
from its tick on. Money is in on-demand node-seconds of the gang: on-demand is 1 per second.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from bench.spot.traces import Trace
from training.spot.decide import Gang, Now, Place, Prices, decide
from training.spot.rates import HALF_LIFE_S, INTERRUPTIONS_PER_NODE_HOUR, Outages, outages

SPOT_SHARE: Final = 0.3
"""Spot price as a share of on-demand: the seeds and SkyPilot's traces name discounts of 60 to 80 %."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job that starts at a tick of a trace."""

    work_s: int
    restart_s: int
    end_s: int
    """Latest end, in seconds from the start; also the end of the window for a job without a deadline."""
    deadline: bool
    start: int

    @property
    def gang(self) -> Gang:
        """What the policies know of the job."""
        return Gang(
            work_s=self.work_s,
            restart_s=self.restart_s,
            deadline_s=self.end_s if self.deadline else None,
        )


@dataclass(frozen=True, kw_only=True)
class JobResult:
    """A replayed job."""

    cost: float
    finished_s: float | None
    """Seconds from the start; None: not within the window."""
    losses: int
    work_s: float
    """Seconds of work done."""


Choice = tuple[Place, str]


class Policy(Protocol):
    """Chooses a place per tick; made anew for each job."""

    def choose(self, now: Now) -> Choice:
        """Return the place for the next tick."""


class AlwaysOnDemand:
    """On-demand from the start."""

    def choose(self, now: Now) -> Choice:
        """Return on-demand."""
        return Place.ON_DEMAND, ""


class AlwaysSpot:
    """Spot whenever it is available, else wait."""

    def choose(self, now: Now) -> Choice:
        """Keep the zone, or take one that is available."""
        zone = _kept_or_any(now)
        return (Place.SPOT, zone) if zone else (Place.WAIT, "")


class UniformProgress:
    """The policy of "Can't Be Late" (Wu et al., NSDI 24), written from the paper's four rules.

    Spot whenever it is available; on-demand where progress is behind a straight line to the deadline; from there
    back to spot only with progress of two restarts ahead; on-demand to the end when slack is two restarts.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._final = False

    def choose(self, now: Now) -> Choice:
        """Return the place by the four rules."""
        job, zone = self._job, _kept_or_any(now)
        left = job.end_s - now.elapsed_s
        held = now.place is Place.SPOT and now.pool in now.available
        short = left - now.step_s < now.work_left_s + now.pending_s + 2 * job.restart_s
        if self._final or (short and not held):
            self._final = True
            return Place.ON_DEMAND, ""
        done, pace = job.work_s - now.work_left_s, job.work_s / job.end_s
        if now.place is Place.ON_DEMAND and done < (now.elapsed_s + 2 * job.restart_s) * pace:
            return Place.ON_DEMAND, ""
        if zone:
            return Place.SPOT, zone
        return (Place.ON_DEMAND if done < now.elapsed_s * pace else Place.WAIT), ""


class Observed:
    """Losses and returns of one zone's capacity, or of all zones' together, as seen in a trace.

    The estimate is the mean of a Gamma posterior whose prior weighs as much as one event; older observations
    fade with `HALF_LIFE_S`.
    """

    def __init__(self, nodes: int) -> None:
        self._prior = outages(nodes * INTERRUPTIONS_PER_NODE_HOUR)
        self._there_s = self._missing_s = 0.0
        self._losses = self._returns = 0.0
        self._was: bool | None = None

    def add(self, there: bool, seconds: float) -> None:
        """Add an interval, in order of time, in which the gang's capacity was there or was not."""
        fade = math.exp(-math.log(2) * seconds / HALF_LIFE_S)
        self._there_s = self._there_s * fade + (seconds if there else 0)
        self._missing_s = self._missing_s * fade + (0 if there else seconds)
        self._losses = self._losses * fade + (self._was is True and not there)
        self._returns = self._returns * fade + (self._was is False and there)
        self._was = there

    def rates(self) -> Outages:
        return Outages(
            lost=(1 + self._losses) / (1 / self._prior.lost + self._there_s),
            back=(1 + self._returns) / (1 / self._prior.back + self._missing_s),
        )


class Ours:
    """`training.spot`, with rates learnt from the trace before this moment."""

    def __init__(self, trace: Trace, job: Job, share: float = SPOT_SHARE) -> None:
        self._gang, self._gap = job.gang, trace.gap_s
        self._prices = Prices(on_demand=1.0, spot=dict.fromkeys(trace.zones, share))
        self._zones = {zone: Observed(trace.nodes) for zone in trace.zones}
        self._any = Observed(trace.nodes)
        for tick in range(job.start):
            self._see(frozenset(z for z, there in trace.zones.items() if there[tick]))

    def choose(self, now: Now) -> Choice:
        """Learn from this tick, then decide."""
        self._see(now.available)
        rates = {zone: seen.rates() for zone, seen in self._zones.items()}
        found = decide(self._gang, now, self._prices, rates, self._any.rates())
        return found.place, found.pool

    def _see(self, available: frozenset[str]) -> None:
        for zone, seen in self._zones.items():
            seen.add(zone in available, self._gap)
        self._any.add(bool(available), self._gap)


def _kept_or_any(now: Now) -> str:
    return now.pool if now.pool in now.available else min(now.available, default="")


def replay(trace: Trace, job: Job, policy: Policy, share: float = SPOT_SHARE) -> JobResult:
    """Return what the job costs with this policy."""
    left, pending, cost, losses = float(job.work_s), 0.0, 0.0, 0
    held: Choice = (Place.WAIT, "")
    for index, available in enumerate(_ticks(trace, job)):
        if held[0] is Place.SPOT and held[1] not in available:
            held, pending, losses = (Place.WAIT, ""), 0.0, losses + 1
        elapsed = index * trace.gap_s
        now = Now(
            elapsed_s=elapsed,
            work_left_s=left,
            pending_s=pending,
            place=held[0],
            pool=held[1],
            available=available,
            step_s=trace.gap_s,
        )
        chosen = policy.choose(now)
        if chosen[0] is Place.SPOT and chosen[1] not in available:
            raise AssertionError(f"{chosen[1]} has no capacity at tick {index}")
        if chosen != held:
            held, pending = chosen, 0.0 if chosen[0] is Place.WAIT else float(job.restart_s)
        if held[0] is Place.WAIT:
            continue
        price = share if held[0] is Place.SPOT else 1.0
        paid = min(float(trace.gap_s), pending + left, job.end_s - elapsed)
        restarting = min(pending, paid)
        pending, left, cost = pending - restarting, left - (paid - restarting), cost + price * paid
        if left <= 0:
            return JobResult(cost=cost, finished_s=elapsed + paid, losses=losses, work_s=job.work_s)
    return JobResult(cost=cost, finished_s=None, losses=losses, work_s=job.work_s - left)


def _ticks(trace: Trace, job: Job) -> Iterable[frozenset[str]]:
    for tick in range(job.start, job.start + -(-job.end_s // trace.gap_s)):
        yield frozenset(z for z, there in trace.zones.items() if tick < len(there) and there[tick])
