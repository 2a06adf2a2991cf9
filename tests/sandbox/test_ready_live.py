"""`trainyard stack ready` on the real API server and Kueue, with the platform's templates on process nodes.

test_validation_live.py climbs with the programs inside them; here a shell prints their result lines.
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

from infra.domain import naming
from infra.tenancy import team
from ops import __main__ as ops
from ops.ready import jobs, probes, queueing
from sandbox import paths
from tests.sandbox.conftest import Cluster
from tests.sandbox.node_kit import HOST, until
from tests.sandbox.validation_kit import SPACE, CheckedStack

pytestmark = [pytest.mark.sandbox, pytest.mark.long(61)]

Json = dict[str, Any]

STACK = CheckedStack(name="readiness")
POOL = TEAM = STACK.name
STEP_S = 180.0


def _result_script(kind: str, **facts: Any) -> str:
    """Return a shell script that prints the result line of a check with its node."""
    line = {"validation": kind, "ok": True, "node": "@", **facts}
    return f"echo begins; echo '{json.dumps(line)}' | sed \"s/@/$TRAINYARD_NODE/\""


def _scripted(template: Json) -> Json:
    """Return the template with a shell in place of the program."""
    kind = template["metadata"]["labels"][naming.VALIDATION]
    scripts = {
        "smoke": _result_script(kind, device="cpu", model="shell"),
        "collective": _result_script(kind, bandwidth_gbps=1.5, world_size=2),
        queueing.LOW: "sleep 600",
        queueing.HIGH: _result_script(kind),
    }
    pod = template["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    pod["containers"][0]["command"] = [
        "sh",
        "-c",
        scripts.get(kind, _result_script(kind, world_size=2)),
    ]
    # A shell as process 1 has no SIGTERM handler; do not wait for it.
    pod["terminationGracePeriodSeconds"] = 1
    return template


def _drill() -> Json:
    line = {"validation": "restore-drill", "ok": True, "runs": 1, "restored": 1}
    container = {"name": "drill", "image": HOST, "command": ["echo", json.dumps(line)]}
    pod = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "nodeSelector": {naming.POOL: STACK.cpu_pool},
        "containers": [container],
    }
    job = {"spec": {"backoffLimit": 0, "template": {"spec": pod}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": probes.DRILL, "namespace": naming.namespace(TEAM)},
        "spec": {"schedule": "0 0 1 1 *", "suspend": True, "jobTemplate": job},
    }


def _objects() -> list[Json]:
    """The stack, a shell in every check, and the team's drill."""
    home = team.namespace(TEAM)
    home["metadata"]["labels"] = {}
    found = STACK.objects(STACK.checks(HOST), home, _drill())
    return [_scripted(one) if naming.VALIDATION in _labels(one) else one for one in found]


def _labels(item: Json) -> Json:
    found: Json = item["metadata"].get("labels", {})
    return found


@pytest.fixture(scope="module")
def checked_cluster(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with three process nodes and the templates; deleted at the end."""
    with STACK.deployed(cluster, _objects()) as ready:
        yield ready


@pytest.fixture(autouse=True)
def short_poll_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "POLL_S", 0.2)


def _left(cluster: Cluster) -> list[str]:
    """Return Jobs of readiness checks, and the holder of their Lease."""
    listed = cluster.kubectl("get", "jobs", "-A", "-l", jobs.SESSION_LABEL, "-o", "name")
    holders = "jsonpath={.items[*].spec.holderIdentity}"
    return [
        *listed.split(),
        *cluster.kubectl("get", "leases", "-n", SPACE, "-o", holders).split(),
    ]


def _ready(cluster: Cluster, capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, Json]:
    """Return exit code and JSON output of a call."""
    capsys.readouterr()
    code = ops.main(["stack", "ready", "--json", *argv, "--kubeconfig", str(cluster.kubeconfig)])
    captured = capsys.readouterr()
    assert captured.out, captured.err
    answer: Json = json.loads(captured.out)
    return code, answer


def test_every_stage_passes_and_leaves_evidence_for_the_production_checks(
    checked_cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    _, answer = _ready(checked_cluster, capsys)
    outcomes = {stage["stage"]: stage["outcome"] for stage in answer["stages"][:-1]}
    real = dict.fromkeys(("capacity", "restore", "queueing"), "passed")
    of_gpus = ("gpu-smoke", "homogeneous", "collective", "single-node", "multi-node")
    assert outcomes == real | dict.fromkeys(of_gpus, "simulated")
    by_name = {stage["stage"]: stage["checks"] for stage in answer["stages"]}
    [smoke] = by_name["gpu-smoke"]
    assert smoke["facts"]["nodes"] == [f"{POOL}-0", f"{POOL}-1"]
    [queue] = by_name["queueing"]
    assert "and admitted again" in queue["seen"]
    assert _left(checked_cluster) == []

    _, later = _ready(checked_cluster, capsys, "--look")
    rows = {check["subject"]: check for check in later["stages"][-1]["checks"]}
    assert rows["NCCL readiness"]["outcome"] == "simulated"
    assert "1.5 GB/s" in rows["NCCL readiness"]["evidence"][0]


def test_readiness_check_stops_at_the_failed_stage_and_reports_the_cause(
    checked_cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    [template] = [o for o in _objects() if o["metadata"]["name"] == f"collective-{POOL}"]
    line = {"validation": "collective", "ok": False, "cause": "MTU differs", "remedy": "even it"}
    pod = template["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    pod["containers"][0]["command"] = ["sh", "-c", f"echo '{json.dumps(line)}'; exit 1"]
    checked_cluster.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(template))
    code, answer = _ready(checked_cluster, capsys, "--until", "multi-node")
    assert code == 1
    found = {stage["stage"]: stage for stage in answer["stages"]}
    [check] = found["collective"]["checks"]
    assert check["outcome"] == "failed"
    assert "MTU differs (and 1 other pod)" in check["seen"]
    assert check["remedy"] == "even it"
    assert found["multi-node"]["outcome"] == "not reached"
    assert _left(checked_cluster) == []


def test_ctrl_c_deletes_the_jobs_of_the_readiness_check(checked_cluster: Cluster) -> None:
    [template] = [o for o in _objects() if o["metadata"]["name"] == f"smoke-{POOL}"]
    pod = template["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    pod["containers"][0]["command"] = ["sleep", "600"]
    checked_cluster.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(template))
    command = [
        sys.executable,
        "-m",
        "ops",
        "stack",
        "ready",
        "--kubeconfig",
        str(checked_cluster.kubeconfig),
    ]
    with subprocess.Popen(
        command,
        cwd=paths.PROJECT,
        env=os.environ | checked_cluster.env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        # Background processes of a shell ignore SIGINT.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        until(
            lambda: any(one.startswith("job") for one in _left(checked_cluster)),
            "a Job runs",
            STEP_S,
        )
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=STEP_S)
    assert process.returncode == 130
    assert stderr.endswith("interrupted; run the same command to continue\n")
    assert _left(checked_cluster) == []
