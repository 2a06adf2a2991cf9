"""Production check on cost controls: quotas, priorities, queues."""

from __future__ import annotations

from infra.domain import naming
from ops import collect, objects
from ops.objects import Json
from ops.ready.production.snapshot import (
    PRIORITY_CLASSES,
    QUOTAS,
    RowBuilder,
    StackSnapshot,
    abbreviate,
)
from ops.ready.queueing import KUEUE
from ops.ready.results import Check
from ops.ready.stack_facts import Team

_REMEDY = "`pulumi up` creates it; it may have been deleted manually"


def cost_controls(snapshot: StackSnapshot) -> Check:
    notes = snapshot.row(
        "Cost controls",
        "Quotas, priority classes, and queueing are configured",
        QUOTAS,
        PRIORITY_CLASSES,
        collect.CLUSTER_QUEUES,
    )
    for team in snapshot.teams:
        _check_quota(snapshot, notes, team)
        if snapshot.stack.scheduler == KUEUE:
            _check_queue(snapshot, notes, team)
    if snapshot.stack.scheduler != KUEUE:
        notes.good.append(f"queues of {snapshot.stack.scheduler}")
    ours = [
        f"{objects.name(one)} {one.get('value')}"
        for one in snapshot.cluster(PRIORITY_CLASSES)
        if objects.label(one, naming.PART_OF) == naming.PROJECT
    ]
    if ours:
        notes.good.append(f"priorities: {abbreviate(sorted(ours))}")
    elif PRIORITY_CLASSES.plural not in snapshot.hidden:
        notes.add_failure("no PriorityClass of the platform found", _REMEDY)
    return notes.row()


def _check_quota(snapshot: StackSnapshot, notes: RowBuilder, team: Team) -> None:
    if QUOTAS.plural in snapshot.hidden:
        return
    quotas = snapshot.team(QUOTAS, team)
    hard = {k: v for one in quotas for k, v in (one["spec"].get("hard") or {}).items()}
    if not quotas:
        notes.add_failure(f"{team.subject}: no ResourceQuota in {team.namespace}", _REMEDY)
    elif gpus := hard.get(f"requests.{naming.GPU}"):
        notes.good.append(f"{team.subject}: quota of {gpus} {naming.GPU}")
    else:
        notes.good.append(f"{team.subject}: quota of {', '.join(sorted(hard))}")


def _check_queue(snapshot: StackSnapshot, notes: RowBuilder, team: Team) -> None:
    if collect.CLUSTER_QUEUES.plural in snapshot.hidden:
        return
    name = naming.cluster_queue(team.name)
    queue = next(
        (q for q in snapshot.cluster(collect.CLUSTER_QUEUES) if objects.name(q) == name), None
    )
    if queue is None:
        notes.add_failure(f"{team.subject}: clusterqueue/{name} not found", _REMEDY)
    elif not objects.condition_is_true(queue, "Active"):
        reason = objects.condition(queue, "Active").get("message") or "it is not active"
        notes.add_failure(
            f"clusterqueue/{name}: {reason}", "trainyard stack resume, or `pulumi up`"
        )
    else:
        notes.good.append(f"clusterqueue/{name}: {_owned_gpus(queue)}")


def _owned_gpus(queue: Json) -> str:
    """Return its nominal GPU quota by flavor."""
    found = [
        f"{resource['nominalQuota']} in {flavor['name']}"
        for group in queue["spec"].get("resourceGroups") or []
        for flavor in group["flavors"]
        for resource in flavor["resources"]
        if resource["name"] == naming.GPU and resource["nominalQuota"] != "0"
    ]
    return f"GPU quota: {', '.join(found)}" if found else "no GPU quota of its own, borrows"
