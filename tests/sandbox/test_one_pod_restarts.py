"""Runs of one pod on the real controllers: restarts in the pod, a new pod, and the end of the budget.

The parent process of a program stands for the launcher of the built-in trainer, which decides by the same code.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.sandbox.conftest import Cluster
from tests.sandbox.launcher_kit import (
    ALONE,
    STAGE,
    LiveRun,
    start,
)
from training.launchers.restarts import STATE_FILE

pytestmark = [pytest.mark.sandbox, pytest.mark.long(35)]

Runs = dict[str, LiveRun]


@pytest.fixture(scope="module")
def one_pod_team(cluster: Cluster) -> Iterator[Cluster]:
    with STAGE.deployed(cluster, "jobsets,jobs,services,configmaps") as ready:
        yield ready


ONE_POD = ("job", "jobset")


@pytest.fixture(scope="module")
def one_pod(one_pod_team: Cluster) -> Runs:
    """Runs of one pod that fail after a step, then before one, then work until they are told to finish."""
    return {
        kind: start(one_pod_team, kind, "alone", "+1 3 work", program=ALONE, nodes=1)
        for kind in ONE_POD
    }


@pytest.fixture(scope="module")
def used_up(one_pod_team: Cluster) -> Runs:
    """Runs of one pod that fail after a step as often as that is restarted, and once more."""
    return {
        kind: start(one_pod_team, kind, "used-up", "+5 +5 +5 +6", program=ALONE, nodes=1)
        for kind in ONE_POD
    }


@pytest.mark.parametrize("kind", ONE_POD)
def test_run_of_one_pod_restarts_in_it_and_gets_a_new_one_where_that_may_help(
    one_pod: Runs, kind: str
) -> None:
    live = one_pod[kind]
    live.await_attempts(3)
    assert [line.split()[-1] for line in live.lines()] == ["0", "1", "0"], "restarts in the pod"
    assert json.loads((live.folder / STATE_FILE).read_text())["failures"] == 2
    live.finish()
    live.await_outcome("done")


@pytest.mark.parametrize("kind", ONE_POD)
def test_run_of_one_pod_ends_with_its_last_restart(used_up: Runs, kind: str) -> None:
    live = used_up[kind]
    live.await_outcome("failed")
    assert [line.split()[-1] for line in live.lines()] == ["0", "1", "2", "3"], "all in one pod"
