"""What a program learns about its node: only what is true on every node that the run may get."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from typing import Any

import pytest

from infra.domain.platform import Platform
from infra.domain.pools import Nodes
from tests.golden.example_runs import platform, run
from training.launchers import pod, program
from training.program import Program
from training.spec import RunSpec
from trainyard import contract, launchers, publication

OWN = Program(launcher="torchrun", command=("train.py",))


def of_program(**changes: Any) -> RunSpec:
    return run(config={}, program=OWN, **changes)


def variables(where: Platform, **changes: Any) -> dict[str, str]:
    found = program.environment(of_program(**changes), where, None)
    return {one["name"]: one["value"] for one in found if "value" in one}


def with_nodes(nodes: Nodes) -> Platform:
    """The example's platform with nodes from there: a spot and an on-demand pool of one type."""
    here = platform()
    return dataclasses.replace(
        here, pools=tuple(dataclasses.replace(pool, nodes=nodes) for pool in here.pools)
    )


def test_a_single_pool_is_named_and_of_several_none() -> None:
    both = variables(platform())
    assert "TRAINYARD_POOL" not in both
    one = variables(with_nodes(Nodes.EXISTING), capacity_types=("spot",))
    assert one["TRAINYARD_POOL"] == "spot"
    assert "TRAINYARD_INSTANCE_TYPE" not in one and "TRAINYARD_ZONE" not in one


def test_type_and_zone_are_known_of_nodes_that_the_stack_creates() -> None:
    facts = variables(with_nodes(Nodes.MANAGED))
    assert facts["TRAINYARD_INSTANCE_TYPE"] == "p4d.24xlarge"
    assert facts["TRAINYARD_ZONE"] == "us-east-1a"
    assert "TRAINYARD_POOL" not in facts


def test_checkpoints_record_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    known = variables(with_nodes(Nodes.MANAGED), capacity_types=("spot",))
    for name, value in known.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv(contract.NODE_NAME_ENV, "spot-3")
    assert publication.describe_node() == {
        "name": "spot-3",
        "pool": "spot",
        "instance_type": "p4d.24xlarge",
        "capacity_type": "spot",
        "zone": "us-east-1a",
    }


def test_mpirun_gives_settings_and_secrets_but_nothing_of_its_own_pod_to_ranks_of_other_pods(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shutil.which", lambda *_, **__: "/usr/bin/mpirun")
    ranks = launchers.Ranks(
        run_id="r", nodes=2, node_rank=0, per_node=1, host="r-worker-0", port=29400
    )
    env = {
        launchers.MPI_HOSTFILES[0]: "/etc/mpi/hostfile",
        contract.NODE_NAME_ENV: "cpu-0",
        contract.METRICS_ADDRESS_ENV: "10.0.0.7",
        contract.METRICS_PORT_ENV: "9400",
        contract.POOL_ENV: "spot",
        contract.EXPORTED_ENV: "NCCL_DEBUG,HF_TOKEN,ABSENT",
        "NCCL_DEBUG": "INFO",
        "HF_TOKEN": "secret",
        "KUBERNETES_PORT": "tcp://10.0.0.1",
    }
    command = launchers.start_of("mpirun", ranks, ["train.py"], {}, env).command
    exported = [name for option, name in pairwise(command) if option == "-x"]
    assert exported == sorted(
        [
            contract.EXIT_DIR_ENV,
            contract.METRICS_PORT_ENV,
            contract.POOL_ENV,
            "NCCL_DEBUG",
            "HF_TOKEN",
        ]
    )
    assert "secret" not in command


@pytest.mark.parametrize(
    ("one", "value"),
    [
        (run(parallelism={"tensor": 2, "shard": 4}), "1"),
        (run(parallelism={"shard": 8}), None),
        (run(), None),
        (of_program(parallelism={"tensor": 2}), None),
    ],
)
def test_kernels_keep_one_queue_only_where_the_trainer_divides_blocks(
    one: RunSpec, value: str | None
) -> None:
    found = {v["name"]: v.get("value") for v in pod.worker(one, platform(), None)["env"]}
    assert found.get("CUDA_DEVICE_MAX_CONNECTIONS") == value
