"""Labelled changes of committed stacks, as previews, with all of their consequences and prices."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

from infra.cli.render import engine_config
from infra.domain import naming, prices
from infra.domain.prices import services
from ops.review import consequences, impacts, steps
from tests.committed import rendered, values

Record = dict[str, Any]
Records = list[Record]
Edit = Callable[[Records], None]

REPLACED = ("create-replacement", "replace", "delete-replaced")


def urn(record: Record, stack: str) -> str:
    """A record's URN; records name their parent as `TYPE::NAME`."""
    above = (record.get("parent") or "").split("::")[0]
    chain = f"{above}${record['type']}" if above else record["type"]
    return f"urn:pulumi:{stack}::trainyard::{chain}::{record['name']}"


def state(record: Record) -> Record:
    return {"inputs": record["inputs"], "protect": record["protect"]}


def preview_of(stack: str, edit: Edit, replaced: str = "") -> dict[str, Any]:
    """The preview of an edit of a stack's resources, in the engine's format."""
    old = with_a_run(stack)
    if replaced.startswith("RUN"):
        replaced = replaced.replace("RUN", run_of(old))
    for record in old:
        record["parent"] = record.get("parent") or ""
    new = copy.deepcopy(old)
    edit(new)
    before, after = ({urn(r, stack): r for r in side} for side in (old, new))
    found: list[Record] = []
    for key in {**after, **before}:
        a, b = before.get(key), after.get(key)
        states = {n: state(r) for n, r in (("oldState", a), ("newState", b)) if r}
        if a and b and a["name"] == replaced:
            extra = {"urn": key, "replaceReasons": ["spec"], **states}
            found += [{"op": op, **extra} for op in REPLACED]
        else:
            op = "delete" if not b else "create" if not a else "same" if a == b else "update"
            found.append({"op": op, "urn": key, **states})
    return {"config": engine_config(values(stack)), "steps": found}


ELIGIBLE = {"dev": ["spot", "ondemand"], "prod": ["block", "ondemand"]}
TRAINS = "train-v1-0a0a0a0a"


def with_a_run(stack: str) -> Records:
    """A stack's resources with a run of the team research: the local stack's own, or the same elsewhere."""
    found = copy.deepcopy(rendered(stack))
    if stack not in ELIGIBLE:
        return found
    run = run_of(rendered("local"))
    for record in rendered("local"):
        if run in record["name"]:
            text = json.dumps(record).replace(run, TRAINS)
            text = text.replace('["spot", "ondemand"]', json.dumps(ELIGIBLE[stack]))
            found.append(json.loads(text))
    assert impacts.eligible_pools(found[-1]) == tuple(sorted(ELIGIBLE[stack]))
    return found


def as_new(stack: str) -> dict[str, Any]:
    """The preview of a stack that was never deployed."""
    document = preview_of(stack, nothing)
    for step in document["steps"]:
        step["op"] = "create"
        del step["oldState"]
    return document


def reviewed(document: dict[str, Any], stack: str) -> consequences.Review:
    return consequences.review(steps.parse(json.dumps(document), "FILE", stack))


def one(records: Records, name: str) -> Record:
    return next(record for record in records if record["name"] == name)


def setting(name: str, path: str, value: Any) -> Edit:
    """An edit that sets an input of a resource."""

    def edit(records: Records) -> None:
        *parents, last = path.split(".")
        at = one(records, name)["inputs"]
        for key in parents:
            at = at[key]
        at[last] = value

    return edit


def removing(*names: str) -> Edit:
    def edit(records: Records) -> None:
        records[:] = [record for record in records if record["name"] not in names]

    return edit


def renaming(name: str, new: str) -> Edit:
    def edit(records: Records) -> None:
        one(records, name)["name"] = new

    return edit


def unprotecting(name: str) -> Edit:
    def edit(records: Records) -> None:
        one(records, name)["protect"] = False

    return edit


def adding(record: Record) -> Edit:
    def edit(records: Records) -> None:
        records.append({"protect": False, "parent": "", **record})

    return edit


def both(*edits: Edit) -> Edit:
    def edit(records: Records) -> None:
        for change in edits:
            change(records)

    return edit


def removing_of(word: str, kind: str = "") -> Edit:
    """An edit that removes all resources with this in their names, of one kind."""

    def edit(records: Records) -> None:
        records[:] = [r for r in records if word not in r["name"] or kind not in r["type"]]

    return edit


def renaming_the_pool(records: Records) -> None:
    pool = one(records, SPOT)
    pool["name"] += "-b"
    pool["inputs"]["labels"]["trainyard.dev/pool"] = "spot-b"


def removing_the_team(records: Records) -> None:
    """Remove a team with its run."""
    removing_the_run(records)
    removing_of("team-research")(records)
    removing("queues-research")(records)


def paying(usd: float) -> Edit:
    """An edit of what was paid for the capacity block, as the record of each team has it."""

    def edit(records: Records) -> None:
        for record in records:
            data = record["inputs"].get("data") or {}
            if naming.PLATFORM_RECORD_KEY in data:
                known = json.loads(data[naming.PLATFORM_RECORD_KEY])
                for pool in known["platform"]["pools"]:
                    if pool["name"] == "block":
                        pool["reservation"]["usd_per_node_hour"] = usd
                data[naming.PLATFORM_RECORD_KEY] = json.dumps(known)

    return edit


def nothing(records: Records) -> None:
    """Change nothing."""


def run_of(records: Records) -> str:
    """The run of the local stack; its id follows the files of the trainer's image."""
    return str(next(r["name"] for r in records if r["type"] == consequences.RUN))


def naming_the_run(records: Records, new: str) -> None:
    run = run_of(records)
    for record in records:
        record["name"] = record["name"].replace(run, new)
        record["parent"] = (record.get("parent") or "").replace(run, new)


def editing_a_run(records: Records) -> None:
    """Give a run's objects another id, as an edit of its document does."""
    naming_the_run(records, run_of(records)[:-8] + "00000000")


def removing_the_run(records: Records) -> None:
    run = run_of(records)
    records[:] = [record for record in records if run not in record["name"]]


def raising_the_version(records: Records) -> None:
    naming_the_run(records, "hello-v2-00000000")


SPOT, ONDEMAND, CPU = "aws-pools-spot", "aws-pools-ondemand", "aws-pools-cpu"
P4D = prices.usd_per_hour("p4d.24xlarge", prices.Purchase.ON_DEMAND) or 0.0
P4DE = prices.usd_per_hour("p4de.24xlarge", prices.Purchase.ON_DEMAND) or 0.0
"""The dearest type of dev's spot pool counts at full scale."""
P4D_SPOT = prices.usd_per_hour("p4d.24xlarge", prices.Purchase.SPOT) or 0.0
M6I = prices.usd_per_hour("m6i.4xlarge", prices.Purchase.ON_DEMAND) or 0.0
P5 = prices.usd_per_hour("p5.48xlarge", prices.Purchase.ON_DEMAND) or 0.0
EFS, NAT = "aws-storage-files", "aws-network-nat-us-east-1a"
NAT_HOUR = sum(float(services.rates()[key]) for key in ("natGatewayHour", "publicAddressHour"))
KEY, BUCKET = "aws-keys-data", "aws-buckets-logs-bucket"
KEY_HOUR = float(services.rates()["keyMonth"]) / prices.HOURS_PER_MONTH
PROTECTED, PVC = "team-production-namespace", "team-research-datasets"
SPACE = "team-research-namespace"
CRD = "kubernetes:apiextensions.k8s.io/v1:CustomResourceDefinition"
CLAIM = "kubernetes:core/v1:PersistentVolumeClaim"

POOL_CHANGED, POOL_REPLACED = [("pool", "changed")], [("pool", "replaced")]
KARPENTER, QUEUE = "aws-karpenter-cpu", "queues-research"
TO_P5, TO_ONDEMAND = 4 * (P5 - P4D), 50 * (P4DE - P4D_SPOT)
TO_SPOT = 4 * (P4D_SPOT - P4D)
DELETED, REPLACES = [("data", "deleted")], [("data", "replaced")]
UNPROTECTED, QUOTA_DELETED = [("protection", "removed")], [("quota", "deleted")]
MOVED, STOPPED, HELD = [("run", "restarted")], [("run", "stopped")], [("run", "held")]
POOL_GONE, POOL_ADDED = [("pool", "deleted")], [("pool", "added")]
BLOCK, TEMPLATE = "aws-karpenter-block", "aws-pools-spot-template"
CLASS = "aws-karpenter-ondemand-class"
KARPENTER_GPU, LOCAL_QUEUE = "aws-karpenter-ondemand", "team-research-queue"
IMAGE = setting(CLASS, "spec.amiSelectorTerms", [{"alias": "al2023@v20260801"}])
DRIFTS = setting(KARPENTER_GPU, "spec.disruption.budgets", [{"nodes": "1"}])
LIMIT = setting(KARPENTER_GPU, "spec.limits.nodes", "4")
HOPS = setting(TEMPLATE, "metadataOptions.httpPutResponseHopLimit", 2)
P5EN = prices.usd_per_hour("p5en.48xlarge", prices.Purchase.ON_DEMAND) or 0.0
TARGET = {"capacityReservationTarget": {"capacityReservationId": "cr-1"}}
RESERVED = setting("aws-pools-ondemand-template", "capacityReservationSpecification", TARGET)
TYPES = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["p4d.24xlarge"]}
HOW_RESERVED = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["reserved"]}
H200 = setting(
    BLOCK,
    "spec.template.spec.requirements",
    [{**TYPES, "values": ["p5en.48xlarge"]}, HOW_RESERVED],
)
BLOCK_IMAGE = setting(BLOCK + "-class", "spec.amiSelectorTerms", [{"alias": "al2023@v20260801"}])
TO_BLOCK = (
    setting(ONDEMAND, "capacityType", "CAPACITY_BLOCK"),
    setting(ONDEMAND, "instanceTypes", None),
    setting("aws-pools-ondemand-template", "instanceType", "p4d.24xlarge"),
)
MINIMUM = setting(ONDEMAND, "scalingConfig.minSize", 4)
KARPENTER_RESERVED = setting(
    KARPENTER_GPU, "spec.template.spec.requirements", [TYPES, HOW_RESERVED]
)
MAX, HOW = "scalingConfig.maxSize", "capacityType"
REPLACED_POOL = POOL_REPLACED + MOVED
KEY_AND_QUEUE = QUOTA_DELETED + DELETED + HELD
WHOLE_TEAM = QUOTA_DELETED * 2 + DELETED * 3 + STOPPED
NO_NODES = both(removing_of("nodes-spot"), removing_of("nodes-ondemand"))
ALL_SPOT = -50 * P4D_SPOT
BOTH = ALL_SPOT - 4 * P4D
FLOWS, HARD = "aws-network-flows", "team-research-quota"

# label, stack, edit, name of a replaced resource, consequences as (what, does), USD/h idle, USD/h at full scale
CHANGES: list[tuple[str, str, Edit, str, list[tuple[str, str]], float, float]] = [
    ("nothing", "dev", nothing, "", [], 0, 0),
    ("max up", "dev", setting(SPOT, MAX, 60), "", POOL_CHANGED, 0, 10 * P4D_SPOT),
    ("max down", "dev", setting(SPOT, MAX, 40), "", POOL_CHANGED + MOVED, 0, -10 * P4D_SPOT),
    ("min up", "dev", setting(CPU, "scalingConfig.minSize", 2), "", POOL_CHANGED, M6I, 0),
    ("type", "dev", setting(ONDEMAND, "instanceTypes", ["p5.48xlarge"]), ONDEMAND, REPLACED_POOL, 0, TO_P5),
    ("spot to on-demand", "dev", setting(SPOT, HOW, "ON_DEMAND"), SPOT, REPLACED_POOL, 0, TO_ONDEMAND),
    ("AMI of a pool", "dev", setting(SPOT, "releaseVersion", "1.35.7"), "", MOVED, 0, 0),
    ("pool replaced by its role", "dev", setting(SPOT, "nodeRoleArn", "x"), SPOT, REPLACED_POOL, 0, 0),
    ("pool removed", "dev", removing(CPU), "", [("pool", "deleted")], -M6I, -4 * M6I),
    ("Karpenter max", "prod", setting(KARPENTER, "spec.limits.nodes", "10"), "", POOL_CHANGED, 0, 2 * M6I),
    ("Karpenter pool removed", "prod", removing(KARPENTER), "", [("pool", "deleted")], 0, -8 * M6I),
    ("block's image", "prod", BLOCK_IMAGE, "", [], 0, 0),
    ("NAT and its address removed", "dev", removing(NAT), "", [], -NAT_HOUR, -NAT_HOUR),
    ("key removed", "dev", removing(KEY), "", [("data", "deleted")], -KEY_HOUR, -KEY_HOUR),
    ("file system replaced", "dev", setting(EFS, "encrypted", False), EFS, [("data", "replaced")], 0, 0),
    ("bucket removed", "dev", removing(BUCKET), "", [("data", "deleted")], 0, 0),
    ("bucket renamed without alias", "dev", renaming(BUCKET, "other"), "", [("data", "deleted")], 0, 0),
    ("protection removed", "prod", unprotecting(PROTECTED), "", [("protection", "removed")], 0, 0),
    ("queue removed", "dev", removing(QUEUE), "", QUOTA_DELETED + HELD, 0, 0),
    ("queue's weight", "dev", setting(QUEUE, "spec.fairSharing.weight", "3"), "", [], 0, 0),
    ("queue without flavors", "dev", setting(QUEUE, "spec.resourceGroups", []), "", [("quota", "changed")], 0, 0),
    ("CRD added", "dev", adding({"type": CRD, "name": "crd", "inputs": {}}), "", [], 0, 0),
    ("namespace renamed", "local", setting(SPACE, "metadata.name", "x"), SPACE, REPLACES + STOPPED, 0, 0),
    ("claim removed", "prod", removing(PVC), "", [("data", "deleted")], 0, 0),
    ("claim grows", "prod", setting(PVC, "spec.resources", {"requests": {"storage": "9Ti"}}), "", [], 0, 0),
    ("run removed", "local", removing_the_run, "", [("run", "stopped")], 0, 0),
    ("run restarted", "local", nothing, "RUN-jobset", [("run", "restarted")], 0, 0),
    ("run's version raised", "local", raising_the_version, "", [("run", "started"), ("run", "stopped")], 0, 0),
    ("run edited", "local", editing_a_run, "", [("run", "started"), ("run", "stopped")], 0, 0),
    ("on-demand to spot", "dev", setting(ONDEMAND, HOW, "SPOT"), ONDEMAND, REPLACED_POOL, 0, TO_SPOT),
    ("spot pool removed", "dev", removing(SPOT), "", POOL_GONE + MOVED, 0, ALL_SPOT),
    ("on-demand pool removed", "dev", removing(ONDEMAND), "", POOL_GONE + MOVED, 0, -4 * P4D),
    ("Karpenter max down", "prod", setting(KARPENTER, "spec.limits.nodes", "6"), "", POOL_CHANGED, 0, -2 * M6I),
    ("key replaced", "dev", setting(KEY, "multiRegion", True), KEY, REPLACES, 0, 0),
    ("bucket replaced", "dev", setting(BUCKET, "bucket", "x"), BUCKET, REPLACES, 0, 0),
    ("log group removed", "dev", removing(FLOWS), "", DELETED, 0, 0),
    ("bucket unprotected", "prod", unprotecting(BUCKET), "", UNPROTECTED, 0, 0),
    ("namespace removed", "dev", removing(SPACE), "", DELETED + STOPPED, 0, 0),
    ("claim replaced", "dev", setting(PVC, "spec.storageClassName", "x"), PVC, REPLACES, 0, 0),
    ("namespace's quota removed", "dev", removing(HARD), "", [("quota", "deleted")], 0, 0),
    ("namespace's quota", "dev", setting(HARD, "spec.hard", {"pods": "1"}), "", [("quota", "changed")], 0, 0),
    ("pool shrunk to nothing", "dev", setting(SPOT, MAX, 0), "", POOL_CHANGED + MOVED, 0, ALL_SPOT),
    ("pool renamed", "dev", renaming_the_pool, "", POOL_GONE + POOL_ADDED + MOVED, 0, 0),
    ("all of a run's pools removed", "dev", removing(SPOT, ONDEMAND), "", POOL_GONE * 2 + STOPPED, 0, BOTH),
    ("Kubernetes of a pool", "dev", setting(SPOT, "version", "1.36"), "", MOVED, 0, 0),
    ("launch template", "dev", HOPS, "", MOVED, 0, 0),
    ("launch template's tags", "dev", setting(TEMPLATE, "tags", {}), "", [], 0, 0),
    ("Karpenter GPU pool removed", "prod", removing(KARPENTER_GPU), "", POOL_GONE + MOVED, 0, -8 * P4D),
    ("Karpenter GPU max down", "prod", LIMIT, "", POOL_CHANGED, 0, -4 * P4D),
    ("Karpenter's image", "prod", IMAGE, "", [], 0, 0),
    ("Karpenter's image, and drift is allowed", "prod", both(IMAGE, DRIFTS), "", MOVED, 0, 0),
    ("simulated node removed", "local", removing("nodes-spot-1"), "", MOVED, 0, 0),
    ("simulated pool of other runs removed", "local", removing_of("nodes-fleet-spot"), "", [], 0, 0),
    ("simulated pools removed", "local", NO_NODES, "", STOPPED, 0, 0),
    ("queue held", "local", setting(LOCAL_QUEUE, "spec.stopPolicy", "Hold"), "", HELD, 0, 0),
    ("queue drained", "local", setting(QUEUE, "spec.stopPolicy", "HoldAndDrain"), "", STOPPED, 0, 0),
    ("other team's queue removed", "local", removing("team-production-queue"), "", [], 0, 0),
    ("team and its run removed", "local", removing_the_team, "", WHOLE_TEAM, 0, 0),
    ("block removed", "prod", removing(BLOCK), "", POOL_GONE + MOVED, -8 * P5, -8 * P5),
    ("block grows", "prod", setting(BLOCK, "spec.limits.nodes", "10"), "", POOL_CHANGED, 2 * P5, 2 * P5),
    ("block shrinks", "prod", setting(BLOCK, "spec.limits.nodes", "6"), "", POOL_CHANGED, -2 * P5, -2 * P5),
    ("block's type", "prod", H200, "", POOL_CHANGED, 8 * (P5EN - P5), 8 * (P5EN - P5)),
    ("on-demand to block", "dev", both(*TO_BLOCK), ONDEMAND, REPLACED_POOL, 4 * P4D, 0),
    ("block's minimum", "dev", both(*TO_BLOCK, MINIMUM), ONDEMAND, REPLACED_POOL, 4 * P4D, 0),
    ("reservation added", "dev", RESERVED, "", POOL_CHANGED + MOVED, 4 * P4D, 0),
    ("Karpenter reservation added", "prod", KARPENTER_RESERVED, "", POOL_CHANGED, 8 * P4D, 0),
    ("queue and key removed", "dev", removing(QUEUE, KEY), "", KEY_AND_QUEUE, -KEY_HOUR, -KEY_HOUR),
]  # fmt: skip
