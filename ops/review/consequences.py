"""What a change does, from the steps of its preview: pure functions."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from infra.domain import prices
from ops.review import money
from ops.review.impacts import Consequence, Impact, Place, effects, impacts, place_of
from ops.review.steps import Change, Finding, Preview, Step

STATEFUL: Final[Mapping[str, str]] = {
    "aws:ebs/volume:Volume": "EBS volume",
    "aws:fsx/lustreFileSystem:LustreFileSystem": "FSx for Lustre file system",
    "aws:efs/fileSystem:FileSystem": "EFS file system",
    "aws:efs/accessPoint:AccessPoint": "EFS access point",
    "aws:s3/bucket:Bucket": "S3 bucket",
    "aws:s3/bucketV2:BucketV2": "S3 bucket",
    "aws:kms/key:Key": "KMS key",
    "aws:cloudwatch/logGroup:LogGroup": "log group",
    "aws:rds/instance:Instance": "database",
    "aws:rds/cluster:Cluster": "database",
    "aws:dynamodb/table:Table": "database",
    "aws:eks/cluster:Cluster": "cluster",
    "aws:ecr/repository:Repository": "image repository",
    "kubernetes:core/v1:Namespace": "namespace, with all objects in it",
    "kubernetes:core/v1:PersistentVolume": "volume",
    "kubernetes:core/v1:PersistentVolumeClaim": "volume claim",
    "kubernetes:apps/v1:StatefulSet": "stateful set",
    "kubernetes:apiextensions.k8s.io/v1:CustomResourceDefinition": "CRD, with all its objects",
}
"""What loses data or objects when it is replaced or deleted, by Pulumi type."""

RUN: Final = "trainyard:training:TrainingJob"
_RUN_ID: Final = re.compile(r"(?P<name>.+-v[0-9]+)-[0-9a-f]{8}")
_QUEUES: Final = ("ClusterQueue", "Cohort")
_LIMITS: Final = ("nominalQuota", "borrowingLimit", "lendingLimit")

_DOES: Final[Mapping[Change, str]] = {
    Change.CREATE: "added",
    Change.IMPORT: "imported",
    Change.UPDATE: "changed",
    Change.SAME: "changed",
    Change.REPLACE: "replaced",
    Change.DELETE: "deleted",
}


@dataclass(frozen=True, kw_only=True)
class Review:
    """What a change does. Money in USD; None: the price of something that changes is not known."""

    stack: str
    steps: Mapping[str, int]
    """Numbers of resources by change, without those that stay the same."""
    usd_per_hour_idle: float | None
    usd_per_hour_at_max: float | None
    prices: str
    """Date of the prices of nodes, and what of them is only remembered."""
    unpriced: tuple[str, ...]
    """Resources that change and whose price is not known."""
    consequences: tuple[Consequence, ...]
    edited_runs: tuple[str, ...]
    """Runs that are edited in place, as NAME-vVERSION: stopped, and started under another id."""
    findings: tuple[Finding, ...]
    impacts: tuple[Impact, ...] = ()
    """Pools, namespaces and queues that the change takes from runs."""

    @property
    def usd_per_month_idle(self) -> float | None:
        """USD per month while nothing runs."""
        hour = self.usd_per_hour_idle
        return None if hour is None else hour * prices.HOURS_PER_MONTH

    @property
    def passes(self) -> bool:
        """Whether no policy is violated, and no run is edited in place."""
        return not self.edited_runs and not any(one.fails for one in self.findings)


def review(preview: Preview) -> Review:
    changed = [step for step in preview.steps if step.change is not Change.SAME]
    nodes = money.pools(preview)
    priced = [step for step in preview.steps if step.change is not Change.SAME or step.urn in nodes]
    each = [(step, money.difference(step, nodes.get(step.urn), preview.region)) for step in priced]
    counts: dict[str, int] = {}
    for step in changed:
        counts[step.change.value] = counts.get(step.change.value, 0) + 1
    types = {name for both in nodes.values() for one in both if one for name in one.types}
    runs = list(_runs(changed))
    taken = impacts(preview.steps)
    indirect = effects(taken, places(preview.steps))
    return Review(
        stack=preview.stack,
        steps=counts,
        usd_per_hour_idle=prices.total(cost.idle for _, cost in each),
        usd_per_hour_at_max=prices.total(cost.at_max for _, cost in each),
        prices=prices.dated(preview.region, types),
        unpriced=tuple(s.name for s, cost in each if cost.idle is None or cost.at_max is None),
        consequences=(
            *_pools(priced, nodes),
            *_quotas(changed),
            *_data(changed),
            *_protection(preview.steps),
            *_with_indirect(runs, indirect),
        ),
        edited_runs=_edited(runs),
        findings=preview.findings,
        impacts=taken,
    )


def with_places(review: Review, found: Iterable[Place], sizes: Mapping[str, int]) -> Review:
    """Return the review with the indirect consequences for these runs. `sizes`: nodes by pool now."""
    direct = [one for one in review.consequences if not one.indirect]
    known = _with_indirect(direct, effects(review.impacts, found, sizes))
    return dataclasses.replace(review, consequences=tuple(known))


def _with_indirect(
    direct: Sequence[Consequence], indirect: Iterable[Consequence]
) -> Iterable[Consequence]:
    """Add effects on runs that the change does not itself start, stop or restart."""
    named = {one.name for one in direct if one.what == "run"}
    return (*direct, *(one for one in indirect if one.name not in named))


def places(steps: Iterable[Step]) -> list[Place]:
    """Return the runs that stay in the stack, and where their objects may be placed."""
    found: dict[str, Place] = {}
    for step in steps:
        run = _run_id(step)
        if not run or step.kind == RUN or not step.old or step.change is Change.DELETE:
            continue
        one, known = place_of(run, step.old), found.get(run)
        found[run] = Place(
            run=run,
            namespace=one.namespace or (known.namespace if known else ""),
            queue=one.queue or (known.queue if known else ""),
            pools=tuple(sorted({*one.pools, *(known.pools if known else ())})),
        )
    return list(found.values())


def _pools(
    steps: Iterable[Step], nodes: Mapping[str, tuple[money.Pool | None, money.Pool | None]]
) -> Iterable[Consequence]:
    for step in steps:
        old, new = nodes.get(step.urn, (None, None))
        one = new or old
        if one is None or (old == new and step.change is not Change.REPLACE):
            continue
        detail = f"{old} -> {new}" if old and new and old != new else str(one)
        detail += _resized(step)
        yield Consequence(what="pool", name=one.name, does=_DOES[step.change], detail=detail)


def _resized(step: Step) -> str:
    """Return the size that an update of a managed node group sets, which its limits never come without."""
    if step.kind != money.NODE_GROUP or step.change is not Change.UPDATE:
        return ""
    old, new = (inputs.get("scalingConfig") or {} for inputs in (step.old or {}, step.new or {}))
    if all(old.get(key) == new.get(key) for key in ("minSize", "maxSize")):
        return ""
    size = int(new.get("desiredSize") or 0)
    return f"; also sets {size} nodes, the size in the state: `pulumi refresh` of the group first"


def _quotas(steps: Iterable[Step]) -> Iterable[Consequence]:
    for step in steps:
        old, new = _limits(step.kind, step.old), _limits(step.kind, step.new)
        changes = [
            f"{key} {old.get(key, 'none')} -> {new.get(key, 'none')}"
            for key in sorted({*old, *new})
            if old.get(key) != new.get(key)
        ]
        if changes:
            name = _object_name(step)
            does = _DOES[step.change]
            yield Consequence(what="quota", name=name, does=does, detail="; ".join(changes))


def _limits(kind: str, inputs: Mapping[str, Any]) -> dict[str, str]:
    """Return the amounts of a queue, a cohort or a ResourceQuota by what they limit."""
    spec = inputs.get("spec") or {}
    if kind == "kubernetes:core/v1:ResourceQuota":
        return {str(key): str(amount) for key, amount in (spec.get("hard") or {}).items()}
    if not kind.startswith("kubernetes:kueue.x-k8s.io/") or kind.rsplit(":", 1)[1] not in _QUEUES:
        return {}
    return {
        f"{flavor['name']} {resource['name']}"
        + ("" if limit == "nominalQuota" else f" {limit}"): str(resource[limit])
        for group in spec.get("resourceGroups") or ()
        for flavor in group.get("flavors") or ()
        for resource in flavor.get("resources") or ()
        for limit in _LIMITS
        if resource.get(limit) is not None
    }


def _data(steps: Iterable[Step]) -> Iterable[Consequence]:
    for step in steps:
        what = STATEFUL.get(step.kind)
        if what is None or step.change not in (Change.REPLACE, Change.DELETE):
            continue
        because = f"; {', '.join(step.reasons)} changes" if step.reasons else ""
        kept = "; the stack drops it, it is not deleted" if step.retained else ""
        refused = "; protected: the update refuses this" if step.was_protected else ""
        detail = f"{what}{because}{kept}{refused}"
        yield Consequence(
            what="data", name=_object_name(step), does=_DOES[step.change], detail=detail
        )


def _protection(steps: Iterable[Step]) -> Iterable[Consequence]:
    for step in steps:
        if step.change is not Change.DELETE and step.was_protected and not step.is_protected:
            yield Consequence(
                what="protection", name=_object_name(step), does="removed", detail=step.kind
            )


def _runs(steps: Sequence[Step]) -> Iterable[Consequence]:
    """Return runs that start or stop, and those of which an object is replaced, once each."""
    does = {Change.CREATE: "started", Change.DELETE: "stopped"}
    whole = {
        step.name: does[step.change] for step in steps if step.kind == RUN if step.change in does
    }
    for name, what in whole.items():
        yield Consequence(what="run", name=name, does=what)
    restarted: set[str] = set()
    for step in steps:
        run = _run_id(step)
        if step.change is Change.REPLACE and run and run not in whole and run not in restarted:
            restarted.add(run)
            yield Consequence(what="run", name=run, does="restarted", detail=step.kind)


def _run_id(step: Step) -> str:
    """Return the run that an object belongs to; empty if it is none of a run."""
    if RUN not in step.ancestors:
        return ""
    found = _RUN_ID.match(step.name)
    return found.group(0) if found else step.name


def _edited(runs: Iterable[Consequence]) -> tuple[str, ...]:
    """Return the versions of runs that stop under one id and start under another."""
    names: dict[str, set[str]] = {"started": set(), "stopped": set(), "restarted": set()}
    for one in runs:
        found = _RUN_ID.fullmatch(one.name)
        if found:
            names[one.does].add(found["name"])
    return tuple(sorted(names["started"] & names["stopped"]))


def _object_name(step: Step) -> str:
    """Return the name of an object with its namespace; of a cloud resource that in the program."""
    meta = (step.new or step.old).get("metadata") or {}
    name, namespace = meta.get("name"), meta.get("namespace")
    if not name:
        return step.name
    return f"{namespace}/{name}" if namespace else str(name)
