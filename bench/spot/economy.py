"""P1 on recorded traces: useful steps per dollar of the trainer and the spot policy, against torchrun with dcp.

Jobs are replayed tick by tick (replay.py) and must end within the time that `training.spot` plans for without a
deadline. An arm is a trainer and a policy. Ours is the trainer with `training.spot`; torchrun takes spot whenever
it is there, on-demand when nothing else ends in time, and saves synchronously at the trace's Young/Daly interval.
What a restart and a save cost each trainer was measured on 2026-11-21, by interrupting both on the same schedule;
`bench restart` and `bench stall` measure them apart. The optimum knows the whole trace and restarts and
saves in no time: it takes all spot time that it needs, and on-demand for the rest.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from bench.request import Notify, Request, Result
from bench.spot import measure as spot
from bench.spot.replay import SPOT_SHARE, AlwaysSpot, Choice, Job, JobResult, Ours, Policy, replay
from bench.spot.traces import Trace
from training.spot.decide import PATIENCE, Now, Place

SIZES = spot.SIZES
HOURS: Final = (6, 24)
COST_GOAL: Final = 1.10
LOST_GOAL: Final = 5.0
STEP_S: Final = 0.083
"""Of the model for which restarts and saves were measured, both arms."""
PROVISIONING_S: Final = (0.0, 180.0)
"""Seconds until new nodes can start a process, in addition to what was measured; 180 as in "Can't Be Late"."""


@dataclass(frozen=True, kw_only=True)
class Trainer:
    """What interruptions and saves cost a trainer, in seconds."""

    name: str
    restart_s: float
    """From an interruption to the first step after it, on a machine that is there."""
    save_s: float
    """That training waits for a save."""
    saves_on_notice: bool
    """Whether an interruption with notice loses no step; half of them have one."""

    def interval_s(self, between_losses_s: float) -> float:
        """Return the Young/Daly interval between saves."""
        return max(STEP_S, math.sqrt(2 * self.save_s * between_losses_s))

    def replayed_s(self, between_losses_s: float) -> float:
        """Return the mean work that a loss repeats."""
        return self.interval_s(between_losses_s) / 2 * (0.5 if self.saves_on_notice else 1.0)


OURS: Final = Trainer(name="ours", restart_s=3.3, save_s=0.007, saves_on_notice=True)
TORCHRUN: Final = Trainer(name="torchrun", restart_s=8.6, save_s=0.074, saves_on_notice=False)
"""Measured on 2026-11-21, two ranks of a small Llama on two cores."""


class _SpotThenOnDemand:
    """Spot whenever it is there, else wait; on-demand to the end once nothing else ends in time."""

    def __init__(self, job: Job) -> None:
        self._job, self._spot, self._final = job, AlwaysSpot(), False

    def choose(self, now: Now) -> Choice:
        """Return the place for the next tick."""
        left = self._job.end_s - now.elapsed_s
        needed = now.work_left_s + now.pending_s + 2 * self._job.restart_s
        self._final = self._final or left - now.step_s < needed
        return (Place.ON_DEMAND, "") if self._final else self._spot.choose(now)


@dataclass(frozen=True, kw_only=True)
class Earned:
    """One job on one trace by both arms."""

    trace: Trace
    provisioning_s: float
    optimum: float
    """Cost per second of useful work, in on-demand seconds of the gang."""
    ours: float
    torchrun: float
    lost_ratio: float
    """Seconds that torchrun loses per node loss, with its saves since the one before, over ours."""


def run(request: Request) -> Result:
    """Replay; good if any job fits."""
    found = measure(spot.traces(request), request.sizes["starts"], request.notify)
    return Result(text=section(found), good=bool(found))


def measure(traces: Sequence[Trace], starts: Sequence[float], notify: Notify) -> list[Earned]:
    """Replay all jobs that fit each trace."""
    found = []
    for number, trace in enumerate(traces):
        notify("replay", len(traces), number)
        for provisioning_s in PROVISIONING_S:
            found += [
                one
                for hours in HOURS
                for start in _starts(trace, hours, starts)
                if (one := _earned(trace, hours * 3600, start, provisioning_s))
            ]
    return found


def _starts(trace: Trace, hours: int, starts: Sequence[float]) -> Iterator[int]:
    """Yield starts after which the window fits."""
    room = trace.ticks - math.ceil(_window_s(hours * 3600) / trace.gap_s)
    if room >= 0:
        yield from sorted({int(room * share) for share in starts})


def _window_s(work_s: int) -> int:
    return round(PATIENCE * work_s)


def _earned(trace: Trace, work_s: int, start: int, provisioning_s: float) -> Earned | None:
    """Return what a job earns; None where an arm does no work at all."""
    between = _between_losses_s(trace)
    runs: dict[str, tuple[JobResult, float]] = {}
    for name, trainer, on in (("ours", OURS, "policy"), ("torchrun", TORCHRUN, "spot")):
        restart = trainer.restart_s + trainer.replayed_s(between) + provisioning_s
        stretch = 1 + trainer.save_s / trainer.interval_s(between)
        job = Job(
            work_s=round(work_s * stretch),
            restart_s=max(1, round(restart)),
            end_s=_window_s(work_s),
            deadline=False,
            start=start,
        )
        policy: Policy = Ours(trace, job) if on == "policy" else _SpotThenOnDemand(job)
        runs[name] = replay(trace, job, policy), stretch
    if any(one.work_s <= 0 for one, _ in runs.values()):
        return None
    paid = {name: one.cost * stretch / one.work_s for name, (one, stretch) in runs.items()}
    return Earned(
        trace=trace,
        provisioning_s=provisioning_s,
        optimum=_optimum(trace, work_s, start),
        ours=paid["ours"],
        torchrun=paid["torchrun"],
        lost_ratio=_lost(TORCHRUN, between, provisioning_s) / _lost(OURS, between, provisioning_s),
    )


def _lost(trainer: Trainer, between_s: float, provisioning_s: float) -> float:
    """Return the time that one loss costs, with the saves since the one before it."""
    saves = between_s / trainer.interval_s(between_s) * trainer.save_s
    return trainer.restart_s + provisioning_s + trainer.replayed_s(between_s) + saves


def _optimum(trace: Trace, work_s: int, start: int) -> float:
    """Return the optimum's cost per second of work, a bound for any policy."""
    ticks = range(start, min(trace.ticks, start + _window_s(work_s) // trace.gap_s))
    spot_s = sum(any(there[tick] for there in trace.zones.values()) for tick in ticks)
    on_spot = min(1.0, spot_s * trace.gap_s / work_s)
    return SPOT_SHARE * on_spot + 1 - on_spot


def _between_losses_s(trace: Trace) -> float:
    """Return the mean time with capacity before it is lost, over all zones; the whole trace without a loss."""
    ticks = sum(sum(there[: trace.ticks]) for there in trace.zones.values())
    losses = sum(
        before and not now
        for there in trace.zones.values()
        for before, now in pairwise(there[: trace.ticks])
    )
    return (ticks or trace.ticks) * trace.gap_s / max(1, losses)


def good(found: Sequence[Earned]) -> bool:
    """Whether both goals are met on the mean."""
    return bool(found) and _cost_ratio(found) <= COST_GOAL and _lost_ratio(found) >= LOST_GOAL


def _cost_ratio(found: Sequence[Earned]) -> float:
    return statistics.fmean(one.ours / one.optimum for one in found)


def _lost_ratio(found: Sequence[Earned]) -> float:
    return statistics.fmean(one.lost_ratio for one in found)


def section(found: Sequence[Earned]) -> str:
    """Return the Markdown: per time of provisioning, per trace, and the goals."""
    lines = [
        f"P1: useful steps per dollar, {len(found)} replayed jobs of {', '.join(map(str, HOURS))} h within"
        f" {PATIENCE:g} times that. A restart and a save as measured on 2026-11-21: ours"
        f" {OURS.restart_s:g} s and {OURS.save_s * 1000:g} ms, torchrun {TORCHRUN.restart_s:g} s and"
        f" {TORCHRUN.save_s * 1000:g} ms; steps of {STEP_S * 1000:g} ms; spot costs {SPOT_SHARE:g} of on-demand.",
        "",
        "| trace | provisioning, s | ours' cost per step over the optimum's | torchrun's"
        " | time lost, torchrun / ours |",
        "|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(one.trace.name for one in found):
        for seconds in PROVISIONING_S:
            own = [o for o in found if o.trace.name == name and o.provisioning_s == seconds]
            if own:
                lines.append(_row(name, seconds, own))
    by_time = [(s, [one for one in found if one.provisioning_s == s]) for s in PROVISIONING_S]
    lines += [_row("**all**", seconds, own) for seconds, own in by_time if own]
    lines.append("")
    lines += [line for seconds, own in by_time if own for line in _goals(own, seconds)]
    return "\n".join(lines) + "\n"


def _goals(found: Sequence[Earned], seconds: float) -> Iterator[str]:
    cost, lost = _cost_ratio(found), _lost_ratio(found)
    yield (
        f"- with {seconds:g} s of provisioning: cost {cost:.3f} of the optimum's (goal {COST_GOAL:g}:"
        f" {'met' if cost <= COST_GOAL else 'not met'}); torchrun loses {lost:.1f} times as much time (goal"
        f" {LOST_GOAL:g}: {'met' if lost >= LOST_GOAL else 'not met'})"
    )


def _row(name: str, seconds: float, own: Sequence[Earned]) -> str:
    mean = statistics.fmean
    cells = (
        *(name, f"{seconds:g}"),
        f"{mean(one.ours / one.optimum for one in own):.3f}",
        f"{mean(one.torchrun / one.optimum for one in own):.3f}",
        f"{_lost_ratio(own):.1f}",
    )
    return f"| {' | '.join(cells)} |"
