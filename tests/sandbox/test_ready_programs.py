"""`trainyard stack ready` with the real programs of every stage, on process nodes.

What needs a GPU is not shown: that GPUs compute, NCCL's transport and bandwidth, driver and fabric. Smoke test,
collective and trainings run on the CPU, with gloo, and the command calls these stages simulated.
test_ready_live.py has the command's own behaviour, with shells in place of the programs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from infra.domain import naming
from infra.domain.storage import Volume
from infra.sites.simulated import storage
from infra.tenancy import access, restore_drill, team, volumes
from ops import __main__ as ops
from tests.sandbox.conftest import Cluster
from tests.sandbox.node_kit import trainer_image
from tests.sandbox.validation_kit import CheckedStack
from tests.trainer.tiny_checkpoints import run_in

pytestmark = [pytest.mark.sandbox, pytest.mark.long(115)]

Json = dict[str, Any]

STACK = CheckedStack(name="climbed")
TEAM = STACK.name
CLASS = f"{STACK.name}-shared"
RUN = "llama-v1-0a1b2c3d"


def _objects() -> list[Json]:
    """The stack with its checks, and the team with a volume and its restore drill."""
    shared = storage.storage_class()
    shared["metadata"]["name"] = CLASS
    drill = restore_drill.RestoreDrill(
        image=trainer_image(),
        schedule="0 0 1 1 *",
        runs=1,
        largest=2**30,
        node_selector={naming.POOL: STACK.cpu_pool},
    )
    return STACK.objects(
        STACK.checks(trainer_image()),
        shared,
        team.namespace(TEAM),
        access.service_account(TEAM),
        volumes.claim(TEAM, naming.CHECKPOINTS_CLAIM, Volume(size="1Gi", storage_class=CLASS)),
        restore_drill.cron_job(TEAM, drill),
    )


@pytest.fixture(scope="module")
def climbed(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with three process nodes and all programs, and a run with a checkpoint; deleted at the end."""
    with STACK.deployed(cluster, _objects()) as ready:
        namespace, claim = naming.namespace(TEAM), naming.CHECKPOINTS_CLAIM
        bound = "--for=jsonpath={.status.phase}=Bound"
        ready.kubectl("-n", namespace, "wait", f"pvc/{claim}", bound, "--timeout=180s")
        run_in(ready.state.volumes / namespace / claim, RUN, 10)
        yield ready


def test_every_stage_passes_with_its_real_program(
    climbed: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    ops.main(["stack", "ready", "--json", "--kubeconfig", str(climbed.kubeconfig)])
    captured = capsys.readouterr()
    assert captured.out, captured.err
    answer: Json = json.loads(captured.out)
    found = {stage["stage"]: stage for stage in answer["stages"]}
    outcomes = {name: stage["outcome"] for name, stage in found.items()}
    real = dict.fromkeys(("capacity", "restore", "queueing"), "passed")
    of_gpus = ("gpu-smoke", "homogeneous", "collective", "single-node", "multi-node")
    assert outcomes == real | dict.fromkeys(of_gpus, "simulated"), captured.out
    facts = {name: stage["checks"][0]["facts"] for name, stage in found.items()}
    assert facts["gpu-smoke"]["device"] == "cpu"
    assert facts["collective"]["world_size"] == 2 and facts["collective"]["bandwidth_gbps"] > 0
    assert facts["single-node"]["world_size"] == 1 and facts["multi-node"]["world_size"] == 2
    assert facts["multi-node"]["tokens_per_s"] > 0
    assert facts["restore"]["restored"] == 1
