"""Every job kind on its real controller: ranks meet and end, restart by cause, and survive reclaims.

`jobset` and `job` are tested with the trainer itself (test_gangs.py, test_end_to_end.py), their restarts
within a pod in test_one_pod_restarts.py. The runs of a fixture start together, so that their waits overlap.
"""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Iterator, Sequence

import pytest
from rich.console import Console

from infra.addons.registry import ADD_ONS
from infra.domain import naming
from sandbox import charts
from sandbox.cluster import ClusterError
from sandbox.node.reclaim import reclaim, restore
from tests.sandbox.conftest import Cluster
from tests.sandbox.launcher_kit import (
    OPERATORS,
    STAGE,
    LiveRun,
    documented,
    spec_of,
    start,
)
from tests.sandbox.node_kit import trainer_image
from training.launchers import LAUNCHERS
from training.launchers.restarts import STATE_FILE

pytestmark = [pytest.mark.sandbox, pytest.mark.long(129)]

KINDS = ("indexed-job", "trainjob", "pytorchjob", "mpijob")
PROGRAMS = ("mpirun", "sshd")
RECLAIMS = {"trainjob": 6, "indexed-job": 2, "pytorchjob": 4, "mpijob": 2}
"""Reclaims with --full, half of them without notice; without it `trainjob` has two, the others none.

A Job delays the replacement of a pod by 10 s times two to the number of earlier ones. In a pytorchjob and an
mpijob ranks that lose a peer without notice count as a failure, of which three are allowed; and mpirun waits for
ranks as long as one may save.
"""
NOTICE_S = 60.0
Runs = dict[str, LiveRun]


def _missing_programs() -> list[str]:
    path = "/usr/bin:/usr/sbin:/usr/local/bin:/usr/local/sbin"
    return [name for name in PROGRAMS if shutil.which(name, path=path) is None]


@pytest.fixture(scope="module")
def launchers(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with the three operators, built at first use, and a team; without them again at the end."""
    more = documented() | {"images": {"trainer": trainer_image()}}
    charts.install(cluster.settings, Console(force_terminal=False), OPERATORS, more)
    # Kueue looks for kinds of jobs when it starts, then every two minutes.
    manager = ("deployment", "kueue-controller-manager", "-n", naming.KUEUE_NAMESPACE)
    cluster.kubectl("rollout", "restart", *manager)
    cluster.kubectl("rollout", "status", *manager, "--timeout=180s")
    with STAGE.deployed(
        cluster, "trainjobs,trainingruntimes,pytorchjobs,mpijobs,jobs,services,configmaps"
    ) as ready:
        yield ready
    for name in OPERATORS:
        cluster.kubectl("delete", "namespace", ADD_ONS[name].namespace, "--timeout=180s")


def _start_all(
    cluster: Cluster, name: str, plan: str, program: str = "rank.py", kinds: Sequence[str] = KINDS
) -> Runs:
    kinds = [kind for kind in kinds if kind != "mpijob" or not _missing_programs()]
    return {kind: start(cluster, kind, name, plan, program=program) for kind in kinds}


@pytest.fixture(scope="module")
def with_torch(launchers: Cluster) -> Runs:
    """Runs whose ranks are torch's, started by the rendered torchrun or mpirun."""
    return _start_all(launchers, "gloo", "", "gloo.py")


@pytest.fixture(scope="module")
def interrupted(launchers: Cluster, request: pytest.FixtureRequest) -> Runs:
    """Runs that are preempted, then fail, then work until they are told to finish."""
    full = request.config.getoption("--full")
    return _start_all(launchers, "causes", "75 1 work", kinds=KINDS if full else KINDS[:3])


@pytest.fixture(scope="module")
def misconfigured(launchers: Cluster, request: pytest.FixtureRequest) -> Runs:
    """Runs whose ranks reject their configuration; an mpijob ends minutes later, so with --full only."""
    full = request.config.getoption("--full")
    return _start_all(launchers, "refused", "78", kinds=KINDS if full else KINDS[:3])


def _run_of(runs: Runs, kind: str) -> LiveRun:
    if kind not in runs:
        missing = ", ".join(_missing_programs())
        pytest.skip(f"{missing}: not installed (packages openmpi-bin and openssh-server)")
    return runs[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_ranks_meet_by_the_rendered_command_and_end(with_torch: Runs, kind: str) -> None:
    live = _run_of(with_torch, kind)
    live.await_outcome("done")
    ranks = [line.split() for line in live.lines()]
    assert sorted(one[:2] for one in ranks) == [["3", "0"], ["3", "1"]], "each has the sum of both"
    assert len({host for _, _, host in ranks}) == 2


@pytest.mark.parametrize(
    ("change", "refusal"),
    [({"slotsPerWorkers": 2}, "unknown field"), ({"mpiImplementation": "MPICH2"}, "Unsupported")],
)
def test_mistakes_in_an_mpijob_are_refused(
    launchers: Cluster, change: dict[str, object], refusal: str
) -> None:
    rendered = LAUNCHERS["mpijob"].render(spec_of("mpijob", "wrong"), STAGE.platform())
    [job] = [copy.deepcopy(one) for one in rendered if one["kind"] == "MPIJob"]
    options = ("--dry-run=server", "--validate=strict", "-f", "-")
    launchers.kubectl("create", *options, stdin=json.dumps(job))
    job["spec"] |= change
    with pytest.raises(ClusterError, match=refusal):
        launchers.kubectl("create", *options, stdin=json.dumps(job))


@pytest.mark.parametrize("kind", KINDS)
def test_bad_configuration_ends_the_run_after_one_attempt(
    misconfigured: Runs, kind: str, request: pytest.FixtureRequest
) -> None:
    if kind == "mpijob" and not request.config.getoption("--full"):
        pytest.skip("--full")
    live = _run_of(misconfigured, kind)
    live.await_outcome("failed")
    assert live.attempts() == 1


@pytest.mark.parametrize("kind", KINDS)
def test_run_restarts_by_cause(
    interrupted: Runs, kind: str, request: pytest.FixtureRequest
) -> None:
    """After 75, which does not count, and after 1, which does; then it works until it is done."""
    if kind == "mpijob" and not request.config.getoption("--full"):
        pytest.skip("--full")  # mpirun waits as long as a rank may save before it ends the others
    live = _run_of(interrupted, kind)
    live.await_attempts(3)
    state = live.folder / STATE_FILE
    if kind != "trainjob":
        assert json.loads(state.read_text())["failures"] == 1
    if kind != "trainjob" and not request.config.getoption("--full"):  # else reclaimed next
        live.finish()
        live.await_outcome("done")


@pytest.mark.parametrize("kind", RECLAIMS)
def test_run_survives_reclaims_with_and_without_notice(
    interrupted: Runs, kind: str, request: pytest.FixtureRequest
) -> None:
    full = request.config.getoption("--full")
    if kind != "trainjob" and not full:
        pytest.skip("--full")
    live = _run_of(interrupted, kind)
    live.await_attempts(3)
    for number in range(RECLAIMS[kind] if full else 2):
        node = live.node_of_last_rank()
        reclaim(node, NOTICE_S * (1 - number % 2), state=live.cluster.state)
        live.await_attempts(4 + number)
        restore(node, state=live.cluster.state)
    live.finish()
    live.await_outcome("done")
