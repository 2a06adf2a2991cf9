"""Each check of the stage `production`: what proves it, what breaks it, what leaves it open."""

from __future__ import annotations

import copy
import datetime as dt
import json
from collections.abc import Callable
from typing import Any

import pytest

from infra.domain import naming
from infra.observability.alerts import ALERTS
from ops.metrics import PrometheusClient
from ops.objects import Json
from ops.ready import results, stack_facts
from ops.ready.production import ROWS, evaluate
from ops.ready.production.isolation import POD_SECURITY_LABEL, WEBHOOK
from ops.ready.production.snapshot import (
    GPU,
    KUBERNETES,
    TRAINING,
    PrometheusInventory,
    read_inventory,
    take_snapshot,
)
from ops.ready.results import Check, Outcome, StageResult, failed, passed
from tests.unit.ops.ready_cluster import (
    TEAMS,
    LiveFake,
    condition,
    facts,
    nodes,
    pool,
    template,
    templates,
)
from tests.unit.snapshots import Text
from training.spec import Dataset, Resources, RunSpec

NOW = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
IMAGE = "registry.example/trainer@sha256:" + "a" * 64


def _object(kind: str, name: str, namespace: str = "", **more: Any) -> Json:
    metadata: Json = {"name": name, "labels": {naming.PART_OF: naming.PROJECT}}
    return {
        "kind": kind,
        "metadata": metadata | ({"namespace": namespace} if namespace else {}),
        **more,
    }


SPEC = RunSpec(
    name="hello",
    version=1,
    team="research",
    tier="research",
    job_kind="jobset",
    nodes=2,
    processes_per_node=1,
    image=IMAGE,
    config={"steps": 1},
    dataset=Dataset(name="stdlib", version="0123456789abcdef"),
    resources=Resources(cpu="1", memory="1Gi", shm="1Gi"),
)
RUN = f"JobSet {SPEC.run_id}"


def _run() -> list[Json]:
    amounts = {naming.GPU: "1", "cpu": "1"}
    container = {
        "name": "trainer",
        "image": IMAGE,
        "env": [
            {"name": "HOME", "value": "/tmp"},
            {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}},
        ],
        "resources": {"requests": amounts, "limits": dict(amounts)},
    }
    job = {"template": {"spec": {"containers": [container]}}}
    run = _object(
        "JobSet", SPEC.run_id, "team-research", spec={"replicatedJobs": [{"template": job}]}
    )
    record = json.dumps(SPEC.record(stack="local", git_commit="unknown"))
    config = _object("ConfigMap", SPEC.run_id, "team-research", data={"run.json": record})
    for item in (run, config):
        item["metadata"]["labels"] |= {naming.RUN_ID: SPEC.run_id, naming.RUN: "hello"}
    return [run, config]


def _team(name: str, namespace: str) -> list[Json]:
    home = _object("Namespace", namespace)
    home["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] = "restricted"
    home["metadata"]["labels"][naming.SIGNED_IMAGES] = "true"
    denies = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    account = {"automountServiceAccountToken": False}
    group = {
        "flavors": [{"name": "spot", "resources": [{"name": naming.GPU, "nominalQuota": "1"}]}]
    }
    return [
        home,
        _object(
            "ResourceQuota", "training", namespace, spec={"hard": {f"requests.{naming.GPU}": "4"}}
        ),
        _object("NetworkPolicy", "default-deny", namespace, spec=denies),
        _object("ServiceAccount", naming.SERVICE_ACCOUNT, namespace, **account),
        _object("RoleBinding", "lead", namespace, roleRef={"kind": "Role", "name": "lead"}),
        _object(
            "ClusterQueue",
            naming.cluster_queue(name),
            spec={"resourceGroups": [group]},
            status={"conditions": [condition("Active")]},
        ),
    ]


def _sound() -> LiveFake:
    """A stack in which every row that objects prove passes."""
    teams = [item for team in TEAMS for item in _team(team["name"], team["namespace"])]
    return LiveFake(
        facts(pool("spot")),
        *nodes("spot"),
        *templates("spot"),
        *teams,
        *_run(),
        template("restore-drill", namespace="team-serving"),
        _object("PriorityClass", "research-training", value=1000),
        _object(
            "ValidatingAdmissionPolicyBinding",
            "trainyard-images",
            spec={"validationActions": ["Deny", "Audit"]},
        ),
        *_signatures(),
    )


def _signatures() -> list[Json]:
    """What policy-controller needs, and a pod that it admitted."""
    policy = _object("ClusterImagePolicy", naming.IMAGE_POLICY)
    policy["spec"] = {"images": [{"glob": "**"}], "authorities": [{"name": "kms"}]}
    hook = {"failurePolicy": "Fail", "rules": [{}], "clientConfig": {"caBundle": "Q0E="}}
    pod = _object(
        "Pod",
        "hello-0",
        "team-research",
        spec={"containers": [{"name": "trainer", "image": IMAGE}]},
    )
    pod["status"] = {"phase": "Running"}
    pod["metadata"]["labels"][naming.RUN_ID] = SPEC.run_id
    policy["metadata"]["creationTimestamp"] = "2026-11-20T12:00:00Z"
    pod["metadata"]["creationTimestamp"] = "2026-11-21T11:00:00Z"
    return [policy, pod, _object("ValidatingWebhookConfiguration", WEBHOOK, webhooks=[hook])]


EARLIER = "2026-11-20T11:59:59Z"


PROVEN = [
    StageResult(stage=stage, title="", checks=(passed("pool spot", "2 pods on spot-0, spot-1"),))
    for stage in ("gpu-smoke", "single-node", "multi-node", "collective")
] + [StageResult(stage="restore", title="", checks=(passed("team serving", "2 runs, 2 restored"),))]
WATCHED = PrometheusInventory(
    place="http://prometheus",
    counts={GPU: 4, TRAINING: 1, KUBERNETES: 20},
    alerts=[alert.name for alert in ALERTS],
)


def _rows(
    cluster: LiveFake | None = None,
    found: list[StageResult] | None = None,
    prometheus: PrometheusInventory = WATCHED,
    now: dt.datetime = NOW,
) -> dict[str, Check]:
    at = cluster or _sound()
    of = stack_facts.read(at)  # type: ignore[arg-type]
    proven = PROVEN if found is None else found
    known = results.merge({}, proven, NOW, of.subjects)
    observed = take_snapshot(at, of, of.teams, known, prometheus, now)  # type: ignore[arg-type]
    return {row.subject: row for row in evaluate(observed).checks}


def test_a_healthy_stack_passes_every_row_with_evidence() -> None:
    rows = _rows()
    assert len(rows) == len(ROWS) == 14
    assert {row.outcome.value for row in rows.values()} == {"passed"}
    assert all(row.evidence for row in rows.values())
    assert not any(row.remedy for row in rows.values())


GPU_ROWS = ("GPU validation", "Single-node training", "Multi-node training", "NCCL readiness")


def test_rows_of_gpus_are_simulated_on_nodes_that_have_none() -> None:
    """Also by results that were stored as passed, and by scheduled Jobs."""
    cluster = _sound()
    cluster.put(facts(pool("spot", nodes="process")))
    rows = _rows(cluster)
    simulated = {area for area, row in rows.items() if row.outcome is Outcome.SIMULATED}
    assert simulated == set(GPU_ROWS)
    assert all(rows[area].evidence and not rows[area].remedy for area in GPU_ROWS)


def test_evidence_names_objects_digests_and_results_with_their_age(text: Text) -> None:
    rows = _rows(now=NOW + dt.timedelta(hours=3))
    text(rows["GPU nodes"].evidence)
    text(rows["Labels and taints"].evidence[0])
    assert (
        rows["Container image"]
        .evidence[0]
        .startswith("registry.example/trainer@sha256:aaaaaaaaaaaa: ")
    )
    text(rows["Run metadata"].evidence[0])
    text(rows["GPU validation"].evidence)
    text(rows["Cost controls"].evidence)
    assert any("roles lead" in line for line in rows["Security"].evidence)


Change = Callable[[LiveFake], object]
RUN_KEY = ("JobSet", "team-research", SPEC.run_id)
CONTAINER = "spec.replicatedJobs.0.template.template.spec.containers.0"
POD_KEY = ("Pod", "team-research", "hello-0")
HOOK_KEY, POLICY_KEY = (
    ("ValidatingWebhookConfiguration", "", WEBHOOK),
    ("ClusterImagePolicy", "", naming.IMAGE_POLICY),
)


def setting(key: tuple[str, str, str], path: str, value: Any) -> Change:
    """A change that sets a field of an object; None removes it."""

    def change(cluster: LiveFake) -> None:
        at: Any = cluster.kept[key]
        *parents, last = path.split(".")
        for part in parents:
            at = at[int(part)] if isinstance(at, list) else at[part]
        if value is None:
            del at[last]
        else:
            at[last] = value

    return change


def dropping(kind: str, namespace: str, name: str) -> Change:
    return lambda cluster: cluster.kept.pop((kind, namespace, name))


RESEARCH = ("Namespace", "", "team-research")
UNSIGNED = "no ClusterImagePolicy requires a signature"
UNPROVEN: dict[str, tuple[Change, str]] = {
    "no label": (setting(RESEARCH, "metadata.labels", {POD_SECURITY_LABEL: "restricted"}), "need no signed image"),
    "no policy": (dropping(*POLICY_KEY), UNSIGNED),
    "policy only warns": (setting(POLICY_KEY, "spec.mode", "warn"), UNSIGNED),
    "policy for some images": (setting(POLICY_KEY, "spec.images", [{"glob": "a/*"}]), UNSIGNED),
    "no webhook": (dropping(*HOOK_KEY), "no webhook policy.sigstore.dev"),
    "never started": (setting(HOOK_KEY, "webhooks.0.rules", []), "no webhook policy.sigstore.dev"),
    "fails open": (setting(HOOK_KEY, "webhooks.0.failurePolicy", "Ignore"), "lets pods in"),
    "older": (setting(POD_KEY, "metadata.creationTimestamp", EARLIER), "started before signatures were required"),
    "by tag": (setting(POD_KEY, "spec.containers.0.image", "trainer:1"), "trainer:1 runs by tag"),
    "no pods": (dropping(*POD_KEY), "no pod of a team runs"),
}  # fmt: skip


@pytest.mark.parametrize("case", UNPROVEN)
def test_images_do_not_count_as_scanned_without_evidence(case: str) -> None:
    change, expected = UNPROVEN[case]
    cluster = _sound()
    change(cluster)
    row = _rows(cluster)["Security"]
    assert row.outcome is Outcome.UNKNOWN and row.remedy
    assert expected in row.evidence[0] and row.evidence[0].startswith("image scanning: ")


def test_images_are_not_known_to_be_scanned_where_the_policy_may_not_be_read() -> None:
    cluster = _sound()
    cluster._forbidden = ("clusterimagepolicies",)
    row = _rows(cluster)["Security"]
    assert row.outcome is Outcome.UNKNOWN
    assert row.evidence[0] == "image scanning: you may not read clusterimagepolicies"


def _item(cluster: LiveFake, kind: str, name: str, namespace: str = "") -> Json:
    return cluster.kept[(kind, namespace, name)]


def _stray(cluster: LiveFake) -> None:
    node = copy.deepcopy(_item(cluster, "Node", "spot-0"))
    node["metadata"] |= {"name": "stray", "labels": {}}
    cluster.put(node)


def _no_nodes(cluster: LiveFake) -> None:
    for key in [key for key in cluster.kept if key[0] == "Node"]:
        del cluster.kept[key]


def _admin(cluster: LiveFake) -> None:
    subject = {"kind": "ServiceAccount", "name": "llm-trainer", "namespace": "team-research"}
    role = {"kind": "ClusterRole", "name": "cluster-admin"}
    cluster.put(_object("ClusterRoleBinding", "oops", roleRef=role, subjects=[subject]))


NODE, QUEUE = ("Node", "", "spot-1"), ("ClusterQueue", "", "team-serving")
LABELS, LIMITS = "metadata.labels", f"{CONTAINER}.resources.limits"
RECORD = ("ConfigMap", "team-research", SPEC.run_id)
POLICY = ("NetworkPolicy", "team-research", "default-deny")
ACCOUNT, LEAD = (
    ("ServiceAccount", "team-research", "llm-trainer"),
    ("RoleBinding", "team-research", "lead"),
)
SECRET = [{"name": "WANDB_API_KEY", "value": "hunter2"}]
BROKEN: dict[str, tuple[str, Change]] = {
    "no nodes": ("GPU nodes", _no_nodes),
    "no taint": ("Labels and taints", setting(NODE, "spec", {})),
    "the pool's taint with another value": (
        "Labels and taints",
        lambda cluster: cluster.put(facts(pool("spot", taint="dedicated=true"))),
    ),
    "no label": ("Labels and taints", setting(NODE, f"{LABELS}.{naming.ACCELERATOR}", None)),
    "stray node": ("Labels and taints", _stray),
    "unequal limit": ("GPU scheduling", setting(RUN_KEY, LIMITS, {naming.GPU: "2"})),
    "no GPU request": ("GPU scheduling", setting(RUN_KEY, f"{CONTAINER}.resources", {})),
    "image tag": ("Container image", setting(RUN_KEY, f"{CONTAINER}.image", "trainer:latest")),
    "no record": ("Run metadata", dropping(*RECORD)),
    "incomplete record": ("Run metadata", setting(RECORD, "data", {"run.json": "{}"})),
    "no quota": ("Cost controls", dropping("ResourceQuota", "team-research", "training")),
    "no queue": ("Cost controls", dropping(*QUEUE)),
    "inactive queue": ("Cost controls", setting(QUEUE, "status", {})),
    "no priority class": ("Cost controls", dropping("PriorityClass", "", "research-training")),
    "no pod security": ("Security", setting(RESEARCH, LABELS, {})),
    "open network": ("Security", setting(POLICY, "spec.ingress", [{}])),
    "token mounted": ("Security", setting(ACCOUNT, "automountServiceAccountToken", None)),
    "edit role": ("Security", setting(LEAD, "roleRef", {"name": "edit"})),
    "cluster-admin": ("Security", _admin),
    "no admission policy": (
        "Security",
        dropping("ValidatingAdmissionPolicyBinding", "", "trainyard-images"),
    ),
    "plain secret": ("Security", setting(RUN_KEY, f"{CONTAINER}.env", SECRET)),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_failed_row_names_its_cause_and_remedy(case: str, text: Text) -> None:
    area, change = BROKEN[case]
    cluster = _sound()
    change(cluster)
    row = _rows(cluster)[area]
    assert row.outcome is Outcome.FAILED
    text([row.evidence[0], *row.remedy.splitlines()])
    assert row.remedy
    assert "hunter2" not in str(row)


def test_failed_pools_fail_their_row_and_untested_pools_leave_it_unknown(
    text: Text,
) -> None:
    bad = StageResult(
        stage="collective", title="", checks=(failed("pool spot", "MTU differs", "even it"),)
    )
    rows = _rows(found=[bad])
    assert rows["NCCL readiness"].outcome is Outcome.FAILED
    row = rows["Multi-node training"]
    assert row.outcome == Outcome.UNKNOWN
    text(row.evidence)
    text(row.remedy.splitlines())


def test_outdated_evidence_does_not_count() -> None:
    rows = _rows(now=NOW + dt.timedelta(days=31))
    assert rows["GPU validation"].outcome is Outcome.UNKNOWN


def test_a_successful_scheduled_job_counts_like_a_readiness_check(text: Text) -> None:
    cluster = _sound()
    done = {"lastSuccessfulTime": "2026-11-21T09:00:00Z"}
    _item(cluster, "CronJob", "smoke-spot", stack_facts.NAMESPACE)["status"] = done
    _item(cluster, "CronJob", "restore-drill", "team-serving")["status"] = done
    rows = _rows(cluster, found=[])
    text(rows["GPU validation"].evidence)
    assert rows["Checkpointing"].outcome is Outcome.PASSED


def test_pools_scaled_to_zero_require_no_evidence() -> None:
    cluster = _sound()
    cluster.put(facts(pool("spot"), pool("burst", 0, 50)))
    assert _rows(cluster)["GPU validation"].outcome is Outcome.PASSED


def test_shared_gpu_pools_leave_gang_rows_unknown_only_without_other_pools(
    text: Text,
) -> None:
    cluster, gangs = _sound(), ("Multi-node training", "NCCL readiness")
    shared = pool("notebooks", sharing="mig")
    cluster.put(facts(pool("spot"), shared))
    for item in (*nodes("notebooks"), template("smoke", "notebooks")):
        cluster.put(item)
    rows = _rows(cluster)
    assert [rows[area].outcome for area in gangs] == [Outcome.PASSED] * 2
    text([rows[area].evidence[-1] for area in gangs])
    why = rows[gangs[0]].evidence[-1]
    assert rows["Single-node training"].outcome is Outcome.UNKNOWN
    cluster.put(facts(shared))
    alone = _rows(cluster, found=[])["NCCL readiness"]
    assert (alone.outcome, alone.evidence, alone.remedy) == (Outcome.UNKNOWN, (why,), "")


def test_missing_metrics_fail_and_a_missing_prometheus_is_unknown(
    text: Text,
) -> None:
    none = PrometheusInventory(
        place="p", counts={GPU: 0, TRAINING: 0, KUBERNETES: 9}, alerts=["NodePressure"]
    )
    rows = _rows(prometheus=none)
    text(rows["Observability"].evidence[:2])
    assert rows["Alerts"].outcome is Outcome.FAILED
    assert "LowGpuUtilization" in rows["Alerts"].evidence[0]
    cluster = _sound()
    _no_nodes(cluster)
    row = _rows(cluster, prometheus=none)["Observability"]
    text(row.evidence)
    gone = _rows(prometheus=PrometheusInventory(place="p", gap="p does not answer"))
    assert gone["Alerts"].outcome is gone["Observability"].outcome is Outcome.UNKNOWN
    text(gone["Alerts"].evidence)


@pytest.mark.parametrize(
    ("ended", "outcome"),
    [("11:30", Outcome.UNKNOWN), ("11:50", Outcome.FAILED), (None, Outcome.FAILED)],
)
def test_a_prometheus_that_began_after_the_runs_has_no_series_to_miss(
    ended: str | None, outcome: Outcome
) -> None:
    began = dt.datetime(2026, 11, 21, 11, 45, tzinfo=dt.UTC).timestamp()
    young = PrometheusInventory(place="p", counts={GPU: 4, TRAINING: 0, KUBERNETES: 9}, since=began)
    cluster = _sound()
    if ended:
        done = condition("Completed") | {"lastTransitionTime": f"2026-11-21T{ended}:00Z"}
        run = copy.deepcopy(_run()[0])
        run["status"] = {"conditions": [done]}
        cluster.put(run)
    assert _rows(cluster, prometheus=young)["Observability"].outcome is outcome


def _rules(*rules: tuple[str, str]) -> str:
    group = {"rules": [{"name": name, "state": state} for name, state in rules]}
    return json.dumps({"status": "success", "data": {"groups": [group]}})


def test_an_alert_that_fires_for_one_series_counts() -> None:
    asked: list[str] = []

    def get(path: str, query: object) -> str:
        asked.append(path)
        if path.endswith("/query"):
            value = {"metric": {}, "value": [0, "3"]}
            return json.dumps({"status": "success", "data": {"result": [value]}})
        return _rules(("A", "firing"), ("A", "inactive"), ("B", "pending"))

    prometheus = read_inventory(PrometheusClient("p", get))
    assert (prometheus.alerts, prometheus.firing) == (["A", "B"], ["A"])
    assert prometheus.counts == {GPU: 3, TRAINING: 3, KUBERNETES: 3}
    assert prometheus.since == 3
    assert asked == ["/api/v1/query"] * 3 + ["/api/v1/rules", "/api/v1/query"]


@pytest.mark.parametrize("text", [None, "<html>", "{}", '{"data": {"groups": [{}]}}'])
def test_invalid_prometheus_answers_are_gaps(text: str | None) -> None:
    prometheus = read_inventory(PrometheusClient("p", lambda *_: text))
    assert prometheus.counts is None and prometheus.gap


def test_forbidden_objects_are_unknown_and_not_failures(text: Text) -> None:
    kinds = [
        *("nodes", "namespaces", "resourcequotas", "networkpolicies", "serviceaccounts"),
        *("rolebindings", "clusterrolebindings", "clusterqueues", "priorityclasses"),
        *("validatingadmissionpolicybindings", "pods", "jobsets", "cronjobs"),
    ]
    cluster = _sound()
    cluster._forbidden = kinds
    rows = _rows(cluster)
    assert Outcome.FAILED not in {row.outcome for row in rows.values()}
    text(rows["GPU nodes"].evidence)
    assert rows["Security"].outcome is Outcome.UNKNOWN
