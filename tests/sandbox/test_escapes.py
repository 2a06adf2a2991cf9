"""Attempts to evade queue, quota and admission policies, made as a cluster administrator."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from infra.domain import naming
from tests.sandbox import (
    escape_attempts,
    escape_dev,
    escape_neighbours,
    escape_pods,
    escape_submissions,
)
from tests.sandbox.conftest import Cluster
from tests.sandbox.escape_attempts import KUEUE, MASTERS, Attempt
from tests.sandbox.escape_kit import (
    Ask,
    GuardedCluster,
    create,
    delete,
    get,
    home,
    queue_of,
    standing,
)
from tests.sandbox.escape_objects import (
    PRODUCTION,
    RESEARCH,
    collection,
    job,
    jobset,
    launched,
    pod,
    queued,
)
from tests.sandbox.node_kit import until
from training.launchers import LAUNCHERS
from training.spec import Groups

pytestmark = [pytest.mark.sandbox, pytest.mark.core, pytest.mark.long(80)]

ATTEMPTS: list[Attempt] = [
    *escape_attempts.every(),
    *escape_pods.every(),
    *escape_neighbours.every(),
    *escape_dev.every(),
    *escape_submissions.every(),
]
HOST = "does not have a host"
"""Error of a connection to a pod that is not on a node: admission has passed it."""
POLICIES = sorted({attempt.policies for attempt in ATTEMPTS})


@pytest.fixture(scope="module")
def guarded(cluster: Cluster) -> Iterator[GuardedCluster]:
    """The policies, and a run, a pod and a Workload that attempts can change."""
    with standing(cluster) as guarded:
        guarded.ask(create(escape_attempts.STANDING_RUN).for_real())
        guarded.ask(create(escape_attempts.STANDING_SET).for_real())
        guarded.ask(create(escape_attempts.STANDING_SERVER).for_real())
        guarded.ask(create(escape_attempts.STANDING_POD).for_real())
        guarded.ask(create(escape_neighbours.STANDING_TORCH).for_real())
        guarded.ask(create(escape_neighbours.STANDING_RUNTIME).for_real())
        for ask in escape_submissions.STANDING_OBJECTS:
            guarded.ask(ask.for_real())
        workload = create(escape_attempts.STANDING_WORKLOAD).by(KUEUE, MASTERS)
        guarded.ask(workload.for_real())
        yield guarded


@pytest.mark.parametrize("attempt", ATTEMPTS, ids=lambda attempt: attempt.name)
def test_attempt_is_rejected(guarded: GuardedCluster, attempt: Attempt) -> None:
    refused = guarded.ask.refusal(attempt.denied)
    expected = [f"'{naming.PROJECT}-{name}' with binding" for name in attempt.policies]
    assert any(policy in refused for policy in expected), refused
    assert guarded.ask.refusal(attempt.allowed) == ""


@pytest.mark.parametrize("policies", POLICIES, ids=" and ".join)
def test_each_attempt_passes_without_its_policies(
    guarded: GuardedCluster, policies: tuple[str, ...]
) -> None:
    attempts = [attempt for attempt in ATTEMPTS if attempt.policies == policies]
    with guarded.without(*policies, proof=attempts[0].denied):
        refused = {a.name: guarded.ask.refusal(a.denied) for a in attempts}
    assert {name: why for name, why in refused.items() if why} == {}


def test_every_policy_has_an_attempt(guarded: GuardedCluster) -> None:
    # Notes in the audit log and connections to pods are tried apart.
    apart = {"audit", "dev-shells"}
    assert {name for policies in POLICIES for name in policies} == guarded.policies.keys() - apart


def test_a_team_is_removed_while_the_policies_are_in_force(guarded: GuardedCluster) -> None:
    """As in a destroy: the namespace controller deletes whole collections, in requests without a name."""
    name = "leaving"
    namespace, *rest = home(name, like=RESEARCH)
    guarded.cluster.apply(namespace, *rest)
    guarded.cluster.delete(namespace)


def _is_admitted(guarded: GuardedCluster, ask: Ask) -> bool:
    return HOST in guarded.ask.refusal(ask)


@pytest.fixture(scope="module")
def dev_pod(guarded: GuardedCluster) -> dict[str, Any]:
    """Alice's dev pod, made by the Job controller; it waits for a node that does not exist."""
    made = escape_dev.dev_job()
    made["metadata"]["name"] = "devpod-alice"
    made["spec"]["template"]["spec"]["nodeSelector"] = {naming.POOL: "none"}
    guarded.ask(create(made).by(escape_dev.ALICE, MASTERS).for_real())

    def found() -> dict[str, Any] | None:
        pods = guarded.ask(Ask("GET", collection(pod()), query={}))["items"]
        return next((p for p in pods if p["metadata"]["name"].startswith("devpod-alice")), None)

    one = until(found, "the Job controller has made the dev pod")
    return {"apiVersion": "v1", "kind": "Pod", **one}


def test_users_connect_to_their_own_dev_pods_only(
    guarded: GuardedCluster, dev_pod: dict[str, Any]
) -> None:
    own, run = dev_pod["metadata"]["name"], escape_dev.RUNS_POD
    by_policy = "'trainyard-dev-shells' with binding"
    for groups in ((MASTERS,), (naming.group(RESEARCH, "researcher"),)):
        for kind in ("exec", "portforward"):
            mine = escape_dev.connect(own, kind, escape_dev.ALICE, *groups)
            # It passes admission; there is nothing to connect to.
            until(partial(_is_admitted, guarded, mine), "it is admitted")
            theirs = escape_dev.connect(own, kind, escape_dev.BOB, *groups)
            assert by_policy in guarded.ask.refusal(theirs), kind
            of_run = escape_dev.connect(run, kind, escape_dev.ALICE, *groups)
            assert by_policy in guarded.ask.refusal(of_run), kind
            none = escape_dev.connect("devpod-none", kind, escape_dev.ALICE, *groups)
            assert guarded.ask.refusal(none)
    attached = escape_dev.connect(own, "attach", escape_dev.ALICE, MASTERS)
    assert by_policy in guarded.ask.refusal(attached)
    stranger = escape_dev.connect(own, "exec", escape_dev.ALICE, naming.group(PRODUCTION, "lead"))
    assert "cannot create resource" in guarded.ask.refusal(stranger)
    for group in (naming.AUDITOR_GROUP, naming.DEPLOYER_GROUP, naming.VIEWER_GROUP):
        for kind in ("exec", "portforward"):
            reader = escape_dev.connect(own, kind, escape_dev.ALICE, group)
            assert "cannot create resource" in guarded.ask.refusal(reader), group
    theirs = escape_dev.connect(own, "exec", escape_dev.BOB, MASTERS)
    with guarded.without(
        "dev-shells", proof=escape_dev.connect(run, "exec", escape_dev.BOB, MASTERS), passed=HOST
    ):
        assert HOST in guarded.ask.refusal(theirs)


def test_a_dev_pod_keeps_its_owner_and_has_no_host_paths(
    guarded: GuardedCluster, dev_pod: dict[str, Any]
) -> None:
    for taken in escape_dev.taken_over(dev_pod):
        assert "'trainyard-dev-pods' with binding" in guarded.ask.refusal(taken)
    mounting = {k: v for k, v in dev_pod.items() if k != "status"}
    mounting["metadata"] = {
        k: v for k, v in dev_pod["metadata"].items() if k not in ("uid", "resourceVersion", "name")
    } | {"name": "devpod-alice-other"}
    volumes = [{"name": "host", "hostPath": {"path": "/"}}]
    mounting["spec"] = dev_pod["spec"] | {"volumes": volumes}
    refused = guarded.ask.refusal(create(mounting).by(escape_attempts.JOB, MASTERS))
    assert "violates PodSecurity" in refused


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_rendered_run_of_every_launcher_is_admitted(guarded: GuardedCluster, launcher: str) -> None:
    assert guarded.ask.refusal(create(launched(launcher))) == ""


_MEMBERS_RUNS = [(launcher, None) for launcher in LAUNCHERS] + [("jobset", Groups(min=1, max=2))]


@pytest.mark.parametrize(("launcher", "groups"), _MEMBERS_RUNS)
def test_rendered_run_of_every_launcher_is_admitted_from_a_member(
    guarded: GuardedCluster, launcher: str, groups: Groups | None
) -> None:
    for manifest in escape_submissions.launched_by_member(launcher, groups):
        ask = escape_submissions.by_member(create(manifest))
        assert guarded.ask.refusal(ask) == "", manifest["kind"]


def test_queued_gpu_run_completes(guarded: GuardedCluster) -> None:
    run = job(gpu=True, team=PRODUCTION)
    with queue_of(guarded, PRODUCTION):
        guarded.ask(create(run).for_real())
        try:

            def done() -> bool:
                return bool(guarded.ask(get(run)).get("status", {}).get("succeeded"))

            until(done, "the run is admitted, placed and done")
        finally:
            guarded.ask(delete(run, dryRun=[], propagationPolicy="Foreground"))


def test_ci_can_deploy_only_queued_runs(guarded: GuardedCluster) -> None:
    ci = ("ci", naming.DEPLOYER_GROUP)
    refused = guarded.ask.refusal(create(job(gpu=True, meta={})).by(*ci))
    assert f"'{naming.PROJECT}-queue' with binding" in refused and naming.QUEUE_NAME in refused
    assert guarded.ask.refusal(create(job(gpu=True)).by(*ci)) == ""


def test_policies_apply_to_team_namespaces_only(guarded: GuardedCluster) -> None:
    elsewhere = pod(gpu=True)
    elsewhere["metadata"]["namespace"] = "default"
    elsewhere["spec"].pop("serviceAccountName")
    assert guarded.ask.refusal(create(elsewhere)) == ""


def test_audit_log_records_user_run_config_queue_and_image(guarded: GuardedCluster) -> None:
    run = job(gpu=True, meta=queued(**{naming.RUN_ID: "escape-v1-0a1b2c3d"}))
    guarded.ask(create(run).by("ci", naming.DEPLOYER_GROUP))
    log = guarded.cluster.state.logs / "audit.log"
    notes = (
        '"trainyard-audit/run-id":"escape-v1-0a1b2c3d"',
        f'"trainyard-audit/config":"configmaps/team-{RESEARCH}/escape-v1-0a1b2c3d"',
        f'"trainyard-audit/queue":"{RESEARCH}"',
        "@sha256:",
        '"username":"ci"',
    )

    def logged() -> bool:
        return any(all(note in line for note in notes) for line in log.open())

    until(logged, "the audit log contains the run")


def test_no_team_may_lock_memory_by_a_capability(guarded: GuardedCluster) -> None:
    """A process that is not root never holds an added capability: nodes raise the limit instead."""
    locking = pod()
    assert guarded.ask.refusal(create(locking)) == ""
    locking["spec"]["containers"][0]["securityContext"]["capabilities"]["add"] = ["IPC_LOCK"]
    assert "violates PodSecurity" in guarded.ask.refusal(create(locking))


@pytest.fixture(scope="module")
def kueueless(guarded: GuardedCluster) -> Iterator[GuardedCluster]:
    """The same, without Kueue's pod, and its webhooks taken away."""
    kubectl = guarded.cluster.kubectl
    kinds = "mutatingwebhookconfigurations,validatingwebhookconfigurations"
    hooks = json.loads(kubectl("get", kinds, "-o", "json"))["items"]
    kueue = [hook for hook in hooks if hook["metadata"]["name"].startswith("kueue-")]
    kept = json.dumps({"apiVersion": "v1", "kind": "List", "items": [_plain(h) for h in kueue]})
    assert kueue
    manager = ("deployment/kueue-controller-manager", "-n", naming.KUEUE_NAMESPACE)
    kubectl("delete", "-f", "-", stdin=kept)
    kubectl("scale", *manager, "--replicas=0")
    pods = ("pods", "-n", naming.KUEUE_NAMESPACE, "--all")
    kubectl("wait", *pods, "--for=delete", "--timeout=180s")
    try:
        yield guarded
    finally:
        # It gets ready once it has written its certificate into them.
        kubectl("apply", "--server-side", "-f", "-", stdin=kept)
        kubectl("scale", *manager, "--replicas=1")
        kubectl("rollout", "status", *manager, "--timeout=180s")


def _plain(hook: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": hook["metadata"]["name"]}
    return {key: hook[key] for key in ("apiVersion", "kind", "webhooks")} | {"metadata": metadata}


def test_policies_apply_while_kueue_is_down(kueueless: GuardedCluster) -> None:
    # Workloads cannot be read or written then: Kueue's webhook converts between their versions.
    asked = [attempt for attempt in ATTEMPTS if attempt.policies != ("workloads",)]
    passed = [a.name for a in asked if not kueueless.ask.refusal(a.denied)]
    refused = {a.name: why for a in asked if (why := kueueless.ask.refusal(a.allowed))}
    assert passed == []
    assert refused == {}


@pytest.mark.parametrize("make", [job, jobset])
def test_unsuspended_run_is_rejected_while_kueue_is_down(
    kueueless: GuardedCluster, make: Any
) -> None:
    # While Kueue is there its webhook suspends whatever names a queue.
    refused = kueueless.ask.refusal(create(make(gpu=True, suspend=False)))
    assert f"'{naming.PROJECT}-queue' with binding" in refused and "suspend: true" in refused
    assert kueueless.ask.refusal(create(make(gpu=True, suspend=True))) == ""
    with kueueless.without("queue", proof=create(make(gpu=True, suspend=False))):
        pass
