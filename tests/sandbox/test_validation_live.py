"""Node checks from the platform's templates, and the readiness check with them, on process nodes through Kueue.

What needs a GPU is not shown: that GPUs compute, NCCL's transport and bandwidth, driver and fabric. Smoke test,
collective and trainings run on the CPU, with gloo, and `stack ready` calls their stages simulated.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from infra.domain import naming
from infra.domain.storage import Volume
from infra.sections.teams import RestoreDrillConfig
from infra.sites.simulated import storage
from infra.tenancy import access, restore_drill, team, volumes
from ops import __main__ as ops
from sandbox.node.api import Client, object_path
from tests.sandbox.conftest import Cluster
from tests.sandbox.node_kit import trainer_image, until
from tests.sandbox.validation_kit import SPACE, CheckedStack
from tests.trainer.tiny_checkpoints import run_in

pytestmark = [pytest.mark.sandbox, pytest.mark.long(180)]

Json = dict[str, Any]

STACK = CheckedStack(name="checked")
POOL = STACK.name
_JOBS = "/apis/batch/v1"
_CHECK_S = 240.0
"""Two ranks that load torch, on a machine that may be busy with other tests."""


def _team() -> list[Json]:
    """The stack's team, with a volume and a restore drill."""
    shared = storage.storage_class()
    shared["metadata"]["name"] = f"{STACK.name}-shared"
    volume = Volume(size="1Gi", storage_class=f"{STACK.name}-shared")
    drill = RestoreDrillConfig(schedule="0 0 1 1 *", runs=1, largest="1Gi")
    nodes = {naming.POOL: STACK.cpu_pool}
    return [
        shared,
        team.namespace(STACK.name),
        access.service_account(STACK.name),
        volumes.claim(STACK.name, naming.CHECKPOINTS_CLAIM, volume),
        restore_drill.cron_job(STACK.name, drill, trainer_image(), nodes),
    ]


@pytest.fixture(scope="module")
def checked(cluster: Cluster) -> Iterator[Client]:
    """The cluster with three process nodes, all programs and a run with a checkpoint; deleted at the end."""
    with STACK.deployed(cluster, STACK.objects(STACK.checks(trainer_image()), *_team())):
        namespace, claim = naming.namespace(STACK.name), naming.CHECKPOINTS_CLAIM
        bound = "--for=jsonpath={.status.phase}=Bound"
        cluster.kubectl("-n", namespace, "wait", f"pvc/{claim}", bound, "--timeout=180s")
        run_in(cluster.state.volumes / namespace / claim, "llama-v1-0a1b2c3d", 10)
        yield Client(cluster.kubeconfig)


def test_readiness_climbs_every_stage_with_the_real_programs(
    cluster: Cluster, checked: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    ops.main(["stack", "ready", "--json", "--kubeconfig", str(cluster.kubeconfig)])
    captured = capsys.readouterr()
    assert captured.out, captured.err
    stages = {stage["stage"]: stage for stage in json.loads(captured.out)["stages"]}
    assert (
        len(stages.pop("production")["checks"]) == 14
    )  # most of its evidence is not on this cluster
    expected = dict.fromkeys(("capacity", "restore", "queueing"), "passed")
    of_gpus = ("gpu-smoke", "homogeneous", "collective", "single-node", "multi-node")
    expected |= dict.fromkeys(of_gpus, "simulated")
    outcomes = {name: stage["outcome"] for name, stage in stages.items()}
    assert outcomes == expected, captured.out
    facts = {name: stage["checks"][0]["facts"] for name, stage in stages.items()}
    assert facts["gpu-smoke"]["device"] == "cpu"
    assert facts["collective"]["world_size"] == 2 and facts["collective"]["bandwidth_gbps"] > 0
    assert facts["single-node"]["world_size"] == 1 and facts["multi-node"]["world_size"] == 2
    assert facts["multi-node"]["tokens_per_s"] > 0
    assert facts["restore"]["restored"] == 1


def _start(client: Client, template: str, **changed: Any) -> str:
    """Start a Job as `kubectl create job --from` does; return its name."""
    found = client.get(object_path(_JOBS, SPACE, "cronjobs", template))
    job = found["spec"]["jobTemplate"]
    job["spec"] |= changed.get("spec", {})
    command = job["spec"]["template"]["spec"]["containers"][0]["command"]
    command += changed.get("options", [])
    name = changed.get("name", f"try-{template}")
    job["metadata"] = {"name": name, "labels": job["metadata"]["labels"]}
    client.create(object_path(_JOBS, SPACE, "jobs"), job)
    return str(name)


def _ended(client: Client, name: str) -> str:
    """`Complete` or `Failed`, empty while it runs."""
    job = client.get(object_path(_JOBS, SPACE, "jobs", name))
    conditions = job.get("status", {}).get("conditions", [])
    types = [c["type"] for c in conditions if c["status"] == "True"]
    return next((t for t in types if t in ("Complete", "Failed")), "")


def _lines(cluster: Cluster, client: Client, name: str, deadline_s: float = _CHECK_S) -> list[Json]:
    """Wait for the end of a Job; return the result lines of its pods."""
    until(lambda: _ended(client, name), f"{name} has ended", deadline_s)
    selector = f"batch.kubernetes.io/job-name={name}"
    pods = client.get(object_path("/api/v1", SPACE, "pods"), labelSelector=selector)["items"]
    names = sorted(pod["metadata"]["name"] for pod in pods)
    logs = [cluster.kubectl("logs", "-n", SPACE, one, "--tail=1") for one in names]
    return [json.loads(log) for log in logs]


def test_nodes_pass_their_checks_and_a_wrong_mtu_is_reported(
    cluster: Cluster, checked: Client
) -> None:
    collective = _start(checked, f"collective-{POOL}")
    smoke = _start(checked, f"smoke-{POOL}", spec={"parallelism": 1, "completions": 1})
    jumbo = _start(
        checked,
        f"smoke-{POOL}",
        name="jumbo",
        spec={"parallelism": 1, "completions": 1},
        options=['--expect={"mtu": 9001}'],
    )
    first, second = _lines(cluster, checked, collective)
    assert first["ok"] and second["ok"], first
    assert first["validation"] == "collective" and first["world_size"] == 2
    assert first["bandwidth_gbps"] > 0 and first["interface"] == "lo"
    assert first["nodes"] == [f"{POOL}-0", f"{POOL}-1"] == sorted({first["node"], second["node"]})
    # Pods know their zone from Kubernetes 1.35 on.
    assert first["zone"] in ("", "z-1")
    [fine] = _lines(cluster, checked, smoke)
    assert fine["ok"] and fine["device"] == "cpu" and fine["model"], fine
    [wrong] = _lines(cluster, checked, jumbo)
    assert wrong["cause"] == f"MTU is 65536 on {wrong['node']}; the pool's network has 9001"
    assert "jumbo frames" in wrong["remedy"]
    assert _ended(checked, jumbo) == "Failed"


def test_check_result_is_in_the_termination_message(cluster: Cluster, checked: Client) -> None:
    selector = "batch.kubernetes.io/job-name=jumbo"
    [pod] = checked.get(object_path("/api/v1", SPACE, "pods"), labelSelector=selector)["items"]
    ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    assert ended["exitCode"] == 1
    assert json.loads(ended["message"])["cause"].startswith("MTU is 65536")


def test_higher_priority_job_preempts_a_lower_priority_job(
    cluster: Cluster, checked: Client
) -> None:
    low = _start(checked, "queueing-low")
    workloads = object_path(f"/apis/{naming.KUEUE_API}", SPACE, "workloads")

    def workload_of(job: str) -> Json:
        for item in checked.get(workloads)["items"]:
            if item["metadata"]["ownerReferences"][0]["name"] == job:
                found: Json = item
                return found
        return {}

    def holds(job: str) -> bool:
        return "admission" in workload_of(job).get("status", {})

    until(lambda: holds(low), "the first job is admitted")
    high = _start(checked, "queueing-high")
    until(lambda: holds(high) and not holds(low), "the second job has preempted it")
    [result] = _lines(cluster, checked, high)
    assert result["ok"] and result["validation"] == "queueing-high"
    until(lambda: holds(low), "the first job is admitted again")
