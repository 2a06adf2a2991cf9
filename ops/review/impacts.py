"""What a change takes from runs that it leaves as they are: nodes, a namespace, a queue. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from infra.domain import naming
from ops.review import money
from ops.review.money import TEMPLATE, tagged_pool
from ops.review.steps import Change, Step

NODE: Final = "kubernetes:core/v1:Node"
NAMESPACE: Final = "kubernetes:core/v1:Namespace"
NODE_CLASS: Final = "EC2NodeClass"

_ROLLED_BY: Final = ("releaseVersion", "version", "launchTemplate")
"""Inputs of a managed node group of which EKS replaces the nodes, with the runs on them."""
_NO_NEW_VERSION: Final = ("name", "tags", "updateDefaultVersion")
"""Inputs of a launch template that are no part of its versions."""
_ENDS: Final = (Change.DELETE, Change.REPLACE)
_STOP_POLICIES: Final = {"Hold": "held", "HoldAndDrain": "stopped"}


@dataclass(frozen=True, kw_only=True)
class Impact:
    """Something that runs hold, and that the change takes."""

    what: str
    """`pool`, `namespace` or `queue`."""
    name: str
    """Of a queue NAMESPACE/NAME."""
    why: str
    """What happens to it, such as `deleted`."""
    does: str
    """Of the runs: `restarted`, `stopped`, or `held` (they go on, but are not admitted again)."""
    left: int = 0
    """Nodes of a pool that stay, at most."""
    nodes: frozenset[str] | None = None
    """Names of the nodes that go; None: of a cloud, which chooses them."""
    gone: bool = False
    """Whether the pool is not there afterwards."""

    def __str__(self) -> str:
        return f"{self.what} {self.name} {self.why}"


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a run is."""

    run: str
    namespace: str
    queue: str
    """Name of its LocalQueue; empty: none."""
    pools: tuple[str, ...]
    """That it may be placed on; empty: any."""
    nodes: frozenset[tuple[str, str]] | None = None
    """Its pools and nodes now; None: not known."""


@dataclass(frozen=True, kw_only=True)
class Consequence:
    """One thing that the change does."""

    what: str
    """`pool`, `quota`, `data`, `protection` or `run`."""
    name: str
    does: str
    """`added`, `changed`, `replaced`, `deleted`; of runs `started`, `stopped`, `restarted`, `held`."""
    detail: str = ""
    certain: bool = True
    """False: of a run that may hold nodes which the change takes, or may not."""
    indirect: bool = False
    """Whether the change takes what a run holds, and leaves the run itself as it is."""

    @property
    def happens(self) -> str:
        """What it does, as a sentence has it: `restarted`, or `may be restarted`."""
        return self.does if self.certain else f"may be {self.does}"


def effects(
    impacts: Sequence[Impact], places: Iterable[Place], sizes: Mapping[str, int] | None = None
) -> Iterator[Consequence]:
    """Return what happens to each run that is reached, the worst of it. `sizes`: nodes by pool now, if known."""
    gone = {one.name for one in impacts if one.what == "pool" and one.gone}
    order = ("stopped", "restarted", "held")
    for place in places:
        found = [
            (one, certain)
            for one in impacts
            if (certain := _reaches(one, place, sizes)) is not None
        ]
        if not found:
            continue
        homeless = bool(place.pools) and gone.issuperset(place.pools)
        does = min((one.does for one, _ in found), key=order.index)
        if homeless and does == "restarted":
            does = "stopped"
        yield Consequence(
            what="run",
            name=place.run,
            does=does,
            detail="; ".join(str(one) for one, _ in found)
            + ("; no pool is left for it" if homeless else ""),
            certain=any(certain for _, certain in found),
            indirect=True,
        )


def _reaches(impact: Impact, place: Place, sizes: Mapping[str, int] | None) -> bool | None:
    """Return whether it is certain that the run is reached; None: it is not reached."""
    if impact.what == "namespace":
        return True if place.namespace == impact.name else None
    if impact.what == "queue":
        return True if f"{place.namespace}/{place.queue}" == impact.name else None
    if impact.nodes is None and sizes is not None and sizes.get(impact.name, 0) <= impact.left:
        return None
    if place.nodes is None:
        return False if not place.pools or impact.name in place.pools else None
    mine = {node for pool, node in place.nodes if pool == impact.name}
    if impact.nodes is not None:
        return True if mine & impact.nodes else None
    return not impact.left if mine else None


def impacts(steps: Sequence[Step]) -> tuple[Impact, ...]:
    """Return what the steps take from runs, by docs/operate.md: what drains, and what does not."""
    return (
        *_managed(steps),
        *_karpenter(steps),
        *_simulated(steps),
        *_namespaces(steps),
        *_queues(steps),
    )


def _there(steps: Iterable[Step], kind: str) -> set[str]:
    found = (money.pool(step.kind, step.new) for step in steps if step.kind == kind)
    return {one.name for one in found if one}


def _managed(steps: Sequence[Step]) -> Iterator[Impact]:
    """Managed node groups: EKS drains their nodes, with the runs on them."""
    there = _there(steps, money.NODE_GROUP)
    templates = {
        name: keys
        for step in steps
        if step.kind == TEMPLATE and step.change is not Change.SAME
        for name in [tagged_pool(step.old)]
        if (keys := _changed(step, _NO_NEW_VERSION))
    }
    for step in steps:
        old = money.pool(step.kind, step.old) if step.kind == money.NODE_GROUP else None
        if old is None:
            continue
        new = money.pool(step.kind, step.new)
        gone = old.name not in there
        if step.change in _ENDS:
            why = "deleted" if step.change is Change.DELETE else _replaced(step)
            yield Impact(what="pool", name=old.name, why=why, does="restarted", gone=gone)
        elif new is not None and step.change is not Change.CREATE:
            rolled = [key for key in _ROLLED_BY if step.old.get(key) != step.new.get(key)]
            if rolled or old.name in templates:
                keys = rolled or [f"launchTemplate.{key}" for key in templates[old.name]]
                why = f"rolled: {', '.join(keys)} changes"
                yield Impact(what="pool", name=old.name, why=why, does="restarted")
            elif new.max is not None and old.max is not None and new.max < old.max:
                why = f"shrunk from {old.max} to {new.max} nodes"
                yield Impact(what="pool", name=old.name, why=why, does="restarted", left=new.max)


def _replaced(step: Step) -> str:
    return f"replaced: {', '.join(step.reasons)} changes" if step.reasons else "replaced"


def _changed(step: Step, ignored: Sequence[str]) -> list[str]:
    """Return the inputs that differ; none if it is new, all if it is replaced."""
    if not step.old or not step.new:
        return []
    keys = sorted({*step.old, *step.new} - {*ignored})
    found = [key for key in keys if step.old.get(key) != step.new.get(key)]
    return found or (["name"] if step.change is Change.REPLACE else [])


def _karpenter(steps: Sequence[Step]) -> Iterator[Impact]:
    """Karpenter's pools: a deleted one drains its nodes; drift does where no disruption budget forbids it.

    A lower limit only keeps it from starting nodes.
    """
    there = _there(steps, money.NODE_POOL)
    classes = {
        str((step.old.get("metadata") or {}).get("name"))
        for step in steps
        if step.kind.endswith(f":{NODE_CLASS}")
        and step.change is not Change.SAME
        and _spec(step.old) != _spec(step.new)
    }
    for step in steps:
        old = money.pool(step.kind, step.old) if step.kind == money.NODE_POOL else None
        if old is None:
            continue
        if step.change in _ENDS:
            why = "deleted" if step.change is Change.DELETE else _replaced(step)
            gone = old.name not in there
            yield Impact(what="pool", name=old.name, why=why, does="restarted", gone=gone)
            continue
        was, now = _spec(step.old), _spec(step.new)
        uses = ((was.get("template") or {}).get("spec") or {}).get("nodeClassRef") or {}
        if was.get("template") != now.get("template") or uses.get("name") in classes:
            if step.new and not _drift_waits(now):
                yield Impact(what="pool", name=old.name, why="rolled by drift", does="restarted")
        elif int(now.get("replicas") or 0) < int(was.get("replicas") or 0):
            left = int(now.get("replicas") or 0)
            why = f"shrunk from {was['replicas']} to {left} nodes"
            yield Impact(what="pool", name=old.name, why=why, does="restarted", left=left)


def _spec(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = inputs.get("spec") or {}
    return found


def _drift_waits(pool: Mapping[str, Any]) -> bool:
    """Whether a disruption budget keeps Karpenter from replacing nodes that drifted."""
    budgets = (pool.get("disruption") or {}).get("budgets") or ()
    return any(
        str(one.get("nodes")) in ("0", "0%")
        and "Drifted" in (one.get("reasons") or ["Drifted"])
        and not one.get("schedule")
        for one in budgets
    )


def _simulated(steps: Sequence[Step]) -> Iterator[Impact]:
    """Simulated nodes are objects of the stack: the preview names those that go."""
    before: dict[str, set[str]] = {}
    after: dict[str, set[str]] = {}
    gone: dict[str, set[str]] = {}
    for step in steps:
        if step.kind != NODE:
            continue
        for inputs, found in ((step.old, before), (step.new, after)):
            meta = inputs.get("metadata") or {}
            pool = (meta.get("labels") or {}).get(naming.POOL)
            if pool:
                found.setdefault(pool, set()).add(str(meta.get("name")))
                if found is before and step.change in _ENDS:
                    gone.setdefault(pool, set()).add(str(meta.get("name")))
    for pool, names in gone.items():
        left = after.get(pool, set())
        sizes = f"from {len(before[pool])} to {len(left)} nodes"
        why = "deleted" if not left else f"shrunk {sizes}" if names - left else "replaced"
        yield Impact(
            what="pool",
            name=pool,
            why=why,
            does="restarted",
            left=len(left),
            nodes=frozenset(names),
            gone=not left,
        )


def _namespaces(steps: Iterable[Step]) -> Iterator[Impact]:
    """Namespaces that are deleted with everything in them; those that are protected or retained are not."""
    for step in steps:
        ends = step.kind == NAMESPACE and step.change in _ENDS
        if ends and not step.was_protected and not step.retained:
            name = str((step.old.get("metadata") or {}).get("name"))
            why = "deleted" if step.change is Change.DELETE else "replaced"
            yield Impact(what="namespace", name=name, why=why, does="stopped")


def _queues(steps: Sequence[Step]) -> Iterator[Impact]:
    """Queues that are deleted or stopped, as LocalQueues. Kueue lets admitted runs of a deleted one go on."""
    kueue = [step for step in steps if step.kind.startswith("kubernetes:kueue.x-k8s.io/")]
    behind: dict[str, tuple[str, str]] = {}
    for step in kueue:
        if step.kind.endswith(":ClusterQueue") and (found := _queue_change(step)):
            behind[str((step.old.get("metadata") or {}).get("name"))] = found
    for step in kueue:
        if not step.kind.endswith(":LocalQueue") or not step.old:
            continue
        found = _queue_change(step) or behind.get(str(_spec(step.old).get("clusterQueue")))
        if found:
            meta = step.old.get("metadata") or {}
            name = f"{meta.get('namespace')}/{meta.get('name')}"
            yield Impact(what="queue", name=name, why=found[0], does=found[1])


def _queue_change(step: Step) -> tuple[str, str] | None:
    """Return what happens to a queue, and what that does to its runs."""
    if step.change is Change.DELETE:
        return "deleted", "held"
    policy = str(_spec(step.new).get("stopPolicy") or "")
    if policy != _spec(step.old).get("stopPolicy") and policy in _STOP_POLICIES and step.old:
        return f"stopped ({policy})", _STOP_POLICIES[policy]
    return None


def place_of(run: str, manifest: Mapping[str, Any]) -> Place:
    """Return where an object of a run may be placed."""
    meta = manifest.get("metadata") or {}
    return Place(
        run=run,
        namespace=str(meta.get("namespace") or ""),
        queue=str((meta.get("labels") or {}).get(naming.QUEUE_NAME) or ""),
        pools=eligible_pools(manifest),
    )


def eligible_pools(manifest: Any) -> tuple[str, ...]:
    """Return the pools that node selectors and affinities anywhere in a manifest name; empty: any."""
    return tuple(sorted(set(_pools(manifest))))


def _pools(part: Any) -> Iterator[str]:
    if isinstance(part, Mapping):
        if part.get("key") == naming.POOL and part.get("operator") == "In":
            yield from (str(one) for one in part.get("values") or ())
        selector = part.get("nodeSelector")
        if isinstance(selector, Mapping) and naming.POOL in selector:
            yield str(selector[naming.POOL])
        for value in part.values():
            yield from _pools(value)
    elif isinstance(part, Sequence) and not isinstance(part, str):
        for value in part:
            yield from _pools(value)
