"""Jobs on every trace with every policy, and what they cost against the optimum."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bench.request import Notify, Request, RequestError, Result
from bench.spot import synthetic
from bench.spot.optimum import cheapest
from bench.spot.replay import (
    SPOT_SHARE,
    AlwaysOnDemand,
    AlwaysSpot,
    Job,
    JobResult,
    Ours,
    Policy,
    UniformProgress,
    replay,
)
from bench.spot.traces import Trace, TraceError, load
from training.spot.decide import PATIENCE

HOURS: Final = (6, 24, 48)
RATIOS: Final = (1.15, 1.5, 2.0)
"""Deadline by length of the job."""
RESTARTS_S: Final = (180, 720)
"""As in "Can't Be Late"."""
SIZES: dict[str, dict[str, Any]] = {
    "small": {"starts": (0.2, 0.6), "nodes": 0},
    "full": {"starts": (0.0, 0.2, 0.4, 0.6, 0.8, 1.0), "nodes": 0},
}
"""`starts`: as shares of the part of a trace at which a job still fits; `nodes`: 0 for those of the trace."""
GOAL: Final = 1.10
HOW: Final = (
    "exact dynamic programming backwards over the ticks of the trace, over work left and capacity held, with "
    "knowledge of the whole trace and without rounding"
)
POLICIES: Final = ("always-spot", "always-on-demand", "uniform-progress", "ours")


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """A job on a trace."""

    trace: Trace
    job: Job
    optimum: float
    results: dict[str, JobResult]

    def ratio(self, policy: str) -> float | None:
        """Cost over the optimum's; None: the job did not end in time."""
        found = self.results[policy]
        return None if found.finished_s is None else found.cost / self.optimum


def run(request: Request) -> Result:
    """Replay; good if our policy missed no deadline."""
    found = measure(traces(request), request.sizes["starts"], request.notify)
    return Result(text=section(found), good=in_time(found), values=as_json(found))


def traces(request: Request) -> list[Trace]:
    """Return the recorded traces, or synthetic ones where none are named. Raises RequestError."""
    if not request.traces:
        return synthetic.traces(request.seed)
    try:
        return load(request.traces, request.sizes["nodes"] or None)
    except (TraceError, OSError) as error:
        raise RequestError(f"--traces: {error}") from None


def measure(traces: Sequence[Trace], starts: Sequence[float], notify: Notify) -> list[Replayed]:
    """Replay all jobs that fit each trace."""
    found = []
    for number, trace in enumerate(traces):
        notify("replay", len(traces), number)
        found += [_replayed(trace, job) for job in jobs(trace, starts)]
    return found


def jobs(trace: Trace, starts: Sequence[float]) -> Iterator[Job]:
    """Return jobs with deadlines, then batch jobs, of every length that fits the trace."""
    for hours, ratio, restart in itertools.product(HOURS, (*RATIOS, None), RESTARTS_S):
        work = hours * 3600
        end = math.ceil((work + restart) * PATIENCE) if ratio is None else round(work * ratio)
        room = trace.ticks - math.ceil(end / trace.gap_s)
        if room < 0:
            continue
        for start in sorted({int(room * share) for share in starts}):
            yield Job(
                work_s=work, restart_s=restart, end_s=end, deadline=ratio is not None, start=start
            )


def _replayed(trace: Trace, job: Job) -> Replayed:
    policies: list[Policy] = [
        AlwaysSpot(),
        AlwaysOnDemand(),
        UniformProgress(job),
        Ours(trace, job),
    ]
    results = {n: replay(trace, job, p) for n, p in zip(POLICIES, policies, strict=True)}
    return Replayed(trace=trace, job=job, optimum=cheapest(trace, job), results=results)


def summary(found: Sequence[Replayed], policy: str) -> dict[str, Any]:
    """Return ratios of the jobs that ended in time, missed deadlines, and work per cost over all jobs."""
    ratios = sorted(r for one in found if (r := one.ratio(policy)) is not None)
    results = [one.results[policy] for one in found]
    cost = sum(r.cost for r in results)
    return {
        "jobs": len(found),
        "missed": sum(r.finished_s is None for r in results),
        "mean": round(statistics.mean(ratios), 3) if ratios else None,
        "p95": round(ratios[math.ceil(0.95 * len(ratios)) - 1], 3) if ratios else None,
        "worst": round(ratios[-1], 3) if ratios else None,
        "cost_over_optimum": round(cost / sum(one.optimum for one in found), 3) if found else None,
        "work_per_on_demand_hour": round(sum(r.work_s for r in results) / cost, 3)
        if cost
        else None,
    }


def as_json(found: Sequence[Replayed]) -> dict[str, Any]:
    """Return everything as one JSON object; money in on-demand hours of the gang."""
    return {
        "optimum": HOW,
        "spot_share_of_on_demand_price": SPOT_SHARE,
        "goal": {"mean_ratio": GOAL, "missed": 0},
        "met": is_met(found),
        "policies": {p: summary(found, p) for p in POLICIES},
        "jobs": [
            {
                "trace": one.trace.name,
                "nodes": one.trace.nodes,
                "zones": list(one.trace.zones),
                "kind": "deadline" if one.job.deadline else "batch",
                "start_s": one.job.start * one.trace.gap_s,
                "work_s": one.job.work_s,
                "deadline_s": one.job.end_s if one.job.deadline else None,
                "restart_s": one.job.restart_s,
                "optimum": round(one.optimum / 3600, 4),
                "policies": {
                    name: {
                        "cost": round(r.cost / 3600, 4),
                        "met": r.finished_s is not None,
                        "finished_s": r.finished_s,
                        "losses": r.losses,
                    }
                    for name, r in one.results.items()
                },
            }
            for one in found
        ],
    }


def is_met(found: Sequence[Replayed]) -> bool:
    """Whether the goal is met: the mean ratio, and no missed deadline."""
    ours = summary(found, "ours")
    return ours["mean"] is not None and ours["mean"] <= GOAL and ours["missed"] == 0


def in_time(found: Sequence[Replayed]) -> bool:
    """Whether our policy missed no deadline."""
    return all(one.results["ours"].finished_s is not None for one in found)


def section(found: Sequence[Replayed]) -> str:
    """Return the Markdown: per policy, per trace, and per kind of job."""
    head = "| | jobs | late | mean | p95 | worst | work per USD |"
    ours = summary(found, "ours")
    uniform = summary(found, "uniform-progress")
    lines = [
        f"{len(found)} replayed jobs: {', '.join(map(str, HOURS))} h of work, deadlines of "
        f"{', '.join(map(str, RATIOS))} times that and batch jobs of at most {PATIENCE:g} times, restarts of "
        f"{', '.join(map(str, RESTARTS_S))} s; spot costs {SPOT_SHARE:g} of on-demand. Cost relative to the "
        f"optimum: {HOW}. A late job has no ratio. Work per USD is relative to on-demand without restarts.",
        "",
        head,
        "|---|---|---|---|---|---|---|",
        *(_row(f"**{p}**", found, p) for p in POLICIES),
        "",
        "| ours by trace and job | jobs | late | mean | p95 | worst | work per USD |",
        "|---|---|---|---|---|---|---|",
        *(_row(name, group, "ours") for name, group in _groups(found)),
    ]
    if ours["mean"] is not None and uniform["mean"] is not None and uniform["mean"] > 1:
        closed = (uniform["mean"] - ours["mean"]) / (uniform["mean"] - 1)
        lines += [
            "",
            f"Ours closes {closed:.0%} of Uniform Progress's gap to the optimum (mean ratio {uniform['mean']} to "
            f"{ours['mean']}). Goal of a mean of {GOAL:g} without a late job: "
            f"{'met' if is_met(found) else 'not met'}.",
        ]
    return "\n".join(lines)


def _groups(found: Sequence[Replayed]) -> Iterator[tuple[str, list[Replayed]]]:
    names = dict.fromkeys(one.trace.name for one in found)
    yield from ((n, [one for one in found if one.trace.name == n]) for n in names)
    for ratio in RATIOS:
        yield (
            f"deadline {ratio} times the work",
            [o for o in found if o.job.deadline and o.job.end_s == round(o.job.work_s * ratio)],
        )
    yield "batch", [one for one in found if not one.job.deadline]


def _row(name: str, found: Sequence[Replayed], policy: str) -> str:
    about = summary(found, policy)
    cells = [
        "-" if about[k] is None else str(about[k])
        for k in ("jobs", "missed", "mean", "p95", "worst", "work_per_on_demand_hour")
    ]
    return f"| {name} | {' | '.join(cells)} |"
