"""`python -m ops` on the real API server, scheduler, Kueue and JobSet: caused problems are diagnosed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from infra.tenancy import access
from ops import __main__ as ops
from ops.cluster import Cluster as OpsCluster
from ops.collect import CONFIG_MAPS
from ops.watched import Watched
from sandbox.cluster import ClusterError
from tests.sandbox.node_kit import until
from tests.sandbox.ops_kit import WORK, Json, Live, Stage

pytestmark = [pytest.mark.sandbox, pytest.mark.long(72)]

STAGE = Stage(team="opslive")
TEAM, NAMESPACE, REAL = STAGE.team, STAGE.namespace, STAGE.real


def test_unschedulable_pod_is_reported_with_the_taint(live: Live) -> None:
    live.start("tainted", WORK, nodes=1, pool=STAGE.bare)
    answer = live.await_symptom("tainted", "missing-toleration")
    assert any("have the taint ops-maintenance:NoSchedule" in line for line in answer["evidence"])


def test_completed_run_is_finished_and_exit_code_78_is_invalid_configuration(
    live: Live,
) -> None:
    live.start("good", "true", nodes=1)
    live.start("bad", "echo no such dataset; echo step 3/9 loss 5.5; exit 78", nodes=1)
    code, text = live.command("run", "wait", "bad")
    assert (code, text.splitlines()[-1].startswith("bad: failed")) == (78, True), text
    assert live.command("run", "wait", "good")[0] == 0
    assert live.command("run", "logs", "bad") == (0, "no such dataset\nstep 3/9 loss 5.5\n")
    listed = json.loads(
        live.command("run", "list", "--team", TEAM, "--state", "failed", "--json")[1]
    )
    at = next(one["progress"] for one in listed["runs"] if one["name"] == "bad")
    assert (at["step"], at["steps"], at["loss"]) == (3, 9, 5.5), "of the log of a pod that ended"
    live.await_symptom("good", "finished")
    answer = live.await_symptom("bad", "bad-configuration")
    assert any(line.startswith(f"kubectl logs -n {NAMESPACE} bad-") for line in answer["remedy"])
    live.stop("good", "bad")


def test_a_list_is_kept_by_a_watch(live: Live) -> None:
    watched = Watched(OpsCluster(live.cluster.kubeconfig))

    def names() -> list[str]:
        return [
            item["metadata"]["name"] for item in watched.items(CONFIG_MAPS, NAMESPACE, "watched")
        ]

    assert names() == []
    (kept,) = watched._lists.values()
    for name, label in (("seen", "watched=yes"), ("unseen", "other=yes")):
        live.cluster.kubectl("create", "configmap", name, "-n", NAMESPACE)
        live.cluster.kubectl("label", "configmap", name, "-n", NAMESPACE, label)
    until(lambda: names() == ["seen"], "the watch has the new object")
    live.cluster.kubectl("delete", "configmap", "seen", "-n", NAMESPACE)
    until(lambda: names() == [], "the watch has lost it")
    assert kept._watching and [*watched._lists.values()] == [kept]


def test_unready_gang_is_reported_with_the_unready_pod(live: Live) -> None:
    probe = {"exec": {"command": ["false"]}, "periodSeconds": 1}
    live.start("unready", WORK, nodes=1, readinessProbe=probe)
    answer = live.await_symptom("unready", "not-ready")
    assert answer["headline"].endswith("0 of 1 pods are ready")
    live.stop("unready")


def test_quota_affinity_nodes_and_queue_causes_are_distinguished(live: Live) -> None:
    live.start("strict", WORK, nodes=1, pool="no-such-pool")
    live.start("holder", WORK, nodes=2)
    live.await_symptom("holder", "running")
    answer = live.await_symptom("strict", "no-flavor")
    assert f"resourceflavor/{REAL}: the run's node affinity excludes it" in answer["evidence"]

    live.start("second", WORK, nodes=2)
    answer = live.await_symptom("second", "quota-exhausted")
    assert answer["headline"].startswith(
        "waits for quota: 2 nvidia.com/gpu requested, 0 free in opslive-"
    )
    assert f"{REAL}: holder (team {TEAM}) holds 2 GPUs on 2 nodes" in answer["evidence"]

    live.start("huge", WORK, nodes=3)
    live.await_symptom("huge", "too-big")
    live.stop("strict", "second", "huge", "holder")


def test_quota_without_nodes_reports_the_state_of_the_nodes(live: Live) -> None:
    live.cluster.kubectl("cordon", STAGE.nodes()[1])
    live.start("placed", WORK, nodes=2)
    answer = live.await_symptom("placed", "no-nodes")
    assert "nodes: 1 of 2 are cordoned" in answer["evidence"]
    live.cluster.kubectl("uncordon", STAGE.nodes()[1])
    live.await_symptom("placed", "running")
    live.stop("placed")


def test_gang_not_ready_in_time_is_reported_as_requeued(live: Live) -> None:
    def sent_back() -> bool:
        history = live.why("tainted")["history"]
        return any("its pods were not all ready in time" in line for line in history)

    until(sent_back, "the run with the taint was sent back")
    live.stop("tainted")


def test_drain_stops_all_runs_and_resume_readmits_them(live: Live) -> None:
    live.start("drained", WORK, nodes=2)
    live.await_symptom("drained", "running")
    code, text = live.command("stack", "drain", "--team", TEAM, "--timeout", "60")
    assert code == 0, text
    assert f"trainyard stack resume --team {TEAM}" in text
    assert live.pods() == []
    answer = live.why("drained")
    assert answer["symptom"] == "queue-held"
    assert "evicted once: its queue was drained" in answer["history"]
    assert live.attempt("drained") == 1
    assert live.command("stack", "drain", "--team", TEAM)[0] == 0
    # The queue is not reopened by accident: other field managers get a conflict.
    with pytest.raises(ClusterError, match="conflict"):
        live.cluster.apply(STAGE.queue())

    assert live.command("stack", "resume", "--team", TEAM) == (0, f"Open: team-{TEAM}\n")
    assert live.command("stack", "resume", "--team", TEAM)[1] == "Open: no queue was stopped\n"
    live.cluster.apply(STAGE.queue())
    live.await_symptom("drained", "running")
    assert live.attempt("drained") == 2
    assert live.command("run", "logs", "drained", "--attempt", "2") == (0, "")
    assert live.command("run", "logs", "drained", "--attempt", "1")[0] == 2, "its pods are gone"
    live.stop("drained")


@pytest.fixture
def researcher(live: Live, tmp_path: Path) -> Path:
    account: Json = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "reader"}}
    account["metadata"]["namespace"] = NAMESPACE
    binding = access.role_binding("researcher", TEAM)
    binding["subjects"] = [{"kind": "ServiceAccount", "name": "reader", "namespace": NAMESPACE}]
    live.cluster.apply(account, access.role("researcher", TEAM), binding)
    return live.cluster.kubeconfig_as(tmp_path / "researcher", "reader", NAMESPACE)


def test_researcher_sees_the_own_team_and_which_data_is_hidden(
    live: Live, researcher: Path
) -> None:
    live.start("mine", WORK, nodes=2)
    live.await_symptom("mine", "running")
    live.start("late", WORK, nodes=2)
    live.await_symptom("late", "quota-exhausted")

    options = ["--kubeconfig", str(researcher)]
    assert ops.main(["run", "why", "late", *options]) == 2
    assert "--team" in live.capsys.readouterr().err
    assert ops.main(["run", "why", "late", "--team", TEAM, "--json", *options]) == 0
    answer = json.loads(live.capsys.readouterr().out)
    assert answer["symptom"] == "quota-exhausted"
    assert {"clusterqueues", "nodes"} <= set(answer["hidden"])
    assert "insufficient unused quota" in answer["evidence"][0]
    assert ops.main(["stack", "drain", *options]) == 2
    assert ops.main(["run", "list", *options]) == 2
    assert "--team" in live.capsys.readouterr().err

    options += ["--team", TEAM]
    assert ops.main(["run", "list", "--json", *options]) == 0
    rows = {one["run_id"]: one for one in json.loads(live.capsys.readouterr().out)["runs"]}
    assert (rows["mine"]["state"], rows["mine"]["ready"], rows["mine"]["nodes"]) == (
        "running",
        2,
        2,
    )
    assert (rows["late"]["state"], rows["late"]["place"]) == ("queued", 1)
    assert ops.main(["run", "show", "mine", "--json", *options]) == 0
    shown = json.loads(live.capsys.readouterr().out)
    assert [pod["node"] for pod in shown["pods"]] == STAGE.nodes()
    assert {pod["pool"] for pod in shown["pods"]} == {STAGE.real}
    assert ops.main(["run", "list", "--team", "nobody-s", *options[:2]]) == 2
    assert "you have no role in team-nobody-s" in live.capsys.readouterr().err
    live.stop("mine", "late")
