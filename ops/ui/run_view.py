"""Everything that the page of one run shows."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from infra.domain import naming, prices
from infra.observability import series
from ops import collect, metrics, objects
from ops.cluster import Cluster
from ops.ledger import observe
from ops.ledger.model import Cause, Fact, Phase
from ops.ledger.report import price_dates
from ops.metrics import MetricsUnknownError, PrometheusClient
from ops.objects import Json
from ops.promql import Expression, select
from ops.runs import record, states, why_command
from ops.runs.details import Details, PodRow, details_of, leading_lines, leading_pod
from ops.runs.log_reader import main_container
from ops.runs.progress import Point
from ops.snapshot import Snapshot
from ops.symptoms import culprits, terminal_states
from ops.ui import curves, spending
from ops.ui.curves import Measured
from ops.ui.spending import Division, Spending

NOTICE: Final = "notice"
"""Cause of the end of an attempt that ended after a notice, of whatever kind."""
SAVES_SHOWN: Final = 8
_BETWEEN_MEASUREMENTS_S: Final = 60.0
"""Longest usual time between two scrapes, and between two points of a curve."""


@dataclass(frozen=True, kw_only=True)
class Span:
    """A part of the time axis of a run, in Unix seconds."""

    kind: str
    """`waiting`, `starting`, `training`, `interrupted`, `ending`, `unknown`."""
    start: float
    end: float
    text: str


@dataclass(frozen=True, kw_only=True)
class Rank:
    row: PodRow
    ranks: str
    """Those of its node."""
    first_rank: int
    """Of its group, in a run with groups."""
    gpu_busy: float | None
    """Mean utilization of its GPUs, 0 to 1; None: not measured."""
    named: str
    """For what the run has named one of these ranks; empty: for nothing."""


@dataclass(frozen=True, kw_only=True)
class RunView:
    details: Details
    why: Mapping[str, Any]
    """As in `run why --json`."""
    measured: Measured
    spans: Sequence[Span]
    division: Division | None
    division_note: str
    """How `division` is known, or why it is not."""
    spent: Spending | None
    ranks: Sequence[Rank]
    ranks_note: str
    previous: str
    """Run id of the version before it; empty without one."""
    changes: Mapping[str, Mapping[str, str]]
    """By key, the values of the previous version and of this one."""
    changes_gap: str
    now: float

    @property
    def ended(self) -> float | None:
        return objects.unix(self.details.summary.ended)

    @property
    def saves(self) -> Sequence[tuple[float, int]]:
        """The last checkpoints, newest first."""
        return list(reversed(self.measured.saves))[:SAVES_SHOWN]


def read_run_view(
    cluster: Cluster,
    known: Sequence[Json],
    run: Json,
    prometheus: PrometheusClient,
    recorded: Sequence[Fact],
    now: dt.datetime,
) -> RunView:
    """Read all of it. `known`: the runs that the caller may list; `recorded`: facts of a ledger's record."""
    taken = collect.take_snapshot(cluster, run, now, prometheus)
    details = details_of(cluster, taken, prometheus)
    measured = _measured(taken, details, prometheus)
    sight = observe.look(cluster, prometheus, now.timestamp(), taken.namespace)
    mine = [one for one in sight.workloads if objects.run_id_of(one) == taken.run_id]
    sight = dataclasses.replace(sight, workloads=mine)
    merged = {f.identity: f for f in (*recorded, *observe.facts(sight, recorded))}
    facts = spending.facts_of_run(list(merged.values()), taken.run_id)
    spent = spending.spending_by_run(facts, now.timestamp()).get(taken.run_id)
    recorded_phases = sorted((f for f in facts if isinstance(f, Phase)), key=lambda f: f.attempt)
    phases = _with_causes(measured.phases, taken) or recorded_phases
    division, note = _division(taken, details, phases, facts if recorded else (), spent)
    before = _previous(known, run)
    changes, changes_gap = _changes(cluster, details, before)
    ranks, ranks_note = _ranks(details, taken, prometheus)
    return RunView(
        details=details,
        why=why_command.values(taken),
        measured=measured,
        spans=_spans(taken, details, phases, measured),
        division=division,
        division_note=note,
        spent=spent,
        ranks=ranks,
        ranks_note=ranks_note,
        previous=objects.run_id_of(before) if before else "",
        changes=changes,
        changes_gap=changes_gap,
        now=now.timestamp(),
    )


def _measured(taken: Snapshot, details: Details, prometheus: PrometheusClient) -> Measured:
    """Return what a run measured: by its metrics, else by its log, with the reason."""
    now = taken.now.timestamp()
    start = objects.unix(details.summary.created) or now
    end = max(objects.unix(details.summary.ended) or now, start + 1)
    try:
        found = curves.from_prometheus(prometheus, taken.run_id, taken.namespace, start, end)
        if found.moments:
            return found
        why = f"{prometheus.place} has no series of this run"
    except MetricsUnknownError as error:
        why = f"{error}; {metrics.HOW_TO_PASS}"
    return curves.from_log(leading_lines(taken), f"no metrics: {why}")


def _with_causes(phases: Sequence[Phase], taken: Snapshot) -> list[Phase]:
    """Add why each attempt but the last ended, as far as the objects say so."""
    restarts = terminal_states.restarts(taken)
    failed = int(objects.status(taken.run).get("restartsCountTowardsMax") or 0)
    preempted = objects.condition(taken.workload, "Preempted").get("status") == "True"
    cause = Cause.UNKNOWN.value
    if restarts and not failed:
        cause = NOTICE
    elif restarts and failed >= len(phases) - 1:
        cause = Cause.FAILURE.value
    elif preempted and len(phases) == 2:
        cause = Cause.PREEMPTION.value
    last = len(phases) - 1
    return [
        dataclasses.replace(phase, ended=cause if index < last else "")
        for index, phase in enumerate(phases)
    ]


def _division(
    taken: Snapshot,
    details: Details,
    phases: Sequence[Phase],
    facts: Sequence[Fact],
    spent: Spending | None,
) -> tuple[Division | None, str]:
    now = taken.now.timestamp()
    if facts:
        found = spending.by_record(facts, taken.run_id, now)
        if found.parts:
            dates = price_dates(facts, taken.run_id)
            return found, "; ".join(
                filter(None, ("of its node-time, by the record of trainyard cost collect", dates))
            )
    if not phases:
        return None, (
            "not known: it needs the run's metrics or a record of trainyard cost collect"
            f" (--record); {metrics.HOW_TO_PASS}"
        )
    summary = details.summary
    price = spent.usd_per_hour if spent else None
    if price is None and spent and spent.usd and spent.hours and len(details.pods):
        price = spent.usd / spent.hours * len(details.pods)
    admitted = objects.unix(summary.admitted)
    start = min(admitted or phases[0].start, phases[0].start)
    end = objects.unix(summary.ended) or _seen_until(phases, now)
    found = spending.by_wall_clock(taken.run_id, phases, start, end, admitted, price)
    held = {pod.node for pod in details.pods}
    nodes = (objects.meta(node) for node in taken.nodes if objects.name(node) in held)
    known = sorted({prices.node_price_date(node.get("labels") or {}) for node in nodes} - {""})
    return found, "; ".join(
        (
            "of the time since its first start, by its metrics",
            "money at the price of the nodes that it holds or held last",
            *(f"node prices {one}" for one in known),
            "--record FOLDER counts each node",
        )
    )


def _seen_until(phases: Sequence[Phase], now: float) -> float:
    """Return now, or the last measured step if that is as recent as measurements are."""
    last = phases[-1].end
    return last if now - last < _BETWEEN_MEASUREMENTS_S else now


def _spans(
    taken: Snapshot, details: Details, phases: Sequence[Phase], measured: Measured
) -> list[Span]:
    began = _began(taken)
    if not phases:
        phases = phases_of_log(taken.run_id, details.summary.attempt, measured.moments)
        phases = [dataclasses.replace(p, start=max(p.start, began or p.start)) for p in phases]
    return spans_of(details, phases, taken.now.timestamp(), began)


def _began(taken: Snapshot) -> float | None:
    """Return when the main container of the leading pod started; None if it did not, or the pod is gone."""
    pod = leading_pod(taken)
    if pod is None:
        return None
    main = objects.container(pod, main_container(pod))
    return objects.unix(str(objects.state(main, "running", "terminated").get("startedAt") or ""))


def spans_of(
    details: Details, phases: Sequence[Phase], now: float, began: float | None = None
) -> list[Span]:
    """Return the time axis of a run, without gaps. Pure.

    `phases`: of all attempts, or of the last one only. `began`: when the leading pod of the last attempt started,
    in Unix seconds; None: not known.
    """
    one = details.summary
    created, admitted = objects.unix(one.created), objects.unix(one.admitted)
    end = objects.unix(one.ended) or (_seen_until(phases, now) if phases else now)
    if created is None:
        return []
    found: list[Span] = []

    def add(kind: str, start: float, stop: float, text: str) -> None:
        if stop > start:
            found.append(Span(kind=kind, start=start, end=stop, text=text))

    over = one.state in states.ENDED
    first = phases[0].start if phases else end
    if len(phases) > 1:
        add("starting", created, first, "waited and started")
    elif one.attempt > 1:
        last = min(began or first, first)
        add("unknown", created, last, "earlier attempts, of which no step is known")
        add("starting", last, first, "started: rendezvous, loading")
    elif not phases and one.state == states.QUEUED:
        add("waiting", created, end, "waits in its queue")
    else:
        known = admitted is not None and created <= admitted <= first
        ready = admitted if known and admitted else created
        started = first if phases or not (began or over) else max(ready, began or ready)
        add("waiting", created, ready, "waited in its queue")
        what = (
            "started: image, rendezvous, loading" if started == first else "started: nodes, image"
        )
        add("starting", ready, started, what if known else "waited and started")
        add("unknown", started, first, "ran; no step of it is known")
    for index, phase in enumerate(phases):
        steps = f" {phase.steps} steps from step {phase.first_step}" if phase.first_step else ""
        add("training", phase.start, phase.end, f"trained{steps}")
        if index + 1 < len(phases):
            why = f" ({phase.ended})" if phase.ended else ""
            again = phases[index + 1].start
            add("interrupted", phase.end, again, f"interrupted{why}, until it trained again")
    if phases:
        add(
            "ending" if over else "training",
            phases[-1].end,
            end,
            "from its last step to its end" if over else "since the last step that was measured",
        )
    return found


def phases_of_log(run_id: str, attempt: int, moments: Sequence[Point]) -> list[Phase]:
    """Return the training of the last attempt by the steps in its log, of which only the end may be known. Pure.

    `attempt`: from 1. The first one began with step 1; of a later one, whose first step is not known, as many
    steps are taken to be before the first line as between lines.
    """
    if not moments:
        return []
    first, last = moments[0], moments[-1]
    every = moments[1].step - first.step if len(moments) > 1 else 0.0
    before = first.step if attempt <= 1 else min(every, first.step)
    pace = (last.time - first.time) / (last.step - first.step) if last.step > first.step else 0.0
    phase = Phase(
        run=run_id,
        attempt=max(1, attempt),
        start=first.time - max(0.0, before) * pace,
        end=last.time,
        steps=int(last.step),
        first_step=1 if attempt <= 1 else 0,
    )
    return [phase]


def _ranks(
    details: Details, taken: Snapshot, prometheus: PrometheusClient
) -> tuple[list[Rank], str]:
    per_node = details.record.ranks_per_node
    busy: dict[str, float] = {}
    if taken.vitals is not None:
        try:
            mine = select(series.GPU_UTILIZATION, run_id=taken.run_id, namespace=taken.namespace)
            samples = prometheus.query(Expression("avg by (pod) ({})", mine))
            busy = {one.labels.get("pod", ""): one.value for one in samples}
        except MetricsUnknownError:
            busy = {}
    named = culprits.named(taken)
    found = []
    for row in details.pods:
        first = (row.rank or 0) * per_node
        found.append(
            Rank(
                row=row,
                ranks=str(first) if per_node == 1 else f"{first} to {first + per_node - 1}",
                first_rank=first,
                gpu_busy=busy.get(row.name),
                named=", ".join(
                    f"{one.symptom} (rank {one.rank})"
                    for one in named
                    if first <= one.rank < first + per_node
                ),
            )
        )
    return found, _ranks_note(found, taken)


def _ranks_note(ranks: Sequence[Rank], taken: Snapshot) -> str:
    waits = taken.vitals.collective if taken.vitals else None
    known = {rank.ranks: rank.gpu_busy for rank in ranks if rank.gpu_busy is not None}
    parts = []
    if waits is not None:
        parts.append(
            f"Rank 0 waits {waits:.0%} of its step time for the others"
            + ("; another rank is slower" if waits > 0.2 else "; no other rank holds it up")
        )
    if len(known) > 1:
        lowest, highest = min(known, key=lambda r: known[r]), max(known, key=lambda r: known[r])
        low, high = known[lowest], known[highest]
        if high - low > 0.1:
            parts.append(
                f"The GPUs of ranks {lowest} are busy {low:.0%}, of ranks {highest} {high:.0%}:"
                " look at the one that differs from the rest"
            )
        else:
            parts.append("The GPUs of all ranks are equally busy")
    if parts:
        return ". ".join(parts)
    return "Which rank is slow is not known without metrics; all ranks of a step wait for the slowest one."


def _previous(known: Sequence[Json], run: Json) -> Json | None:
    """Return the newest run of the same name and namespace that is older than this one."""
    created = str(objects.meta(run).get("creationTimestamp"))
    mine = [
        one
        for one in known
        if objects.label(one, naming.RUN) == objects.label(run, naming.RUN)
        and objects.meta(one).get("namespace") == objects.meta(run).get("namespace")
        and str(objects.meta(one).get("creationTimestamp")) < created
    ]
    return next(iter(objects.newest_first(mine)), None)


def _changes(
    cluster: Cluster, details: Details, before: Json | None
) -> tuple[Mapping[str, Mapping[str, str]], str]:
    if before is None:
        return {}, ""
    old, new = record.read_record(cluster, before), details.record
    if old.gap or new.gap:
        return {}, old.gap or new.gap
    return (
        record.differences(
            {
                objects.run_id_of(before): {**old.configuration, **old.lineage},
                details.summary.run_id: {**new.configuration, **new.lineage},
            }
        ),
        "",
    )
