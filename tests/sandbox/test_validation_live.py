"""Node checks from the platform's templates, and the readiness check with them, on process nodes through Kueue.

What needs a GPU is not shown: that GPUs compute, NCCL's transport and bandwidth, driver and fabric. Smoke test,
collective and trainings run on the CPU, with gloo, and `stack ready` calls their stages simulated.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from infra.config import arguments, parse
from infra.domain import naming
from infra.domain.storage import Volume
from infra.queueing import kueue, priorities
from infra.sections.teams import RestoreDrillConfig
from infra.sites.simulated import node_pools, storage
from infra.tenancy import access, restore_drill, team, volumes
from infra.validation import component
from infra.validation.component import ValidationArgs
from infra.validation.jobs import COMPONENT, QUEUEING
from ops import __main__ as ops
from ops.ready import jobs
from sandbox import paths
from sandbox.node.api import Client, object_path
from tests.sandbox.conftest import Cluster
from tests.sandbox.node_kit import platform_in, trainer_image, until
from tests.sandbox.team_kit import TeamStage, process_pool
from tests.trainer.tiny_checkpoints import run_in

pytestmark = [pytest.mark.sandbox, pytest.mark.long(180)]

Json = dict[str, Any]

SPACE = naming.VALIDATION_NAMESPACE
_JOBS = "/apis/batch/v1"
_CHECK_S = 240.0
"""Two ranks that load torch, on a machine that may be busy with other tests."""


POOL, CPU_POOL = "checked", "checked-cpu"
_CPU: Json = {"instanceTypes": ["m6i.xlarge"], "workload": "cpu"}
STAGE = TeamStage(
    team=POOL,
    pools=[
        process_pool(POOL, "on-demand", 2, "z-1"),
        process_pool(CPU_POOL, "on-demand", 1, "z-1") | _CPU,
    ],
    guaranteed={},
)


def _objects() -> list[Json]:
    """Nodes, queues and checks of the stack, and its team with a volume and a restore drill."""
    config, name = parse(STAGE.values()), STAGE.team
    queues = arguments.queues(config)
    checks = ValidationArgs(platform=STAGE.platform(), operators=("kueue",), image=trainer_image())
    volume = Volume(size="1Gi", storage_class=naming.SIMULATED_STORAGE_CLASS)
    drill = RestoreDrillConfig(schedule="0 0 1 1 *", runs=1, largest="1Gi")
    found = [
        *(node_pools.node(pool, i) for pool in config.pools for i in range(pool.max)),
        *(kueue.workload_priority_class(name) for name in priorities.PRIORITIES),
        kueue.topology(),
        *(kueue.flavor(pool) for pool in queues.pools),
        kueue.cohort(queues.cohort, queues.pools, queues.teams),
        component.flavor(checks.cpu_pool),
        component.borrowing_queue(checks),
        component.own_queue(),
        component.namespace(signed=False),
        component.service_account(),
        component.service(),
        *component.network_policies(),
        component.local_queue(COMPONENT),
        component.local_queue(QUEUEING),
        *component.templates(checks),
        component.stack_facts(checks),
        storage.storage_class(),
        team.namespace(name),
        access.service_account(name),
        volumes.claim(name, naming.CHECKPOINTS_CLAIM, volume),
        restore_drill.cron_job(name, drill, trainer_image(), {naming.POOL: CPU_POOL}),
    ]
    return [STAGE.own(one) for one in found]


@pytest.fixture(scope="module")
def checked(cluster: Cluster) -> Iterator[Client]:
    """The cluster with three process nodes, all programs and a run with a checkpoint; deleted at the end."""
    queues = (COMPONENT, QUEUEING)
    with platform_in(cluster, _objects(), (POOL, CPU_POOL), queues, {SPACE: "jobs"}):
        namespace, claim = STAGE.namespace, naming.CHECKPOINTS_CLAIM
        bound = "--for=jsonpath={.status.phase}=Bound"
        cluster.kubectl("-n", namespace, "wait", f"pvc/{claim}", bound, "--timeout=180s")
        run_in(STAGE.volume(cluster, claim), "llama-v1-0a1b2c3d", 10)
        yield Client(cluster.kubeconfig)


@pytest.fixture(autouse=True)
def short_poll_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "POLL_S", 0.2)


def _ready(cluster: Cluster, capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, Json]:
    capsys.readouterr()
    code = ops.main(["stack", "ready", "--json", *argv, "--kubeconfig", str(cluster.kubeconfig)])
    captured = capsys.readouterr()
    assert captured.out, captured.err
    answer: Json = json.loads(captured.out)
    return code, answer


def _left(cluster: Cluster) -> list[str]:
    """Return Jobs of readiness checks, and the holder of their Lease."""
    listed = cluster.kubectl("get", "jobs", "-A", "-l", jobs.SESSION_LABEL, "-o", "name")
    holders = "jsonpath={.items[*].spec.holderIdentity}"
    leases = cluster.kubectl("get", "leases", "-n", SPACE, "-o", holders)
    return [*listed.split(), *leases.split()]


def test_readiness_climbs_every_stage_with_the_real_programs(
    cluster: Cluster, checked: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    _, answer = _ready(cluster, capsys)
    stages = {stage["stage"]: stage for stage in answer["stages"]}
    assert (
        len(stages.pop("production")["checks"]) == 14
    )  # most of its evidence is not on this cluster
    expected = dict.fromkeys(("capacity", "restore", "queueing"), "passed")
    of_gpus = ("gpu-smoke", "homogeneous", "collective", "single-node", "multi-node")
    expected |= dict.fromkeys(of_gpus, "simulated")
    outcomes = {name: stage["outcome"] for name, stage in stages.items()}
    assert outcomes == expected, answer
    facts = {name: stage["checks"][0]["facts"] for name, stage in stages.items()}
    assert facts["gpu-smoke"]["device"] == "cpu"
    assert facts["collective"]["world_size"] == 2 and facts["collective"]["bandwidth_gbps"] > 0
    assert facts["single-node"]["world_size"] == 1 and facts["multi-node"]["world_size"] == 2
    assert facts["multi-node"]["tokens_per_s"] > 0
    assert facts["restore"]["restored"] == 1
    assert facts["gpu-smoke"]["nodes"] == [f"{POOL}-0", f"{POOL}-1"]
    assert "and admitted again" in stages["queueing"]["checks"][0]["seen"]
    assert _left(cluster) == []

    _, later = _ready(cluster, capsys, "--look")
    rows = {check["subject"]: check for check in later["stages"][-1]["checks"]}
    assert rows["NCCL readiness"]["outcome"] == "simulated"
    assert "GB/s" in rows["NCCL readiness"]["evidence"][0]


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


def _scripted(cluster: Cluster, client: Client, template: str, script: str) -> None:
    """Put a shell in place of a check's program."""
    found = client.get(object_path(_JOBS, SPACE, "cronjobs", template))
    pod = found["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    pod["containers"][0]["command"] = ["sh", "-c", script]
    cluster.kubectl("replace", "-f", "-", stdin=json.dumps(found))


def test_readiness_check_stops_at_the_failed_stage_and_reports_the_cause(
    cluster: Cluster, checked: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    line = {"validation": "collective", "ok": False, "cause": "MTU differs", "remedy": "even it"}
    _scripted(cluster, checked, f"collective-{POOL}", f"echo '{json.dumps(line)}'; exit 1")
    code, answer = _ready(cluster, capsys, "--until", "multi-node")
    assert code == 1
    found = {stage["stage"]: stage for stage in answer["stages"]}
    [check] = found["collective"]["checks"]
    assert check["outcome"] == "failed"
    assert "MTU differs (and 1 other pod)" in check["seen"]
    assert check["remedy"] == "even it"
    assert found["multi-node"]["outcome"] == "not reached"
    assert _left(cluster) == []


def test_ctrl_c_deletes_the_jobs_of_the_readiness_check(cluster: Cluster, checked: Client) -> None:
    _scripted(cluster, checked, f"smoke-{POOL}", "trap exit TERM; sleep 600 & wait")
    config = ("--kubeconfig", str(cluster.kubeconfig))
    with subprocess.Popen(
        [sys.executable, "-m", "ops", "stack", "ready", *config],
        cwd=paths.PROJECT,
        env=os.environ | cluster.env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        # Background processes of a shell ignore SIGINT.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        until(lambda: any(one.startswith("job") for one in _left(cluster)), "a Job runs", _CHECK_S)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=_CHECK_S)
    assert process.returncode == 130
    assert stderr.endswith("interrupted; run the same command to continue\n")
    assert _left(cluster) == []
