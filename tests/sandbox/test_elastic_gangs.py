"""Runs of replica groups of two nodes each on the real Kueue and JobSet: a group leaves and joins whole."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from infra.domain import naming
from ops import __main__ as ops
from sandbox.node.reclaim import reclaim, restore
from tests.sandbox import elastic_kit
from tests.sandbox.conftest import Cluster
from tests.sandbox.elastic_kit import ENDLESS, ElasticRun, Json, undisturbed
from tests.sandbox.team_kit import TeamStage, process_pool
from training.spec import Groups

pytestmark = [pytest.mark.sandbox, pytest.mark.full_only]

TEAM: Final = "elastic-gangs"
STAGE: Final = TeamStage(
    team=TEAM,
    pools=[process_pool("gangs-spot", "spot", 4, "gangs-zone")],
    guaranteed={"gangs-spot": 4},
    more={"elasticRuns": {"image": "sandbox.trainyard.dev/ops@source"}},
)
SHARDED: Final = ENDLESS | {
    "parallel": {"shard": 2},
    "groups": {"silent_after_s": 30.0, "workers": 4},
}
"""The two ranks of a group hold one model together."""
Reference = partial[dict[int, float]]


@pytest.fixture
def reference(cluster: Cluster, tmp_path: Path) -> Iterator[Reference]:
    """Losses of the same run with one group that nothing disturbs."""
    with undisturbed(cluster, tmp_path, ranks=2, stage=STAGE, **SHARDED) as losses:
        yield losses


def identities(run: ElasticRun, number: int) -> dict[str, tuple[str, int]]:
    """The pods of a group, and what changes when one of them or its container starts anew."""
    return {
        pod["metadata"]["name"]: (
            pod["metadata"]["uid"],
            pod["status"]["containerStatuses"][0]["restartCount"],
        )
        for pod in _of_group(run, number)
    }


def _of_group(run: ElasticRun, number: int) -> list[Json]:
    return [p for p in run.pods() if p["metadata"]["labels"][naming.GROUP] == str(number)]


def test_a_group_of_two_nodes_leaves_and_joins_whole(
    cluster: Cluster, reference: Reference, capsys: pytest.CaptureFixture[str]
) -> None:
    with STAGE.deployed(cluster, elastic_kit.KINDS):
        run = elastic_kit.start(
            cluster, "gangs", Groups(min=1, max=2), nodes=2, stage=STAGE, **SHARDED
        )
        first, _ = run.await_members(2)
        run.await_steps()
        leads = int(run.pod_of(first)["metadata"]["labels"][naming.GROUP])
        stays, lost = identities(run, leads), _of_group(run, 1 - leads)
        assert len(stays) == len(lost) == 2
        node = lost[1]["spec"]["nodeName"]
        reclaim(node, 60.0, state=cluster.state)
        run.await_members(1)
        run.await_steps()
        run.until(lambda: not _of_group(run, 1 - leads), "both of its pods have ended")
        assert identities(run, leads) == stays

        restore(node, state=cluster.state)
        run.await_members(2)
        last = run.await_steps()
        assert identities(run, leads) == stays
        words = ["run", "list", "--team", TEAM, "--kubeconfig", str(cluster.kubeconfig)]

        def listed() -> str:
            assert ops.main(words) == 0
            return capsys.readouterr().out

        run.until(lambda: "2/2 groups" in listed(), "both groups are listed")
        losses = {step: loss for step, loss in run.losses().items() if step <= last}
        assert sorted(losses) == list(range(1, last + 1))
        assert losses == reference(last)
