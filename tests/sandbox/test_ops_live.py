"""`python -m ops` on the real API server, scheduler, Kueue and JobSet: trouble is made, and named."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra import naming
from infra.tenancy import access
from ops import __main__ as ops
from sandbox.cluster import ClusterError
from tests.sandbox.conftest import Cluster
from tests.sandbox.node_kit import HOST, node_manifest, platform_in, until

pytestmark = pytest.mark.sandbox

TEAM = "opslive"
NAMESPACE = naming.namespace(TEAM)
REAL, BARE = "ops-real", "ops-bare"
"""Pools: two process nodes that Kueue places pods on; one node that nobody may use, left to the scheduler."""
TOPOLOGY = "ops-topology"
WORK = "trap 'exit 75' TERM; sleep 600 & wait"
"""As a trainer does, it ends on SIGTERM with its own exit code."""
STEP_S = 60.0

Json = dict[str, Any]
Why = Callable[[str], Json]


def _object(kind: str, name: str, spec: Json, **labels: str) -> Json:
    api = "kueue.x-k8s.io/v1beta2"
    metadata: Json = {"name": name, "labels": labels}
    if kind == "LocalQueue":
        metadata["namespace"] = NAMESPACE
    return {"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec}


def _node(name: str, pool: str) -> Json:
    node = node_manifest(name)
    node["metadata"]["labels"] |= {naming.POOL: pool, naming.ZONE: "ops-zone"}
    if pool == BARE:
        node["metadata"]["annotations"] = {naming.KWOK_NODE: "fake"}
        node["spec"] = {"taints": [{"key": "ops-maintenance", "effect": "NoSchedule"}]}
    return node


def _queue() -> Json:
    covered = {"cpu": 100, "memory": "100Gi"}

    def quotas(pool: str, gpus: int) -> Json:
        amounts = covered | {naming.GPU: gpus}
        return {
            "name": pool,
            "resources": [{"name": n, "nominalQuota": str(v)} for n, v in amounts.items()],
        }

    group = {
        "coveredResources": [*covered, naming.GPU],
        "flavors": [quotas(REAL, 2), quotas(BARE, 1)],
    }
    selector = {"matchLabels": {naming.TEAM: TEAM}}
    spec = {"namespaceSelector": selector, "resourceGroups": [group], "stopPolicy": "None"}
    name = naming.cluster_queue(TEAM)
    return _object(
        "ClusterQueue", name, spec, **{naming.TEAM: TEAM, naming.PART_OF: naming.PROJECT}
    )


def _flavor(pool: str, **more: str) -> Json:
    return _object("ResourceFlavor", pool, {"nodeLabels": {naming.POOL: pool}, **more})


def _platform() -> list[Json]:
    levels = [{"nodeLabel": naming.ZONE}, {"nodeLabel": naming.HOSTNAME}]
    namespace = {"name": NAMESPACE, "labels": {naming.TEAM: TEAM}}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": namespace},
        _node("ops-real-0", REAL),
        _node("ops-real-1", REAL),
        _node("ops-bare-0", BARE),
        _object("Topology", TOPOLOGY, {"levels": levels}),
        _flavor(REAL, topologyName=TOPOLOGY),
        _flavor(BARE),
        _queue(),
        _object("LocalQueue", TEAM, {"clusterQueue": naming.cluster_queue(TEAM)}),
    ]


def _template(script: str, pool: str, labels: Json, probe: Json | None) -> Json:
    term = {"key": naming.POOL, "operator": "In", "values": [pool]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [term]}]}
    amounts = {"cpu": "100m", "memory": "64Mi", naming.GPU: "1"}
    main = {
        "name": "trainer",
        "image": HOST,
        "command": ["sh", "-c", script],
        "resources": {"requests": amounts, "limits": amounts},
        **({"readinessProbe": probe} if probe else {}),
    }
    placed = {naming.PREFERRED_TOPOLOGY: naming.ZONE} if pool == REAL else {}
    return {
        "metadata": {"labels": labels, "annotations": placed},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 5,
            "automountServiceAccountToken": False,
            "affinity": {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}
            },
            "containers": [main],
        },
    }


def _run(
    name: str, script: str, *, nodes: int, pool: str = REAL, probe: Json | None = None
) -> Json:
    """A JobSet as the launcher makes it, with a shell in the trainer's place."""
    labels = {naming.RUN: name, naming.RUN_ID: name, naming.TEAM: TEAM, naming.LAUNCHER: "jobset"}
    codes = {"containerName": "trainer", "operator": "In", "values": [78]}
    job = {
        "parallelism": nodes,
        "completions": nodes,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": codes}]},
        "podReplacementPolicy": "Failed",
        "template": _template(script, pool, labels, probe),
    }
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": labels | {naming.QUEUE_NAME: TEAM},
        },
        "spec": {"replicatedJobs": [{"name": "worker", "replicas": 1, "template": {"spec": job}}]},
    }


@dataclass(frozen=True)
class Live:
    """The team on the cluster, and our commands on it."""

    cluster: Cluster
    capsys: pytest.CaptureFixture[str]

    def command(self, *argv: str) -> tuple[int, str]:
        """Exit code and output of `python -m ops`."""
        self.capsys.readouterr()
        code = ops.main([*argv, "--kubeconfig", str(self.cluster.kubeconfig)])
        return code, self.capsys.readouterr().out

    def why(self, run: str) -> Json:
        code, text = self.command("why", run, "--json")
        assert code == 0, text
        answer: Json = json.loads(text)
        return answer

    def await_symptom(self, run: str, symptom: str, deadline_s: float = STEP_S) -> Json:
        """The answer, once it is this symptom; fails with the last answer otherwise."""
        last: Json = {}

        def found() -> Json | None:
            last.update(self.why(run))
            return last if last["symptom"] == symptom else None

        try:
            return until(found, f"{run} is {symptom}", deadline_s)
        except AssertionError as error:
            raise AssertionError(f"{error}; the last answer was {last}") from None

    def apply(self, manifest: Json) -> None:
        """As the platform does: server-side, by the manager that made it."""
        self.cluster.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(manifest))

    def start(self, manifest: Json) -> None:
        self.cluster.kubectl("create", "-f", "-", stdin=json.dumps(manifest))

    def stop(self, *runs: str) -> None:
        self.cluster.kubectl("delete", "jobset", "-n", NAMESPACE, "--timeout=60s", *runs)

    def pods(self) -> list[str]:
        """Pods of the team that are not over."""
        listed = self.cluster.kubectl("get", "pods", "-n", NAMESPACE, "-o", "json")
        return [
            p["metadata"]["name"]
            for p in json.loads(listed)["items"]
            if p["status"].get("phase") in ("Pending", "Running")
        ]


@pytest.fixture(scope="module")
def team(cluster: Cluster) -> Iterator[Cluster]:
    """The team, its pools and its queue; all gone in the end."""
    with platform_in(cluster, _platform(), TEAM, (REAL, BARE)) as ready:
        yield ready


@pytest.fixture
def live(team: Cluster, capsys: pytest.CaptureFixture[str]) -> Live:
    return Live(team, capsys)


def test_a_pod_that_no_node_takes_is_named_with_the_taint(live: Live) -> None:
    live.start(_run("tainted", WORK, nodes=1, pool=BARE))
    answer = live.await_symptom("tainted", "unschedulable")
    text = " ".join(answer["evidence"])
    assert "1 of 1 have the taint ops-maintenance:NoSchedule" in text or "ops-maintenance" in text


def test_a_run_that_did_its_steps_is_finished_and_one_with_78_is_a_bad_configuration(
    live: Live,
) -> None:
    live.start(_run("good", "true", nodes=1))
    live.start(_run("bad", "echo no such dataset; exit 78", nodes=1))
    live.await_symptom("good", "finished")
    answer = live.await_symptom("bad", "bad-configuration")
    assert any(line.startswith(f"kubectl logs -n {NAMESPACE} bad-") for line in answer["remedy"])
    live.stop("good", "bad")


def test_a_gang_that_does_not_get_ready_says_which_pod(live: Live) -> None:
    probe = {"exec": {"command": ["false"]}, "periodSeconds": 1}
    live.start(_run("unready", WORK, nodes=1, probe=probe))
    answer = live.await_symptom("unready", "not-ready")
    assert answer["headline"].endswith("0 of 1 pods are ready")
    live.stop("unready")


def test_quota_affinity_nodes_and_the_queue_itself_are_told_apart(live: Live) -> None:
    live.start(_run("strict", WORK, nodes=1, pool="no-such-pool"))
    live.start(_run("holder", WORK, nodes=2))
    live.await_symptom("holder", "running")
    answer = live.await_symptom("strict", "no-flavor")
    assert f"resourceflavor/{REAL}: the run's node affinity leaves it out" in answer["evidence"]

    live.start(_run("second", WORK, nodes=2))
    answer = live.await_symptom("second", "quota-exhausted")
    assert answer["headline"].startswith("waits for quota: 2 nvidia.com/gpu asked, 0 free in ops-")
    assert f"{REAL}: holder (team {TEAM}) holds 2 GPUs on 2 nodes" in answer["evidence"]

    live.start(_run("huge", WORK, nodes=3))
    live.await_symptom("huge", "too-big")
    live.stop("strict", "second", "huge", "holder")


def test_quota_without_nodes_says_what_is_wrong_with_the_nodes(live: Live) -> None:
    live.cluster.kubectl("cordon", "ops-real-1")
    live.start(_run("placed", WORK, nodes=2))
    answer = live.await_symptom("placed", "no-nodes")
    assert "nodes: 1 of 2 are cordoned" in answer["evidence"]
    live.cluster.kubectl("uncordon", "ops-real-1")
    live.await_symptom("placed", "running")
    live.stop("placed")


def test_a_gang_that_was_not_whole_in_time_went_back_to_its_queue(live: Live) -> None:
    def sent_back() -> bool:
        history = live.why("tainted")["history"]
        return any("its pods were not all ready in time" in line for line in history)

    until(sent_back, "the run with the taint was sent back", 90.0)
    live.stop("tainted")


def test_draining_leaves_nothing_running_and_resuming_brings_the_run_back(live: Live) -> None:
    live.start(_run("drained", WORK, nodes=2))
    live.await_symptom("drained", "running")
    code, text = live.command("drain", "--team", TEAM, "--timeout", "60")
    assert code == 0, text
    assert f"python -m ops resume --team {TEAM}" in text
    assert live.pods() == []
    answer = live.why("drained")
    assert answer["symptom"] == "queue-held"
    assert "sent back once: its queue was drained" in answer["history"]
    assert live.command("drain", "--team", TEAM)[0] == 0
    # Nobody opens the queue by accident: who else applies it is told of the conflict.
    with pytest.raises(ClusterError, match="conflict"):
        live.apply(_queue())

    assert live.command("resume", "--team", TEAM) == (0, f"Open: team-{TEAM}\n")
    assert live.command("resume", "--team", TEAM)[1] == "Open: no queue was stopped\n"
    live.apply(_queue())
    live.await_symptom("drained", "running")
    live.stop("drained")


@pytest.fixture
def researcher(live: Live, tmp_path: Path) -> Path:
    """A kubeconfig of somebody who has the researcher's role in the team, and nothing else."""
    account: Json = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "reader"}}
    account["metadata"]["namespace"] = NAMESPACE
    binding = access.role_binding("researcher", TEAM)
    binding["subjects"] = [{"kind": "ServiceAccount", "name": "reader", "namespace": NAMESPACE}]
    for manifest in (account, access.role("researcher", TEAM), binding):
        live.apply(manifest)
    token = live.cluster.kubectl("create", "token", "reader", "-n", NAMESPACE).strip()
    config = yaml.safe_load(live.cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    path = tmp_path / "researcher"
    path.write_text(yaml.safe_dump(config))
    return path


def test_a_researcher_is_answered_for_the_own_team_and_told_what_is_hidden(
    live: Live, researcher: Path
) -> None:
    live.start(_run("mine", WORK, nodes=2))
    live.await_symptom("mine", "running")
    live.start(_run("late", WORK, nodes=2))
    live.await_symptom("late", "quota-exhausted")

    options = ["--kubeconfig", str(researcher)]
    assert ops.main(["why", "late", *options]) == 2
    assert "name your team with --team" in live.capsys.readouterr().err
    assert ops.main(["why", "late", "--team", TEAM, "--json", *options]) == 0
    answer = json.loads(live.capsys.readouterr().out)
    assert answer["symptom"] == "quota-exhausted"
    assert {"clusterqueues", "nodes"} <= set(answer["hidden"])
    assert "insufficient unused quota" in answer["evidence"][0]
    assert ops.main(["drain", *options]) == 2
    live.stop("mine", "late")


def test_a_run_that_is_not_there_is_exit_code_1(live: Live) -> None:
    kubeconfig: Path = live.cluster.kubeconfig
    assert ops.main(["why", "nothing-like-it", "--kubeconfig", str(kubeconfig)]) == 1
