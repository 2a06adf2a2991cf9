"""Runs of every job kind on their real controllers, with small programs as ranks."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from infra.domain import naming
from infra.domain.launcher_support import LAUNCHERS as SUPPORT
from sandbox import paths
from tests.golden.example_runs import PREPARED, run
from tests.sandbox.conftest import Cluster
from tests.sandbox.node_kit import trainer_image, until
from tests.sandbox.team_kit import TeamStage, process_pool
from training.launchers import LAUNCHERS
from training.launchers import program as program_of_pods
from training.spec import Resources, RunSpec
from trainyard import contract
from trainyard.contract import PROGRAM_FILE

TEAM: Final = "launch"
NAMESPACE: Final = naming.namespace(TEAM)
SPOT: Final = "launch-spot"
OPERATORS: Final = ("kubeflowTrainer", "trainingOperator", "mpiOperator")
NODES: Final = 10
"""Two more than four gangs need, so that a replaced pod finds a node."""
END_S: Final = 300.0
"""For a run of small processes, on a machine that may be busy with other tests."""

_PROGRAMS: Final = Path(__file__).parent / "launcher_programs"
_LAUNCH: Final = program_of_pods.COMMAND[1:]
ALONE: Final = "alone.py"
_ENDED: Final = {"Complete": "done", "Succeeded": "done", "Completed": "done", "Failed": "failed"}

Json = dict[str, Any]

STAGE: Final = TeamStage(
    team=TEAM,
    pools=[process_pool(SPOT, "spot", NODES, "launch-zone")],
    guaranteed={SPOT: NODES},
    more={"operators": {name: {"provided": True} for name in ("kueue", "jobset", *OPERATORS)}},
)


def documented() -> Json:
    """What docs/sandbox.md says to add to the local stack's file."""
    text = (paths.PROJECT / "docs" / "sandbox.md").read_text().partition("## More job kinds\n")[2]
    found = yaml.safe_load(text.partition("```yaml\n")[2].partition("```")[0])
    return {name.removeprefix("trainyard:"): value for name, value in found.items()}


@dataclass(frozen=True)
class LiveRun:
    """A run on the cluster. `kind`: its job kind."""

    cluster: Cluster
    kind: str
    spec: RunSpec

    @property
    def folder(self) -> Path:
        """The run's directory, as the ranks see it."""
        inside = Path(self.spec.run_dir).relative_to(contract.CHECKPOINT_MOUNT)
        return STAGE.volume(self.cluster, naming.CHECKPOINTS_CLAIM) / inside

    def lines(self) -> list[str]:
        """What the ranks wrote: `ATTEMPT RANK HOST`, in order."""
        path = self.folder / "started"
        return path.read_text().splitlines() if path.exists() else []

    def outcome(self) -> str:
        """Return done, failed, or nothing while it may go on."""
        resource = SUPPORT[self.kind].kind
        text = self.cluster.kubectl(
            *("get", f"{resource.resource}.{resource.version}.{resource.group}"),
            *(self.spec.run_id, "-n", NAMESPACE, "-o", "json"),
        )
        conditions = json.loads(text).get("status", {}).get("conditions", [])
        ended = [c["type"] for c in conditions if c["status"] == "True" and c["type"] in _ENDED]
        return _ENDED[ended[-1]] if ended else ""

    def await_outcome(self, outcome: str) -> None:
        until(self.outcome, f"{self.kind} has ended", END_S, every_s=0.5)
        assert self.outcome() == outcome, self.describe()

    def attempts(self) -> int:
        """Attempts in which both ranks have met."""
        met = [line.split()[0] for line in self.lines()]
        return sum(met.count(attempt) == self.spec.nodes for attempt in set(met))

    def await_attempts(self, count: int) -> None:
        try:
            until(lambda: self.attempts() >= count, f"{self.kind}: {count} attempts", END_S)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.describe()}") from None

    def node_of_last_rank(self) -> str:
        host = next(line.split()[2] for line in reversed(self.lines()) if line.split()[1] == "1")
        selector = f"{naming.RUN_ID}={self.spec.run_id}"
        text = self.cluster.kubectl("get", "pods", "-n", NAMESPACE, "-l", selector, "-o", "json")
        return next(
            str(pod["spec"]["nodeName"])
            for pod in json.loads(text)["items"]
            if host in (pod["metadata"]["name"], pod["spec"].get("hostname"))
            and pod["status"]["phase"] == "Running"
        )

    def finish(self) -> None:
        (self.folder / "finish").touch()

    def describe(self) -> str:
        selector = ("-n", NAMESPACE, "-l", f"{naming.RUN_ID}={self.spec.run_id}")
        pods = self.cluster.kubectl("get", "pods", *selector, "-o", "wide")
        logs = self.cluster.kubectl("logs", *selector, "--tail=15", "--prefix", "--ignore-errors")
        events = self.cluster.kubectl("get", "events", "-n", NAMESPACE, "--sort-by=.lastTimestamp")
        own = [line for line in events.splitlines() if self.spec.run_id in line]
        return "\n".join([*self.lines(), pods, logs, *own[-15:]])


def spec_of(kind: str, name: str, **changes: Any) -> RunSpec:
    """A run of two nodes."""
    return run(
        dataset=PREPARED,
        name=name,
        team=TEAM,
        job_kind=kind,
        image=trainer_image(),
        processes_per_node=1,
        resources=Resources(cpu="1", memory="1Gi", shm="64Mi"),
        max_hours=None,
        **changes,
    )


def start(
    cluster: Cluster, kind: str, name: str, plan: str, *, program: str = "rank.py", **changes: Any
) -> LiveRun:
    """Start a run of two nodes whose ranks are `program`; `plan`: what rank.py does in each attempt.

    alone.py runs under the parent process that restarts a program in its pod, in place of a launcher.
    """
    spec = spec_of(kind, name, **changes)
    scripts = {path.name: path.read_text() for path in sorted(_PROGRAMS.glob("*.py"))}
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": spec.run_id, "namespace": NAMESPACE},
        "data": scripts | {"plan": plan, PROGRAM_FILE: _program(spec, program)},
    }
    rendered = copy.deepcopy(LAUNCHERS[kind].render(spec, STAGE.platform()))
    for manifest in [config, *(STAGE.own(one) for one in rendered)]:
        for body in _pod_specs(manifest):
            body["terminationGracePeriodSeconds"] = 30
            for container in body["containers"]:
                container["command"] = _with_program(spec, container["command"], program)
        cluster.apply(manifest)
    return LiveRun(cluster, kind, spec)


def _pod_specs(value: Any) -> Iterator[Json]:
    if isinstance(value, dict):
        if "containers" in value:
            yield value
        for one in value.values():
            yield from _pod_specs(one)
    elif isinstance(value, list):
        for one in value:
            yield from _pod_specs(one)


def _program(spec: RunSpec, name: str) -> str:
    """Return program.json with a program in the trainer's place."""
    command = [f"{contract.CONFIG_MOUNT}/{name}", "--run-dir", spec.run_dir]
    return json.dumps(
        {"launcher": program_of_pods.started(spec).launcher, "command": command, "env": {}}
    )


def _with_program(spec: RunSpec, command: list[str], name: str) -> list[str]:
    """Return the rendered command; a program without torch is started in the launcher's place, but by mpirun."""
    if name == "gloo.py" or spec.job_kind == "mpijob":
        return command
    return _replace(
        command, _LAUNCH, [f"{contract.CONFIG_MOUNT}/{name}", "--run-dir", spec.run_dir]
    )


def _replace(words: list[str], old: tuple[str, ...], new: list[str]) -> list[str]:
    for index in range(len(words) - 1):
        if tuple(words[index : index + 2]) == old:
            return [*words[:index], *new, *words[index + 2 :]]
    return words
