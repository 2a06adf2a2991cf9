"""A run with peer memory on the real Kueue: a node that vanishes costs no step and no read from storage."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from infra.domain import naming
from sandbox.node.reclaim import reclaim, restore
from tests.sandbox import elastic_kit
from tests.sandbox.conftest import Cluster
from tests.sandbox.elastic_kit import ENDLESS, ElasticRun, Json
from tests.sandbox.team_kit import TeamStage, process_pool
from training.deployment import job

pytestmark = [pytest.mark.sandbox, pytest.mark.long(100)]

TEAM: Final = "peers"
STAGE: Final = TeamStage(
    team=TEAM,
    pools=[process_pool("peers-spot", "spot", 3, "peers-zone")],
    guaranteed={"peers-spot": 3},
)
"""Two nodes for the gang, and one more."""
SHARDED: Final[Json] = ENDLESS | {
    "parallel": {"shard": 2},
    "peer_memory": {"every_steps": 1},
    "checkpoint": {"every_steps": 1_000_000},
}


@pytest.fixture
def peers(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with the team and its nodes."""
    with STAGE.deployed(cluster, "jobs,configmaps"):
        yield cluster
        restore("all", state=cluster.state)


def start(cluster: Cluster) -> ElasticRun:
    """Start a gang of two nodes that holds one state together."""
    config = elastic_kit.config_of(**SHARDED)
    del config["groups"]
    elastic_kit.prepare_data(cluster, STAGE)
    spec = dataclasses.replace(
        elastic_kit.spec_of("peers", None, config), nodes=2, team=TEAM, job_kind="indexed-job"
    )
    run = ElasticRun(cluster, spec, STAGE)
    elastic_kit.apply(run, job.manifests(spec, STAGE.platform(), "c" * 40))
    return run


def undisturbed(cluster: Cluster, folder: Path) -> Any:
    return elastic_kit.undisturbed(cluster, folder, ranks=2, stage=STAGE, elastic=False, **SHARDED)


def test_a_vanished_node_costs_no_step_and_no_read_from_storage(
    peers: Cluster, tmp_path: Path
) -> None:
    with undisturbed(peers, tmp_path) as reference:
        run = start(peers)
        run.until(lambda: run.step() > 0, "the first step")
        run.await_steps()
        for index in ("1", "0"):
            pod = next(p for p in run.pods() if p["metadata"]["labels"][naming.JOB_INDEX] == index)
            node, resumed = pod["spec"]["nodeName"], len(run.events("resumed"))
            reclaim(node, 0.0, state=peers.state)
            run.until(lambda seen=resumed: len(run.events("resumed")) > seen, "it goes on")
            run.await_steps()
            restore(node, state=peers.state)
        last = run.await_steps()
        print(json.dumps(run.events("resumed")))
        assert [event["source"] for event in run.events("resumed")] == ["peer memory"] * 2
        losses = {step: loss for step, loss in run.losses().items() if step <= last}
        assert sorted(losses) == list(range(1, last + 1))
        assert losses == reference(last)
