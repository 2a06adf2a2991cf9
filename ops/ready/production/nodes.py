"""Production checks on GPU nodes: they exist, and only GPU workloads run on them."""

from __future__ import annotations

from infra.domain import naming
from ops import collect, objects
from ops.objects import Json
from ops.ready.capacity import gpu_count
from ops.ready.outcome import Check
from ops.ready.production.snapshot import RowBuilder, StackSnapshot, abbreviate
from ops.ready.stack_facts import Pool
from ops.snapshot import pluralize

_BLOCKING_EFFECTS = ("NoSchedule", "NoExecute")


def gpu_nodes(snapshot: StackSnapshot) -> Check:
    """Check the GPU pools of the stack and their nodes."""
    notes = RowBuilder(area="GPU nodes", check="Dedicated GPU node pool exists")
    pools = [pool for pool in snapshot.stack.pools if pool.gpu]
    if not pools:
        notes.add_failure("the stack has no GPU training pool", "add one to `nodePools`")
    for missing in snapshot.unreadable(collect.NODES):
        notes.add_unknown(missing)
    for pool in pools:
        nodes = snapshot.nodes(pool)
        found = f"pool {pool.name}: {pluralize(len(nodes), 'node')} of {pool.min} to {pool.max}"
        types = ", ".join(pool.instance_types)
        if not nodes and pool.min and collect.NODES.plural not in snapshot.hidden:
            notes.add_failure(found, "run trainyard stack ready --until capacity for the cause")
        else:
            each = f"{pool.gpus_per_node} {naming.GPU} each"
            notes.good.append(f"{found} ({pool.nodes}), {types}, {each}")
    return notes.row()


def labels_and_taints(snapshot: StackSnapshot) -> Check:
    """Check that every GPU node has its pool's labels and a GPU taint."""
    notes = RowBuilder(area="Labels and taints", check="GPU nodes are labeled and tainted")
    for missing in snapshot.unreadable(collect.NODES):
        notes.add_unknown(missing)
    pools = [pool for pool in snapshot.stack.pools if pool.gpu]
    for pool in pools:
        nodes = snapshot.nodes(pool)
        wrong = [
            (objects.name(node), lack)
            for node in nodes
            if (lack := _missing_label_or_taint(node, pool))
        ]
        for name, lack in wrong:
            notes.add_failure(
                f"node/{name}: {lack}", "run `pulumi up`; nodes get labels and taints at creation"
            )
        if nodes and not wrong:
            taints = sorted({_pool_taint(node, pool) for node in nodes})
            notes.good.append(
                f"pool {pool.name}: {pluralize(len(nodes), 'node')} with its labels and the taint"
                f" {', '.join(taints)}"
            )
    known = {pool.name for pool in pools}
    strays = [
        objects.name(node)
        for node in snapshot.cluster(collect.NODES)
        if gpu_count(node) and objects.label(node, naming.POOL) not in known
    ]
    if strays:
        notes.add_failure(
            f"GPU nodes outside any pool: {abbreviate(strays)}",
            "add their pool to `nodePools`, or keep runs away from them",
        )
    if not notes.good and not notes.bad:
        notes.add_unknown("there are no GPU nodes now")
    return notes.row()


def _expected_labels(pool: Pool) -> dict[str, str]:
    return {
        naming.ACCELERATOR: "nvidia",
        naming.WORKLOAD_TYPE: naming.GPU_TRAINING,
        naming.CAPACITY: pool.capacity,
    }


def _missing_label_or_taint(node: Json, pool: Pool) -> str:
    """Return which label or taint a node lacks; empty if none."""
    for key, value in _expected_labels(pool).items():
        if objects.label(node, key) != value:
            return f"label {key} is {objects.label(node, key) or 'missing'}, not {value}"
    wanted = pool.taint or f"with the value {naming.GPU_TRAINING}"
    return "" if _pool_taint(node, pool) else f"no taint {wanted}"


def _pool_taint(node: Json, pool: Pool) -> str:
    """Return the pool's taint as KEY=VALUE:EFFECT; empty if the node lacks it."""
    for taint in (node.get("spec") or {}).get("taints") or []:
        value = taint.get("value", "")
        found = f"{taint['key']}={value}"
        ours = found == pool.taint if pool.taint else value == naming.GPU_TRAINING
        if ours and taint["effect"] in _BLOCKING_EFFECTS:
            return f"{found}:{taint['effect']}"
    return ""
