"""Runs of replica groups on the real Kueue and JobSet: real trainers on process nodes, and what they wrote."""

from __future__ import annotations

import copy
import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

from infra.domain import naming
from ops import groups, objects
from sandbox import paths
from sandbox.runs import read_lines
from tests.sandbox.conftest import Cluster
from tests.sandbox.node_kit import trainer_image, until
from tests.sandbox.team_kit import TeamStage, process_pool
from tests.trainer.runs import CONFIG
from tests.unit.trainer.datasets import BOUNDARY, dataset
from training import job
from training.spec import Dataset, Groups, Resources, RunSpec
from trainyard.contract import EVENTS_FILE, METRICS_FILE

Json = dict[str, Any]

TEAM: Final = "elastic"
SPOT, ON_DEMAND = "elastic-spot", "elastic-ondemand"
STAGE: Final = TeamStage(
    team=TEAM,
    pools=[
        process_pool(ON_DEMAND, "on-demand", 1, "elastic-zone"),
        process_pool(SPOT, "spot", 2, "elastic-zone"),
    ],
    guaranteed={SPOT: 2, ON_DEMAND: 1},
    more={"elasticRuns": {"image": "sandbox.trainyard.dev/ops@source"}},
)
KINDS: Final = "jobsets,configmaps"
"""What tests create in a team's namespace."""
STEP_S: Final = 300.0
"""For trainers that start, on a machine that may be busy with other tests."""
_DATA: Final = "tiny"
ENDLESS: Final[Json] = {"steps": 1_000_000, "schedule": {"kind": "constant", "warmup_steps": 3}}
"""Settings of a run that its test ends."""


def config_of(**changes: Any) -> Json:
    """Return the trainer's configuration. A group that only waits for a processor is not lost."""
    found: Json = yaml.safe_load(CONFIG)
    changes = {"groups": {"silent_after_s": 30.0}} | changes
    found["evaluation"] = {"every_steps": 40, "samples": 13}
    for key, value in changes.items():
        both = isinstance(value, dict) and isinstance(found.get(key), dict)
        found[key] = found[key] | value if both else value
    return found


@dataclass(frozen=True)
class ElasticRun:
    cluster: Cluster
    spec: RunSpec
    stage: TeamStage = STAGE

    @property
    def folder(self) -> Path:
        """The run's directory, as the groups see it."""
        return self.stage.volume(self.cluster, naming.CHECKPOINTS_CLAIM) / self.spec.run_id

    def losses(self) -> dict[int, float]:
        return {line["step"]: line["loss"] for line in read_lines(self.folder / METRICS_FILE)}

    def step(self) -> int:
        return max(self.losses(), default=0)

    def attempts(self) -> set[int]:
        """Return the attempts that have written steps: a new one for each leader."""
        return {line["attempt"] for line in read_lines(self.folder / METRICS_FILE)}

    def events(self, name: str) -> list[Json]:
        return [e for e in read_lines(self.folder / EVENTS_FILE) if e.get("event") == name]

    def members(self) -> list[str]:
        """Return the address of rank 0 of each member of the newest view, the leader first."""
        views = sorted((self.folder / "groups").glob("view-*.json"))
        found = json.loads(views[-1].read_text()) if views else {"members": []}
        return [member["links"][0][0] for member in found["members"]]

    def pods(self) -> list[Json]:
        """Return its pods that have not ended and are not being deleted."""
        where = ("-n", self.stage.namespace, "-l", f"{naming.RUN_ID}={self.spec.run_id}")
        found = json.loads(self.cluster.kubectl("get", "pods", *where, "-o", "json"))["items"]
        return [
            pod
            for pod in found
            if pod["status"].get("phase") in ("Pending", "Running")
            and "deletionTimestamp" not in pod["metadata"]
        ]

    def pod_of(self, address: str) -> Json:
        found = [pod for pod in self.pods() if pod["status"].get("podIP") == address]
        assert len(found) == 1, f"no pod at {address}\n{self.describe()}"
        return found[0]

    def jobsets(self) -> dict[int, Json]:
        return {groups.number_of(one) or 0: one for one in self._items("jobsets")}

    def workloads(self) -> dict[int, Json]:
        return {groups.number_of(one) or 0: one for one in self._items("workloads")}

    def _items(self, kind: str) -> list[Json]:
        where = ("-n", self.stage.namespace, "-l", f"{naming.RUN_ID}={self.spec.run_id}")
        found: list[Json] = json.loads(self.cluster.kubectl("get", kind, *where, "-o", "json"))[
            "items"
        ]
        return found

    def await_members(self, count: int) -> list[str]:
        """Wait until so many groups take steps together; return their addresses, the leader's first.

        By then their pods are ready, too: readiness is probed every few seconds, and Kueue may still evict a group
        that has joined if its pods were not ready for long.
        """
        self.until(lambda: len(self.members()) == self._ready() == count, f"{count} groups")
        return self.members()

    def _ready(self) -> int:
        return sum(map(is_ready, self.workloads().values()))

    def await_steps(self, more: int = 3) -> int:
        """Wait for further steps; return the last one."""
        begun = self.step()
        self.until(lambda: self.step() >= begun + more, f"steps after step {begun}")
        return self.step()

    def until(self, found: Any, what: str) -> None:
        """Wait, and fail with what the run did."""
        try:
            until(found, what, STEP_S, every_s=0.25)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.describe()}") from None

    def describe(self) -> str:
        where = ("-n", self.stage.namespace, "-l", f"{naming.RUN_ID}={self.spec.run_id}")
        conditions = {
            number: [(c["type"], c["status"], c.get("reason")) for c in one["status"]["conditions"]]
            for number, one in self.workloads().items()
            if "conditions" in one.get("status", {})
        }
        return "\n".join(
            [
                f"step {self.step()}, members {self.members()}, Workloads {conditions}",
                self.cluster.kubectl("get", "jobsets,pods", *where, "-o", "wide"),
                self.cluster.kubectl("logs", *where, "--tail=15", "--prefix", "--ignore-errors"),
            ]
        )


def is_ready(workload: Json) -> bool:
    return objects.condition_is_true(workload, "PodsReady")


def start(
    cluster: Cluster,
    name: str,
    groups_: Groups,
    *,
    nodes: int = 1,
    stage: TeamStage = STAGE,
    **settings: Any,
) -> ElasticRun:
    """Start a run of groups of so many nodes, with one process on each."""
    given = config_of(**settings)
    given |= {"groups": given["groups"] | {"workers": 8}}
    prepare_data(cluster, stage)
    spec = dataclasses.replace(spec_of(name, groups_, given), nodes=nodes, team=stage.team)
    run = ElasticRun(cluster, spec, stage)
    apply(run, job.manifests(spec, stage.platform(), "c" * 40))
    return run


def start_scripts(
    cluster: Cluster, name: str, groups_: Groups | None, script: str, image: str
) -> ElasticRun:
    """Start a run with a shell in the trainer's place, which has the number of its group as GROUP."""
    run = ElasticRun(cluster, spec_of(name, groups_, {"steps": 1}))
    found = copy.deepcopy(job.manifests(run.spec, STAGE.platform(), "c" * 40))
    for number, manifest in enumerate(found[1:]):
        body = manifest["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        main = body["containers"][0]
        main |= {"image": image, "command": ["sh", "-c", script], "workingDir": "/"}
        main["env"].append({"name": "GROUP", "value": str(number)})
        body["terminationGracePeriodSeconds"] = 5
    apply(run, found)
    return run


def spec_of(name: str, groups_: Groups | None, config: Json) -> RunSpec:
    """Return a run of one node of the team `TEAM`."""
    return RunSpec(
        name=name,
        version=1,
        team=TEAM,
        tier="research",
        nodes=1,
        processes_per_node=1,
        image=trainer_image(),
        config=config,
        dataset=Dataset(name=_DATA),
        resources=Resources(cpu="1", memory="1Gi", shm="64Mi"),
        groups=groups_,
    )


def apply(run: ElasticRun, manifests: Sequence[Json]) -> None:
    run.cluster.apply(*map(run.stage.own, manifests))


def prepare_data(cluster: Cluster, stage: TeamStage) -> Path:
    """Return the folder of the dataset on the team's volume, which is made at first."""
    root = stage.volume(cluster, naming.DATASETS_CLAIM) / _DATA
    if not root.exists():
        tokens = [(7 * number) % 251 for number in range(4000)]
        dataset(root, [[*tokens, BOUNDARY]], [[*tokens[:600], BOUNDARY]])
    return root


@contextmanager
def undisturbed(
    cluster: Cluster,
    folder: Path,
    *,
    ranks: int = 1,
    stage: TeamStage = STAGE,
    **settings: Any,
) -> Iterator[partial[dict[int, float]]]:
    """A run of one group outside of the cluster, with the same settings; a function that waits for a step.

    `ranks`: of the group.

    It returns the losses up to that step.
    """
    file, run_dir = folder / "config.yaml", folder / "undisturbed"
    given = config_of(**settings)
    given |= {"groups": given["groups"] | {"workers": 8}}
    given["data"] |= {"path": str(prepare_data(cluster, stage))}
    file.write_text(yaml.safe_dump(given))
    gang = ["trainyard.launch", f"--ranks={ranks}", "--", "-m"]
    words = [
        "-m",
        *(gang if ranks > 1 else ()),
        "trainer",
        "--config",
        str(file),
        "--run-dir",
        str(run_dir),
    ]
    with (folder / "undisturbed.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, *words],
            cwd=paths.PROJECT,
            env=cluster.env | {"OMP_NUM_THREADS": "1"},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        yield partial(_losses_until, folder, process)
    finally:
        process.kill()
        process.wait()


def _losses_until(folder: Path, process: subprocess.Popen[bytes], step: int) -> dict[int, float]:
    def there() -> dict[int, float] | None:
        found = {
            line["step"]: line["loss"]
            for line in read_lines(folder / "undisturbed" / METRICS_FILE)
            if line["step"] <= step
        }
        ended = process.poll() is not None
        assert not ended or len(found) == step, (folder / "undisturbed.log").read_text()
        return found if len(found) == step else None

    return until(there, f"step {step} of the undisturbed run", STEP_S, every_s=0.25)
