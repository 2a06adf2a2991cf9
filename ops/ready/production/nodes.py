"""Production checks of GPU nodes and of what runs on them: labels, requests, digests, records."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

from infra.domain import naming
from ops import collect, objects
from ops.collect import CONFIG_MAPS
from ops.objects import Json
from ops.ready.jobs import CRON_JOBS
from ops.ready.pools import gpu_count
from ops.ready.production.snapshot import StackSnapshot, abbreviate, containers
from ops.ready.results import Check
from ops.ready.stack_facts import Pool
from ops.snapshot import pluralize
from trainyard import contract

_BLOCKING_EFFECTS = ("NoSchedule", "NoExecute")


def gpu_nodes(snapshot: StackSnapshot) -> Check:
    notes = snapshot.row("GPU nodes", "Dedicated GPU node pool exists", collect.NODES)
    pools = [pool for pool in snapshot.stack.pools if pool.gpu]
    if not pools:
        notes.add_failure("the stack has no GPU training pool", "add one to `nodePools`")
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
    notes = snapshot.row("Labels and taints", "GPU nodes are labeled and tainted", collect.NODES)
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


def _missing_label_or_taint(node: Json, pool: Pool) -> str:
    """Return which label or taint a node lacks; empty if none."""
    labels = {
        naming.ACCELERATOR: "nvidia",
        naming.WORKLOAD_TYPE: naming.GPU_TRAINING,
        naming.CAPACITY: pool.capacity,
    }
    for key, value in labels.items():
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


RECORDS_MAX = 20
"""Number of newest runs whose records are read."""
_DIGEST = "@sha256:"


def gpu_scheduling(snapshot: StackSnapshot) -> Check:
    notes = snapshot.row(
        "GPU scheduling", f"Pods request {naming.GPU} correctly", *collect.RUN_KINDS, collect.PODS
    )
    runs = snapshot.runs()
    for item in [*runs, *snapshot.templates, *snapshot.all_teams(collect.PODS)]:
        for container in containers(item):
            if problem := _gpu_problem(container):
                notes.add_failure(
                    f"{objects.reference(item)}: container {container['name']}: {problem}",
                    "launch it from a run file: launchers set requests and limits",
                )
    asking = [item for item in [*runs, *snapshot.templates] if _gpu_limit(item)]
    idle = [item for item in runs if not _gpu_limit(item) and list(containers(item))]
    for item in idle:
        notes.add_failure(
            f"{objects.reference(item)}: no container requests {naming.GPU}",
            "launch it from a run file: launchers set requests and limits",
        )
    if asking:
        kinds = Counter(str(item["kind"]) for item in asking)
        counts = ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items()))
        notes.good.append(f"{counts}: requests equal limits, whole GPUs")
    elif not notes.bad:
        notes.add_unknown("nothing requests GPUs yet", "launch a run")
    return notes.row()


def _gpu_problem(container: Json) -> str:
    resources = container.get("resources") or {}
    asked = (resources.get("requests") or {}).get(naming.GPU)
    limit = (resources.get("limits") or {}).get(naming.GPU)
    if asked is None and limit is None:
        return ""
    if limit is None or (asked is not None and str(asked) != str(limit)):
        return f"it requests {asked} {naming.GPU} with a limit of {limit}"
    return ""


def _gpu_limit(item: Json) -> int:
    return sum(
        int(((one.get("resources") or {}).get("limits") or {}).get(naming.GPU, 0))
        for one in containers(item)
    )


def images(snapshot: StackSnapshot) -> Check:
    notes = snapshot.row(
        "Container image", "Image versions are pinned", *collect.RUN_KINDS, CRON_JOBS, collect.PODS
    )
    used: Counter[str] = Counter()
    for item in _team_items(snapshot):
        for container in containers(item):
            image = str(container.get("image", ""))
            if _DIGEST in image:
                used[image] += 1
            else:
                notes.add_failure(
                    f"{objects.reference(item)}: container {container['name']} runs {image}",
                    "pin it by digest, REPOSITORY@sha256:DIGEST, under `images` in the stack file",
                )
    for image, number in used.most_common():
        repository, _, digest = image.partition(_DIGEST)
        notes.good.append(
            f"{repository}{_DIGEST}{digest[:12]}: {pluralize(number, 'container')} of it"
        )
    if not used and not notes.bad:
        notes.add_unknown("no team workload runs yet", "launch a run")
    return notes.row()


def _team_items(snapshot: StackSnapshot) -> Iterator[Json]:
    yield from snapshot.runs()
    yield from snapshot.templates
    for kind in (CRON_JOBS, collect.PODS):
        yield from snapshot.all_teams(kind)


def run_metadata(snapshot: StackSnapshot) -> Check:
    notes = snapshot.row(
        "Run metadata",
        "Run ID, image digest, config hash, and dataset version are logged",
        CONFIG_MAPS,
    )
    records = {objects.name(one): one for one in snapshot.all_teams(CONFIG_MAPS)}
    # The groups of a run have one record.
    runs = list(
        {objects.label(run, naming.RUN_ID): run for run in reversed(snapshot.runs())}.values()
    )
    described = []
    for run in runs[: -RECORDS_MAX - 1 : -1]:
        run_id = objects.label(run, naming.RUN_ID)
        try:
            described.append(_describe_record(run_id, records))
        except ValueError as error:
            notes.add_failure(
                f"{objects.reference(run)}: {error}",
                "launch it from a run file, which creates the record",
            )
    if described:
        notes.good.extend(described[:3])
        notes.good.append(f"complete records of the newest runs: {len(described)}")
    elif not notes.bad:
        notes.add_unknown("there are no runs yet", "launch a run")
    return notes.row()


def _describe_record(run_id: str, records: dict[str, Json]) -> str:
    """Return a run's record in one line. Raises ValueError if a value is missing."""
    found = records.get(run_id)
    if found is None:
        raise ValueError(f"its record configmap/{run_id} is not found")
    record = json.loads((found.get("data") or {}).get(contract.RUN_RECORD_FILE, "{}"))
    data = record.get("dataset") or {}
    known = {name: record.get(name) for name in ("run_id", "image_digest", "config_hash")}
    known |= {f"dataset.{name}": data.get(name) for name in ("name", "version")}
    if empty := [name for name, value in known.items() if not value]:
        raise ValueError(f"its record lacks {abbreviate(empty)}")
    return (
        f"{record['run_id']}: {record['image_digest'][:19]}, config {record['config_hash'][:12]}, dataset"
        f" {data['name']} {data['version']}"
    )
