"""Put decisions about budgets into force, on the ClusterQueues and Workloads of a live cluster.

What is in force is written on the team's ClusterQueue before anything is stopped, so that a restarted controller,
on any machine, continues and later undoes exactly this. A queue that somebody else has stopped is left as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import pydantic

from infra.domain import naming
from infra.observability import series
from ops import objects
from ops.budgets.decision import Budget, Level, Override, Reading, used
from ops.cluster import Cluster, ClusterError, ConflictError
from ops.collect import CLUSTER_QUEUES, WORKLOADS
from ops.drain import OPEN, queues
from ops.exposition import Sample
from ops.ledger.model import Account, Amount, Book
from ops.objects import Json
from ops.snapshot import pluralize

STATE: Final = f"{naming.DOMAIN}/budget"
"""Annotation of a ClusterQueue: what is in force, as JSON."""
OVERRIDE: Final = f"{naming.DOMAIN}/budget-override"
"""Annotation of a ClusterQueue: permission to spend more, as JSON."""
HOLD: Final = "Hold"

Print = Callable[[str], None]
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class State:
    """What is in force for a team."""

    month: str = ""
    level: Level = Level.NONE
    held: bool = False
    """Whether the controller stopped the queue."""
    stopped: tuple[str, ...] = ()
    """`NAMESPACE/WORKLOAD` of runs that the controller deactivated."""


_STATES: Final = pydantic.TypeAdapter(State)
_OVERRIDES: Final = pydantic.TypeAdapter(Override)


def read_state(queue: Json) -> State:
    """Return what is in force; nothing if the annotation is missing or not the controller's."""
    return _annotation(queue, STATE, _STATES) or State()


def read_override(queue: Json) -> Override | None:
    """Return the permission to spend more; None without a valid one."""
    return _annotation(queue, OVERRIDE, _OVERRIDES)


def _annotation(queue: Json, key: str, form: pydantic.TypeAdapter[T]) -> T | None:
    try:
        return form.validate_json((objects.meta(queue).get("annotations") or {}).get(key, ""))
    except pydantic.ValidationError:
        return None


def queue_of(cluster: Cluster, team: str) -> Json:
    """Return the team's ClusterQueue. Raises ClusterError if there is none."""
    return queues(cluster, team)[0]


def apply(
    cluster: Cluster,
    queue: Json,
    wanted: Level,
    month: str,
    drainable: Collection[str],
    show: Print,
) -> State:
    """Put a level into force for a month; return what is in force. Idempotent.

    `drainable`: `NAMESPACE/WORKLOAD` of runs that a drain stops. Raises ConflictError if the queue has changed
    since it was read; the next look decides again.
    """
    before = read_state(queue)
    if wanted < Level.HOLD and before.level >= Level.HOLD:
        return _release(cluster, queue, before, wanted, month, show)
    policy = queue["spec"].get("stopPolicy", OPEN)
    held = before.held or (wanted >= Level.HOLD and policy == OPEN)
    stopped = before.stopped
    if wanted is Level.DRAIN:
        stopped = tuple(sorted({*stopped, *drainable}))
    after = State(month=month, level=wanted, held=held, stopped=stopped)
    stop = wanted >= Level.HOLD and policy == OPEN
    if after != before or stop:
        _write(cluster, queue, after, HOLD if stop else None)
        show(f"{_team(queue)}: {wanted.name.lower()}" + (", queue held" if stop else ""))
    for name in drainable if wanted is Level.DRAIN else ():
        _activate(cluster, name, active=False)
        show(f"{_team(queue)}: {name} saves and stops")
    return after


def _release(
    cluster: Cluster, queue: Json, before: State, wanted: Level, month: str, show: Print
) -> State:
    """Undo what the controller did: runs first, so that a crash in between loses none."""
    for name in before.stopped:
        _activate(cluster, name, active=True)
    ours = before.held and queue["spec"].get("stopPolicy") == HOLD
    after = State(month=month, level=wanted)
    _write(cluster, queue, after, OPEN if ours else None)
    runs = pluralize(len(before.stopped), "run")
    show(f"{_team(queue)}: open again, {runs} may be admitted again")
    return after


def _write(cluster: Cluster, queue: Json, state: State, policy: str | None) -> None:
    text = _STATES.dump_json(state).decode()
    change: Json = {
        "metadata": {
            "annotations": {STATE: text},
            "resourceVersion": objects.meta(queue).get("resourceVersion"),
        }
    }
    if policy is not None:
        change["spec"] = {"stopPolicy": policy}
    cluster.patch(CLUSTER_QUEUES, objects.name(queue), change)


def _activate(cluster: Cluster, workload: str, *, active: bool) -> None:
    """Let a run be admitted, or stop it; nothing if it no longer exists."""
    namespace, _, name = workload.partition("/")
    if cluster.get(WORKLOADS, name, namespace) is not None:
        cluster.patch(WORKLOADS, name, {"spec": {"active": active}}, namespace)


def drainable(
    queue: Json, workloads: Sequence[Json], spot_flavors: Collection[str], usual_priority: int
) -> tuple[str, ...]:
    """Return the admitted runs of a queue that hold spot nodes only or have a low priority. Pure."""
    found = []
    for workload in workloads:
        admission = objects.status(workload).get("admission") or {}
        spec = workload.get("spec") or {}
        if admission.get("clusterQueue") != objects.name(queue) or spec.get("active") is False:
            continue
        if objects.condition_is_true(workload, "Finished"):
            continue
        flavors = {
            flavor
            for one in admission.get("podSetAssignments") or []
            for flavor in (one.get("flavors") or {}).values()
        }
        on_spot = bool(flavors) and flavors <= set(spot_flavors)
        if on_spot or int(spec.get("priority") or 0) < usual_priority:
            found.append(objects.full_name(workload))
    return tuple(sorted(found))


def override(cluster: Cluster, team: str, granted: Override | None) -> None:
    """Write a permission on the team's queue; None: withdraw it. The API server's audit log records who did."""
    text = None if granted is None else _OVERRIDES.dump_json(granted).decode()
    queue = queue_of(cluster, team)
    try:
        cluster.patch(
            CLUSTER_QUEUES, objects.name(queue), {"metadata": {"annotations": {OVERRIDE: text}}}
        )
    except ConflictError:
        raise ClusterError(
            f"{objects.name(queue)}: changed meanwhile; run the command again"
        ) from None


def _team(queue: Json) -> str:
    return f"team {objects.label(queue, naming.TEAM)}"


OVERRIDDEN: Final = "overridden"
STATES: Final[Mapping[Level, str]] = {
    Level.NONE: "ok",
    Level.WARN: "warned",
    Level.HOLD: "held",
    Level.DRAIN: "drained",
}
"""Values of the label `state`, besides OVERRIDDEN."""


@dataclass(frozen=True, kw_only=True)
class TeamState:
    """What was last decided about a team."""

    budget: Budget
    reading: Reading
    level: Level
    override: Override | None = None
    """The permission to spend more, while it holds."""
    decided: float | None = None
    """When a complete reading was last decided on, in Unix seconds; None: not since the start."""

    @property
    def state(self) -> str:
        return OVERRIDDEN if self.override else STATES[self.level]


def samples(book: Book, teams: Iterable[TeamState], recorded: float) -> Iterator[Sample]:
    """Yield all metrics. `book`: of this month. `recorded`: when the record was written, in Unix seconds."""
    yield from _ledger(book)
    for team in teams:
        yield from _of_team(team)
    yield series.COSTS_RECORDED, {}, recorded


def _ledger(book: Book) -> Iterator[Sample]:
    """Yield the month's amounts; an account's run, attempt and cause would make too many series."""
    sums: dict[tuple[str, ...], Amount] = {}
    for account, amount in book.items():
        sums.setdefault(_key(account), Amount()).merge(amount)
    for key, amount in sorted(sums.items()):
        labels = dict(zip(series.LEDGER_SECONDS.labels, key, strict=True))
        yield series.LEDGER_SECONDS, labels, amount.seconds
        yield series.LEDGER_USD, labels, amount.usd
        yield series.LEDGER_UNPRICED, labels, amount.unpriced


def _key(account: Account) -> tuple[str, ...]:
    return account.bucket.value, account.team, account.pool, account.purchase


def _of_team(one: TeamState) -> Iterator[Sample]:
    team = {"team": one.budget.team}
    for limit, value in (
        (series.BUDGET_USD, one.budget.usd_per_month),
        (series.BUDGET_GPU_HOURS, one.budget.gpu_hours_per_month),
        (series.BUDGET_OVERRIDE_END, one.override.until if one.override else None),
        (series.BUDGET_DECIDED, one.decided),
    ):
        if value is not None:
            yield limit, team, float(value)
    yield series.BUDGET_SPENT_USD, team, one.reading.usd
    yield series.BUDGET_SPENT_GPU_HOURS, team, one.reading.gpu_hours
    yield series.BUDGET_RATE, team, one.reading.usd_per_hour
    yield series.BUDGET_USED, team, used(one.budget, one.reading)
    for state in (*STATES.values(), OVERRIDDEN):
        yield series.BUDGET_STATE, team | {"state": state}, float(state == one.state)
