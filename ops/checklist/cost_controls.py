"""The row on what bounds the cost: quotas, priorities, queues."""

from __future__ import annotations

from infra.domain import naming
from ops import collect, objects
from ops.checklist.snapshot import PRIORITY_CLASSES, QUOTAS, Notes, Observed, some
from ops.objects import Json
from ops.ready.outcome import Row
from ops.ready.queueing import KUEUE
from ops.ready.stack_facts import Team

_REMEDY = "`pulumi up` makes it; was it deleted by hand?"


def cost_controls(observed: Observed) -> Row:
    """Each team has a quota and a queue, and there are priorities between them."""
    notes = Notes(
        area="Cost controls", check="Quotas, priority classes, and queueing are configured"
    )
    for missing in observed.unseen(QUOTAS, PRIORITY_CLASSES, collect.CLUSTER_QUEUES):
        notes.doubts(missing)
    for team in observed.teams:
        _quota(observed, notes, team)
        if observed.stack.scheduler == KUEUE:
            _queue(observed, notes, team)
    if observed.stack.scheduler != KUEUE:
        notes.good.append(f"queues: {observed.stack.scheduler}'s")
    ours = [
        f"{objects.name(one)} {one.get('value')}"
        for one in observed.cluster(PRIORITY_CLASSES)
        if objects.label(one, naming.PART_OF) == naming.PROJECT
    ]
    if ours:
        notes.good.append(f"priorities: {some(sorted(ours))}")
    elif PRIORITY_CLASSES.plural not in observed.hidden:
        notes.fails("there is no PriorityClass of the platform", _REMEDY)
    return notes.row()


def _quota(observed: Observed, notes: Notes, team: Team) -> None:
    if QUOTAS.plural in observed.hidden:
        return
    quotas = observed.team(QUOTAS, team)
    hard = {k: v for one in quotas for k, v in (one["spec"].get("hard") or {}).items()}
    if not quotas:
        notes.fails(f"{team.subject}: no ResourceQuota in {team.namespace}", _REMEDY)
    elif gpus := hard.get(f"requests.{naming.GPU}"):
        notes.good.append(f"{team.subject}: quota of {gpus} {naming.GPU}")
    else:
        notes.good.append(f"{team.subject}: quota of {', '.join(sorted(hard))}")


def _queue(observed: Observed, notes: Notes, team: Team) -> None:
    if collect.CLUSTER_QUEUES.plural in observed.hidden:
        return
    name = naming.cluster_queue(team.name)
    queue = next(
        (q for q in observed.cluster(collect.CLUSTER_QUEUES) if objects.name(q) == name), None
    )
    if queue is None:
        notes.fails(f"{team.subject}: clusterqueue/{name} is not there", _REMEDY)
    elif not objects.holds(queue, "Active"):
        told = objects.condition(queue, "Active").get("message") or "it is not active"
        notes.fails(f"clusterqueue/{name}: {told}", "python -m ops resume, or `pulumi up`")
    else:
        notes.good.append(f"clusterqueue/{name}: {_shares(queue)}")


def _shares(queue: Json) -> str:
    """GPUs that it owns, by flavor."""
    found = [
        f"{resource['nominalQuota']} in {flavor['name']}"
        for group in queue["spec"].get("resourceGroups") or []
        for flavor in group["flavors"]
        for resource in flavor["resources"]
        if resource["name"] == naming.GPU and resource["nominalQuota"] != "0"
    ]
    return f"owns GPUs: {', '.join(found)}" if found else "owns no GPUs, borrows"
