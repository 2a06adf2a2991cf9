"""Sweeps on the real API server and Kueue: bounded parallelism, early stops, continuation by another process."""

from __future__ import annotations

import dataclasses
import datetime as dt
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from infra.domain import naming
from ops.cluster import Cluster as OpsCluster
from ops.cluster import ClusterError
from ops.sweep import driver, report, store
from ops.sweep import state as states
from ops.sweep.driver import Driver
from ops.sweep.space import Asha
from ops.sweep.state import SweepState, Trial
from sandbox import paths
from tests.golden.example_runs import PREPARED, run
from tests.sandbox.conftest import Cluster
from tests.sandbox.node_kit import until
from tests.sandbox.queue_kit import HOLD, Fleet, pool, team_of
from training.job import manifests
from training.spec import Resources

pytestmark = [pytest.mark.sandbox, pytest.mark.long(23)]

TEAM = "sweeps"
SIZE, FULL_SIZE = 8, 200
DEADLINE_S = 240.0
FULL_DEADLINE_S = 1800.0

Json = dict[str, Any]


@pytest.fixture(scope="module")
def fleet(cluster: Cluster) -> Iterator[Fleet]:
    made = Fleet(cluster, "sweeps", [pool("sweep-pool", 4)], [team_of(TEAM)])
    with made.deployed():
        yield made


@dataclasses.dataclass
class Family:
    """A sweep of simulated runs, which end as soon as they run, or with `hold` never."""

    fleet: Fleet
    name: str
    hold: bool = False
    created: list[str] = dataclasses.field(default_factory=list)
    """Ids of runs, as often as their objects were rendered for submission."""

    def planned(self, size: int, parallel: int, **settings: Any) -> SweepState:
        """The sweep before anything is submitted."""
        trials = tuple(
            Trial(
                run_id=self._spec(number).run_id,
                name=f"{self.name}-{number:03d}",
                parameters={"optimizer.learning_rate": 0.001 * (number + 1)},
            )
            for number in range(size)
        )
        values: Json = {
            "sweep": f"{self.name}-v3",
            "name": self.name,
            "team": TEAM,
            "method": "asha",
            "metric": "loss",
            "maximize": False,
            "parallel": parallel,
            "usd_per_hour": 10.0,
            "max_hours": 1.0,
            "cost_cap_usd": None,
            "trials": trials,
        }
        return SweepState(**values | settings)

    def _spec(self, number: int) -> Any:
        return run(
            dataset=PREPARED,
            name=f"{self.name}-{number:03d}",
            team=TEAM,
            job_kind="indexed-job",
            nodes=1,
            config={"optimizer": {"learning_rate": 0.001 * (number + 1)}},
            resources=Resources(cpu="8", memory="16Gi", shm="1Gi"),
            sweep=f"{self.name}-v3",
        )

    def manifests(self, run_id: str) -> list[Json]:
        """A run's objects without what simulated pods do not have."""
        self.created.append(run_id)
        number = int(run_id.removeprefix(f"{self.name}-").partition("-")[0])
        found = []
        for manifest in manifests(self._spec(number), self.fleet.platform, "c" * 40):
            own = self.fleet.own(manifest)
            if own["kind"] == "Job":
                body = own["spec"]["template"]["spec"]
                body["volumes"] = []
                body["containers"][0]["volumeMounts"] = []
                if self.hold:
                    body["schedulingGates"] = [{"name": HOLD}]
            found.append(own)
        return found

    def driver(
        self,
        asha: Asha | None = None,
        values: Callable[[Trial], Mapping[int, float]] = lambda _: {},
    ) -> Driver:
        """A new process's driver. `values`: what a run's log would say."""

        def read(trials: Sequence[Trial], pods: Sequence[Json]) -> Mapping[str, Any]:
            del pods
            return {one.run_id: values(one) for one in trials if one.state == states.RUNNING}

        return Driver(
            cluster=OpsCluster(self.fleet.cluster.kubeconfig),
            namespace=naming.namespace(TEAM),
            manifests=self.manifests,
            read_values=read,
            asha=asha,
            report=lambda _: None,
            poll_s=0.2,
        )

    def unfinished(self, state: SweepState) -> list[str]:
        """Runs of the sweep in the cluster that have not ended."""
        found = driver.runs_of(
            OpsCluster(self.fleet.cluster.kubeconfig), naming.namespace(TEAM), state.sweep
        )
        return [
            run_id
            for run_id, item in found.items()
            if not any(
                c["type"] in ("Complete", "Failed") and c["status"] == "True"
                for c in item.get("status", {}).get("conditions", [])
            )
        ]


def test_a_sweep_is_continued_by_another_process_and_never_exceeds_its_parallel_runs(
    fleet: Fleet, request: pytest.FixtureRequest
) -> None:
    full = request.config.getoption("--full")
    family = Family(fleet, "many")
    planned = family.planned(FULL_SIZE if full else SIZE, 20 if full else 3)
    first = family.driver()
    stored = store.open_sweep(first.cluster, planned)
    for _ in range(3):
        stored = driver.run_round(first, stored)
        assert len(family.unfinished(planned)) <= planned.parallel
    assert not stored.state.ended

    second = family.driver()
    continued = store.open_sweep(second.cluster, planned)
    assert [one.run_id for one in continued.state.trials] == [t.run_id for t in planned.trials]
    found = [continued]

    def ended() -> bool:
        found[0] = driver.run_round(second, found[0])
        assert len(family.unfinished(planned)) <= planned.parallel
        return found[0].state.ended

    until(ended, "all runs ended", FULL_DEADLINE_S if full else DEADLINE_S, every_s=0.3)
    state = store.find_sweep(
        store.list_sweeps(second.cluster, naming.namespace(TEAM)), "many"
    ).state
    assert {one.state for one in state.trials} == {states.DONE}
    assert sorted(family.created) == sorted(one.run_id for one in planned.trials)
    # The process that was thought dead finds out, and does not write over the other's state.
    with pytest.raises(ClusterError, match="another `trainyard sweep` command changed it"):
        store.save(first.cluster, stored, dataclasses.replace(stored.state, closed=True))
    assert len(report.csv_text(state).splitlines()) == 1 + len(planned.trials)
    assert driver.delete(second.cluster, found[0]) == len(planned.trials)


def test_runs_that_are_worse_than_their_peers_are_stopped_and_free_their_places(
    fleet: Fleet,
) -> None:
    family = Family(fleet, "halving", hold=True)
    planned = family.planned(5, 2)
    rules = Asha(min_steps=10, reduction=2)
    losses = {one.run_id: float(number) for number, one in enumerate(planned.trials)}
    work = family.driver(rules, lambda one: {10: losses[one.run_id]})
    found = [store.open_sweep(work.cluster, planned)]

    def only_the_best_is_left() -> bool:
        found[0] = driver.run_round(work, found[0])
        return [one.state for one in found[0].state.trials] == ["running"] + ["stopped"] * 4

    until(only_the_best_is_left, "four of five are stopped", DEADLINE_S, every_s=0.3)
    best = planned.trials[0].run_id
    until(lambda: family.unfinished(planned) == [best], "stopped runs are deleted", DEADLINE_S)
    assert "not among the best 1/2" in found[0].state.trials[1].reason

    now = dt.datetime.now(dt.UTC)
    closed = driver.stop(work.cluster, found[0], now)
    assert closed.state.ended
    assert closed.state.trials[0].reason == driver.STOPPED_BY_USER
    until(lambda: family.unfinished(planned) == [], "the last run is deleted", DEADLINE_S)
    assert closed.state.trials[0].hours <= 1.0


@pytest.mark.timeout(3000)
def test_six_real_runs_of_the_committed_sweep_end_in_a_table(
    cluster: Cluster, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if not request.config.getoption("--full"):
        pytest.skip("six trainings: with --full only")

    def python(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", *arguments],
            cwd=paths.PROJECT,
            env=cluster.env | {"SANDBOX_HOME": str(cluster.state.home), "COLUMNS": "200"},
            capture_output=True,
            text=True,
            check=False,
        )

    up = python("sandbox", "up")
    assert up.returncode == 0, up.stdout[-3000:] + up.stderr
    done = python("ops", "sweep", "run", "training/runs/sweep.yaml", "--stack", "local")
    assert done.returncode == 0, done.stdout + done.stderr
    table = tmp_path / "lr.csv"
    shown = python("ops", "sweep", "show", "lr", "--csv", str(table))
    assert shown.returncode == 0, shown.stderr
    rows = [line.split(",") for line in table.read_text().splitlines()]
    column = rows[0].index("state")
    assert len(rows) == 7
    assert {row[column] for row in rows[1:]} <= {states.DONE, states.STOPPED}
    assert states.DONE in {row[column] for row in rows[1:]}
    assert python("ops", "sweep", "delete", "lr", "--yes").returncode == 0
