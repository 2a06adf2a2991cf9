"""Runs of replica groups on the real Kueue and JobSet: nodes go and come, and every loss stays the same."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from infra.addons import elastic_runs
from infra.domain import naming
from infra.kubernetes.admission_policy import binding
from infra.kubernetes.objects import Manifest
from infra.queueing import kueue_admission
from infra.sections.programs import ElasticRunsConfig
from infra.tenancy import access
from ops import __main__ as ops
from ops import objects
from ops.cluster import Cluster as Api
from ops.release import Releaser
from ops.steer import settings
from ops.steer.control import Controller
from ops.steer.cordon import SLOW_S
from sandbox.node.reclaim import reclaim, restore
from tests.sandbox import add_on_kit, elastic_kit
from tests.sandbox.add_on_kit import Named, applied, namespace
from tests.sandbox.conftest import Cluster
from tests.sandbox.elastic_kit import ENDLESS, KINDS, STAGE, ElasticRun, Json, is_ready, undisturbed
from tests.sandbox.escape_kit import Asker, create, delete, patch
from tests.sandbox.node_kit import HOST, until
from tests.sandbox.queue_kit import holds_quota
from tests.sandbox.test_in_cluster import may
from training.spec import Groups
from trainyard.contract import CHECKPOINT_MOUNT

pytestmark = [pytest.mark.sandbox, pytest.mark.long(11)]

NOTICE_S = 60.0
Reference = partial[dict[int, float]]


@pytest.fixture(scope="module")
def reference(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reference]:
    """Losses of the same run with one group that nothing disturbs; it begins while the fleet is deployed."""
    with undisturbed(cluster, tmp_path_factory.mktemp("undisturbed"), **ENDLESS) as losses:
        yield losses


@pytest.fixture(scope="module")
def elastic(cluster: Cluster, reference: Reference) -> Iterator[Cluster]:
    """The cluster with the team, an on-demand node and two spot nodes; deleted at the end."""
    with STAGE.deployed(cluster, KINDS) as ready:
        yield ready


@pytest.fixture(autouse=True)
def clean(elastic: Cluster) -> Iterator[None]:
    """The next test finds all nodes and no run, whatever becomes of this one."""
    yield
    restore("all", state=elastic.state)
    elastic.kubectl("delete", KINDS, "-n", STAGE.namespace, "--all", "--timeout=180s")


@pytest.fixture
def command(elastic: Cluster, capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*words: str) -> str:
        capsys.readouterr()
        assert ops.main([*words, "--kubeconfig", str(elastic.kubeconfig)]) == 0
        return capsys.readouterr().out

    return run


def group_of(run: ElasticRun, number: int) -> Json:
    """The pod of a group that takes part."""
    [pod] = [p for p in run.pods() if p["metadata"]["labels"][naming.GROUP] == str(number)]
    return pod


def identity(pod: Json) -> tuple[str, int]:
    return pod["metadata"]["uid"], pod["status"]["containerStatuses"][0]["restartCount"]


@pytest.mark.long(82)
def test_nodes_go_and_come_and_nobody_restarts(
    elastic: Cluster, reference: Reference, command: Any
) -> None:
    run = elastic_kit.start(elastic, "stays", Groups(min=1, max=2, on_demand=1), **ENDLESS)
    run.await_members(2)
    run.await_steps()
    stays, goes = group_of(run, 0), group_of(run, 1)
    assert goes["spec"]["nodeName"].startswith(elastic_kit.SPOT)
    assert stays["spec"]["nodeName"].startswith(elastic_kit.ON_DEMAND)
    # Both spot nodes, so that the group finds no other one.
    spot = [f"{elastic_kit.SPOT}-{number}" for number in range(2)]
    for node in sorted(spot, key=lambda name: name == goes["spec"]["nodeName"]):
        reclaim(node, NOTICE_S, state=elastic.state)
    run.await_members(1)
    run.await_steps()
    assert identity(group_of(run, 0)) == identity(stays)
    assert not run.jobsets()[0].get("status", {}).get("restarts")

    team = ("--team", elastic_kit.TEAM)
    told = json.loads(command("run", "why", "stays", "--json", *team))
    assert told["symptom"] == "groups-missing" and "trains with 1 of 2 groups" in told["headline"]
    [listed] = json.loads(command("run", "list", "--json", *team))["runs"]
    assert (listed["state"], listed["groups_total"]) == ("running", 2)
    assert "1/2 groups" in command("run", "list", *team)
    assert "step " in command("run", "logs", "stays", *team)

    for node in spot:
        restore(node, state=elastic.state)
    run.await_members(2)
    run.await_steps()
    assert identity(group_of(run, 0)) == identity(stays)

    # The leader's node vanishes: the other group goes on under a new attempt.
    first, second = run.members()
    lead, follow = run.pod_of(first), run.pod_of(second)
    attempts = run.attempts()
    reclaim(lead["spec"]["nodeName"], 0.0, state=elastic.state)
    run.until(lambda: run.members()[:1] == [second], "the other group leads")
    run.until(lambda: run.attempts() > attempts, "steps of the new leader")
    assert identity(run.pod_of(second)) == identity(follow)
    restore(lead["spec"]["nodeName"], state=elastic.state)
    run.await_members(2)
    last = run.await_steps()

    losses = {step: loss for step, loss in run.losses().items() if step <= last}
    assert sorted(losses) == list(range(1, last + 1))
    assert losses == reference(last)


@pytest.mark.full_only
def test_below_min_the_run_saves_waits_and_resumes(
    elastic: Cluster, reference: Reference, command: Any
) -> None:
    run = elastic_kit.start(elastic, "pair", Groups(min=2, max=2, on_demand=0), **ENDLESS)
    run.await_members(2)
    run.await_steps()
    lost = group_of(run, 1)["spec"]["nodeName"]
    reclaim(lost, NOTICE_S, state=elastic.state)
    run.until(lambda: run.events("finished"), "it saves")
    saved = run.events("finished")[-1]
    assert saved["reason"] == "preempted"
    # A group that waits for another one does not keep its node.
    run.until(
        lambda: not any(holds_quota(one) for one in run.workloads().values()),
        "no group holds a node",
    )
    assert "does not train" in command("run", "why", "pair", "--team", elastic_kit.TEAM)
    restore(lost, state=elastic.state)
    run.await_members(2)
    last = run.await_steps()
    assert run.events("resumed")[-1]["from_step"] == saved["step"]
    losses = {step: loss for step, loss in run.losses().items() if step <= last}
    assert sorted(losses) == list(range(1, last + 1))
    assert losses == reference(last)


# A node on which the run names a slow rank


STEERED: Final[Json] = {
    "pools": [{"name": elastic_kit.SPOT, "place": "spot", "usdPerNodeHour": 10.0}],
    "rules": {"losses": 2, "windowSeconds": 3600.0, "emptySeconds": 3600.0},
    "cordonNamedNodes": True,
}


@pytest.mark.long(45)
def test_a_group_leaves_a_node_that_was_cordoned_for_its_slow_rank(
    elastic: Cluster, reference: Reference, tmp_path: Path
) -> None:
    """No step is lost, the other group goes on in its process, and the group joins from another node."""
    run = elastic_kit.start(elastic, "slow", Groups(min=1, max=2), **ENDLESS)
    run.await_members(2)
    run.await_steps()
    on_spot = [
        n for n in (0, 1) if group_of(run, n)["spec"]["nodeName"].startswith(elastic_kit.SPOT)
    ]
    goes = on_spot[-1]
    stays, slow = group_of(run, 1 - goes), group_of(run, goes)["spec"]["nodeName"]
    said: list[str] = []
    with applied(elastic, add_on_kit.add_on(STEERED, elastic_kit.TEAM)):
        api = add_on_kit.api(elastic, tmp_path)
        controller = Controller(api, settings.parse(STEERED), said.append)
        now = time.time()
        for late in (0.0, SLOW_S + 1):
            known: Any = Named(elastic_kit.TEAM, run.spec.run_id, slow, "slow-rank", now + late)
            controller.step(known, now + late)
        assert any(f"node {slow}: cordoned" in line for line in said), said

        def moved() -> bool:
            controller.step(None, time.time())
            nodes = {p["spec"].get("nodeName") for p in run.pods()}
            return len(run.members()) == 2 and slow not in nodes and len(nodes) == 2

        run.until(moved, f"the group is on another node: {said}")
    assert identity(group_of(run, 1 - goes)) == identity(stays)
    last = run.await_steps()
    reasons = [event["reason"] for event in run.events("membership")]
    elastic.kubectl("uncordon", slow)
    assert [line for line in said if "the run goes on with 1 group" in line], said
    assert any(" left" in reason for reason in reasons), reasons  # announced
    losses = {step: loss for step, loss in run.losses().items() if step <= last}
    assert sorted(losses) == list(range(1, last + 1))
    assert losses == reference(last)


# What is left to do when a run has ended


def _add_on() -> list[Manifest]:
    """What the add-on renders, without its pod, and the policy that keeps others from Workloads."""
    found = copy.deepcopy(elastic_runs.plan(ElasticRunsConfig.model_construct(image="none")))
    walls = kueue_admission.workloads_written_by_kueue()
    home = namespace(naming.ELASTIC_NAMESPACE, **found.namespace_labels)
    rights = access.elastic_access(elastic_kit.TEAM)
    return [home, walls, binding(walls), *found.before, *rights]


@pytest.mark.long(30)
def test_groups_of_an_ended_run_are_released_and_nothing_else_can_be_written(
    elastic: Cluster, tmp_path: Path, command: Any
) -> None:
    account = elastic_runs.NAME
    with applied(elastic, _add_on()):
        own = elastic.kubeconfig_as(tmp_path / "own", account, naming.ELASTIC_NAMESPACE)
        api = Api(own)
        said: list[str] = []
        releaser = Releaser(api, said.append)
        # Three nodes are there. The last group gets that of the first one, and does not take part in time.
        end = "ends-now"
        script = (
            'test $GROUP = 3 || touch "$TRAINYARD_READY_FILE"; '
            f"test $GROUP = 0 && {{ until test -e {CHECKPOINT_MOUNT}/{end}; do sleep 0.2; done; exit 0; }}; "
            "sleep 600 & wait"
        )
        run = elastic_kit.start_scripts(elastic, "ends", Groups(max=4), script, image=HOST)
        run.until(lambda: len(run.workloads()) == 4, "four Workloads")
        run.until(lambda: sum(map(is_ready, run.workloads().values())) == 3, "three take part")
        assert not releaser.step()
        (STAGE.volume(elastic, naming.CHECKPOINTS_CLAIM) / end).touch()
        run.until(lambda: _done(run.jobsets()[0]), "the first group is done")
        run.until(releaser.step, "a group is released")
        released = [n for n, one in run.workloads().items() if one["spec"].get("active") is False]
        assert released == [3] and len(said) == 1
        # Those that take part end by themselves.
        assert all(is_ready(run.workloads()[number]) for number in (1, 2))
        _walls(elastic, run, 1)


def _done(jobset: Json) -> bool:
    return objects.condition_is_true(jobset, "Completed")


def _walls(cluster: Cluster, run: ElasticRun, number: int) -> None:
    """What the service account cannot do, beside its one write."""
    ask = Asker(cluster.kubeconfig)
    home = naming.ELASTIC_NAMESPACE
    name = f"system:serviceaccount:{home}:{elastic_runs.NAME}"
    mine = (name, "system:serviceaccounts", "system:authenticated")
    workload = run.workloads()[number]
    assert not ask.refusal(patch(workload, {"spec": {"active": False}}).by(*mine))
    changes: list[Json] = [
        {"spec": {"active": True}},
        {"spec": {"active": False, "priority": 987}},
        {"spec": {"active": False, "queueName": "another"}},
        {"spec": {"active": False}, "metadata": {"labels": {"a": "b"}}},
        {"spec": {"active": False}, "metadata": {"annotations": {naming.ALLOWED_FLAVORS: "x"}}},
        {"spec": {"active": False}, "metadata": {"ownerReferences": None}},
        {"spec": {"active": False}, "metadata": {"finalizers": ["test.dev/kept"]}},
    ]
    for change in changes:
        assert ask.refusal(patch(workload, change).by(*mine)), change
    for request in (delete(workload), create(workload)):
        assert "forbidden" in ask.refusal(request.by(*mine)), request
    for verb, resource, where in (
        ("get", "secrets", ""),
        ("list", "pods", ""),
        ("patch", "workloads.kueue.x-k8s.io/status", STAGE.namespace),
        ("patch", "workloads.kueue.x-k8s.io", "default"),
        ("patch", "jobsets.jobset.x-k8s.io", STAGE.namespace),
        ("delete", "jobsets.jobset.x-k8s.io", STAGE.namespace),
        ("create", "pods", STAGE.namespace),
        ("delete", "pods", STAGE.namespace),
        ("patch", "clusterqueues.kueue.x-k8s.io", ""),
        ("impersonate", "users", ""),
    ):
        account = f"{home}:{elastic_runs.NAME}"
        assert not may(cluster, account, verb, resource, where), (verb, resource, where)


def test_the_account_cannot_stop_a_run_without_groups(elastic: Cluster) -> None:
    single = elastic_kit.start_scripts(elastic, "single", None, "sleep 600 & wait", image=HOST)
    with applied(elastic, _add_on()):
        workload = until(lambda: single.workloads().get(0), "it has a Workload")
        name = f"system:serviceaccount:{naming.ELASTIC_NAMESPACE}:{elastic_runs.NAME}"
        mine = (name, "system:serviceaccounts", "system:authenticated")
        change = {"spec": {"active": False}}
        asker, asked = Asker(elastic.kubeconfig), patch(workload, change).by(*mine)
        # The API server applies new policies within seconds.
        until(lambda: "replica groups only" in asker.refusal(asked), "the policy refuses it")
