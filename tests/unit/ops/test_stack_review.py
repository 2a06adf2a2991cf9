"""`stack review`: labelled changes of committed stacks, each with all of its consequences."""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from infra.config import parse, stack_values
from infra.domain import prices
from infra.domain.prices import services
from ops import __main__ as front_door
from ops.cluster import ClusterError
from ops.review import consequences, report, steps
from tests.committed import rendered

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
    old = copy.deepcopy(rendered(stack))
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
    return {"config": {"trainyard:aws": '{"region": "us-east-1"}'}, "steps": found}


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


P4D = prices.usd_per_hour("p4d.24xlarge", prices.Purchase.ON_DEMAND) or 0.0
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
TO_P5, TO_ONDEMAND = 4 * (P5 - P4D), 50 * (P4D - P4D_SPOT)
TO_SPOT = 4 * (P4D_SPOT - P4D)
DELETED, REPLACES = [("data", "deleted")], [("data", "replaced")]
UNPROTECTED, QUOTA_DELETED = [("protection", "removed")], [("quota", "deleted")]
FLOWS, HARD = "aws-network-flows", "team-research-quota"
SPOT, ONDEMAND, CPU = "aws-pools-spot", "aws-pools-ondemand", "aws-pools-cpu"

# label, stack, edit, name of a replaced resource, consequences as (what, does), USD/h idle, USD/h at full scale
CHANGES: list[tuple[str, str, Edit, str, list[tuple[str, str]], float, float]] = [
    ("nothing", "dev", nothing, "", [], 0, 0),
    ("tags", "dev", setting(SPOT, "tags.owner", "x"), "", [], 0, 0),
    ("max up", "dev", setting(SPOT, "scalingConfig.maxSize", 60), "", POOL_CHANGED, 0, 10 * P4D_SPOT),
    ("max down", "dev", setting(SPOT, "scalingConfig.maxSize", 40), "", POOL_CHANGED, 0, -10 * P4D_SPOT),
    ("min up", "dev", setting(CPU, "scalingConfig.minSize", 2), "", POOL_CHANGED, M6I, 0),
    ("type", "dev", setting(ONDEMAND, "instanceTypes", ["p5.48xlarge"]), ONDEMAND, POOL_REPLACED, 0, TO_P5),
    ("spot to on-demand", "dev", setting(SPOT, "capacityType", "ON_DEMAND"), SPOT, POOL_REPLACED, 0, TO_ONDEMAND),
    ("AMI of a pool", "dev", setting(SPOT, "releaseVersion", "1.35.7"), "", [], 0, 0),
    ("pool replaced by its role", "dev", setting(SPOT, "nodeRoleArn", "x"), SPOT, POOL_REPLACED, 0, 0),
    ("pool removed", "dev", removing(CPU), "", [("pool", "deleted")], -M6I, -4 * M6I),
    ("Karpenter max", "prod", setting(KARPENTER, "spec.limits.nodes", "10"), "", POOL_CHANGED, 0, 2 * M6I),
    ("Karpenter pool removed", "prod", removing(KARPENTER), "", [("pool", "deleted")], 0, -8 * M6I),
    ("block's AMI", "prod", setting("aws-pools-block", "releaseVersion", "x"), "", [], 0, 0),
    ("NAT and its address removed", "dev", removing(NAT), "", [], -NAT_HOUR, -NAT_HOUR),
    ("key removed", "dev", removing(KEY), "", [("data", "deleted")], -KEY_HOUR, -KEY_HOUR),
    ("file system replaced", "dev", setting(EFS, "encrypted", False), EFS, [("data", "replaced")], 0, 0),
    ("file system's tags", "dev", setting(EFS, "tags", {}), "", [], 0, 0),
    ("bucket removed", "dev", removing(BUCKET), "", [("data", "deleted")], 0, 0),
    ("bucket renamed without alias", "dev", renaming(BUCKET, "other"), "", [("data", "deleted")], 0, 0),
    ("protection removed", "prod", unprotecting(PROTECTED), "", [("protection", "removed")], 0, 0),
    ("queue removed", "dev", removing(QUEUE), "", [("quota", "deleted")], 0, 0),
    ("queue's weight", "dev", setting(QUEUE, "spec.fairSharing.weight", "3"), "", [], 0, 0),
    ("queue without flavors", "dev", setting(QUEUE, "spec.resourceGroups", []), "", [("quota", "changed")], 0, 0),
    ("CRD added", "dev", adding({"type": CRD, "name": "crd", "inputs": {}}), "", [], 0, 0),
    ("claim added", "dev", adding({"type": CLAIM, "name": "claim", "inputs": {}}), "", [], 0, 0),
    ("namespace renamed", "local", setting(SPACE, "metadata.name", "x"), SPACE, [("data", "replaced")], 0, 0),
    ("namespace's labels", "local", setting(SPACE, "metadata.labels", {}), "", [], 0, 0),
    ("claim removed", "prod", removing(PVC), "", [("data", "deleted")], 0, 0),
    ("claim grows", "prod", setting(PVC, "spec.resources", {"requests": {"storage": "9Ti"}}), "", [], 0, 0),
    ("run removed", "local", removing_the_run, "", [("run", "stopped")], 0, 0),
    ("run restarted", "local", nothing, "RUN-jobset", [("run", "restarted")], 0, 0),
    ("run's version raised", "local", raising_the_version, "", [("run", "started"), ("run", "stopped")], 0, 0),
    ("run edited", "local", editing_a_run, "", [("run", "started"), ("run", "stopped")], 0, 0),
    ("max of CPU up", "dev", setting(CPU, "scalingConfig.maxSize", 6), "", POOL_CHANGED, 0, 2 * M6I),
    ("max of on-demand up", "dev", setting(ONDEMAND, "scalingConfig.maxSize", 5), "", POOL_CHANGED, 0, P4D),
    ("min of on-demand up", "dev", setting(ONDEMAND, "scalingConfig.minSize", 1), "", POOL_CHANGED, P4D, 0),
    ("min of spot up", "dev", setting(SPOT, "scalingConfig.minSize", 2), "", POOL_CHANGED, 2 * P4D_SPOT, 0),
    ("on-demand to spot", "dev", setting(ONDEMAND, "capacityType", "SPOT"), ONDEMAND, POOL_REPLACED, 0, TO_SPOT),
    ("desired size", "dev", setting(SPOT, "scalingConfig.desiredSize", 5), "", [], 0, 0),
    ("spot pool removed", "dev", removing(SPOT), "", [("pool", "deleted")], 0, -50 * P4D_SPOT),
    ("on-demand pool removed", "dev", removing(ONDEMAND), "", [("pool", "deleted")], 0, -4 * P4D),
    ("Karpenter max down", "prod", setting(KARPENTER, "spec.limits.nodes", "6"), "", POOL_CHANGED, 0, -2 * M6I),
    ("Karpenter's disruption", "prod", setting(KARPENTER, "spec.disruption", {}), "", [], 0, 0),
    ("protected key removed", "prod", removing(KEY), "", DELETED, -KEY_HOUR, -KEY_HOUR),
    ("key of the cluster removed", "dev", removing("aws-keys-cluster"), "", DELETED, -KEY_HOUR, -KEY_HOUR),
    ("key replaced", "dev", setting(KEY, "multiRegion", True), KEY, REPLACES, 0, 0),
    ("bucket replaced", "dev", setting(BUCKET, "bucket", "x"), BUCKET, REPLACES, 0, 0),
    ("bucket's tags", "dev", setting(BUCKET, "tags", {}), "", [], 0, 0),
    ("two buckets removed", "dev", removing(BUCKET, "aws-buckets-datasets-bucket"), "", DELETED * 2, 0, 0),
    ("log group removed", "dev", removing(FLOWS), "", DELETED, 0, 0),
    ("log group's retention", "dev", setting(FLOWS, "retentionInDays", 7), "", [], 0, 0),
    ("volume removed", "prod", removing("aws-storage-research-datasets-volume"), "", DELETED, 0, 0),
    ("bucket unprotected", "prod", unprotecting(BUCKET), "", UNPROTECTED, 0, 0),
    ("claim unprotected", "prod", unprotecting(PVC), "", UNPROTECTED, 0, 0),
    ("file system unprotected", "prod", unprotecting("aws-storage-research-files"), "", UNPROTECTED, 0, 0),
    ("namespace removed", "dev", removing(SPACE), "", DELETED, 0, 0),
    ("claim replaced", "dev", setting(PVC, "spec.storageClassName", "x"), PVC, REPLACES, 0, 0),
    ("queue's order", "dev", setting(QUEUE, "spec.queueingStrategy", "StrictFIFO"), "", [], 0, 0),
    ("namespace's quota removed", "dev", removing(HARD), "", [("quota", "deleted")], 0, 0),
    ("namespace's quota", "dev", setting(HARD, "spec.hard", {"pods": "1"}), "", [("quota", "changed")], 0, 0),
    ("queue and key removed", "dev", removing(QUEUE, KEY), "", QUOTA_DELETED + DELETED, -KEY_HOUR, -KEY_HOUR),
]  # fmt: skip


@cache
def review_of(label: str) -> consequences.Review:
    """The review of a labelled change."""
    _, stack, edit, replaced, *_ = next(change for change in CHANGES if change[0] == label)
    return reviewed(preview_of(stack, edit, replaced), stack)


@pytest.mark.parametrize("change", CHANGES, ids=[change[0] for change in CHANGES])
def test_a_change_has_exactly_its_consequences_and_its_price(change: Any) -> None:
    label, _, _, _, expected, idle, at_max = change
    found = review_of(label)
    assert sorted((c.what, c.does) for c in found.consequences) == sorted(expected)
    assert found.usd_per_hour_idle == pytest.approx(idle, abs=1e-9)
    assert found.usd_per_hour_at_max == pytest.approx(at_max, abs=1e-9)
    assert bool(found.edited_runs) == (label == "run edited") == (not found.passes)
    assert len(report.text(found).splitlines()) <= report.LINES_MAX


def test_consequences_of_labelled_changes_are_precise_and_complete() -> None:
    """Over all labels: shown with `pytest -s`."""
    right = shown = labelled = 0
    for label, _, _, _, expected, *_ in CHANGES:
        said = Counter((one.what, one.does) for one in review_of(label).consequences)
        right += (said & Counter(expected)).total()
        shown, labelled = shown + said.total(), labelled + len(expected)
    precision, recall = right / shown, right / labelled
    print(f"{len(CHANGES)} changes: precision {precision:.3f}, recall {recall:.3f}")
    assert len(CHANGES) >= 60 and (precision, recall) == (1.0, 1.0)


def test_a_new_stack_costs_what_its_file_costs() -> None:
    document = preview_of("dev", nothing)
    for step in document["steps"]:
        step["op"] = "create"
        del step["oldState"]
    found = reviewed(document, "dev")
    whole = prices.total_hourly(parse(stack_values(Path("Pulumi.dev.yaml"))).pools)
    fixed = prices.total(p.usd_per_hour for _, p in services.monthly(rendered("dev"), "us-east-1"))
    assert found.usd_per_hour_at_max == pytest.approx(prices.total([whole.at_max, fixed]))
    assert found.usd_per_hour_idle == pytest.approx(prices.total([whole.idle, fixed]))


def test_a_price_that_is_not_known_is_not_zero() -> None:
    found = reviewed(preview_of("prod", removing("aws-pools-block")), "prod")
    assert found.usd_per_hour_at_max is None and found.unpriced == ("aws-pools-block",)
    assert "not known per hour at full scale" in report.text(found)


def test_an_error_of_a_policy_fails_the_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = preview_of("dev", nothing)
    file = tmp_path / "preview.json"
    for severity, code in (("warning", 0), ("error", 1)):
        document["diagnostics"] = [{"severity": severity, "message": "hourly-budget: too high\n"}]
        file.write_text(json.dumps(document))
        words = ["stack", "review", "--stack", "dev", "--preview", str(file)]
        assert front_door.main(words) == code
        assert "hourly-budget: too high" in capsys.readouterr().out
        assert front_door.main([*words, "--json"]) == code
        assert json.loads(capsys.readouterr().out)["passes"] == (code == 0)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"steps": [{"op": "same"}]}', '{"steps": 3}'])
def test_other_files_are_refused(text: str) -> None:
    with pytest.raises(ClusterError, match="FILE: "):
        steps.parse(text, "FILE", "dev")


def test_the_preview_of_another_stack_is_refused() -> None:
    with pytest.raises(ClusterError, match="is a preview of dev; expected prod"):
        steps.parse(json.dumps(preview_of("dev", nothing)), "FILE", "prod")
