"""The interruption drill: runs whose spot node is taken are compared with undisturbed ones, loss by loss.

Of three equal runs one is the reference, one loses its node with the cloud's notice, and one without. Then a
program of two groups loses a node and gets it back. Beside it the same program trains with one group, on the other
spot node, so that the lost group finds no other; neither has a last step.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import yaml
from rich.console import Console
from rich.table import Table

from infra.domain import naming
from ops import groups, objects
from ops.collect import NoSuchRunError
from ops.runs import states
from ops.runs.listing import summary_of
from ops.snapshot import Snapshot
from sandbox import paths
from sandbox.engine import STACK
from sandbox.node import reclaim
from sandbox.node.api import Json
from sandbox.reporting import SandboxError
from sandbox.runs import Progress
from sandbox.session import Session

RUN_FILE: Final = paths.PROJECT / "training" / "runs" / "drill.yaml"
GROUPS_RUN_FILE: Final = paths.PROJECT / "examples" / "ddp" / "elastic.yaml"
PREFIX: Final = "drill-"
NOTICE_S: Final = 120.0
"""The notice of an EC2 spot instance."""
INTERRUPT_AT_STEP: Final = 14
"""Not a multiple of the checkpoint interval, so that lost steps show."""
RESUME_TIMEOUT_S: Final = 600.0
_ENDLESS: Final = ["elastic.py", "--steps", "1000000", "--save-every", "200"]
_STEPS: Final = 6
"""Steps between two changes of the groups."""
ELASTIC_RUNS: Final = {"trainyard:elasticRuns": {"image": "sandbox.trainyard.dev/ops@source"}}
"""Section of the stack file without which run files have no groups."""


@dataclass(frozen=True)
class Outcome:
    """Result of one interruption. `allowed`: steps that may be lost, and be repeated after the resume."""

    title: str
    run_id: str
    capacity: str
    steps_lost: int
    allowed: int
    resumed_after_s: float
    differing_step: int | None


@dataclass(frozen=True)
class Change:
    """A group left or joined. `stall_s`: the longest time between two steps around it, less a usual step."""

    what: str
    step: int
    stall_s: float


class Drill:
    """One drill in a running cluster. Its runs are added to the stack one after the other."""

    def __init__(self, session: Session, console: Console) -> None:
        self._session, self._console = session, console
        # Names are unique: an equal spec would be the same, already finished run.
        self._stamp = time.strftime("%m%d%H%M%S")
        self._deployed: dict[str, Json] = {}

    def run(self) -> bool:
        """Print what happens; return whether no run lost more steps than allowed, and all losses are equal.

        Raises SandboxError: a run failed, or did not reach the step of its interruption.
        """
        self._remove_earlier_drill()
        self._wait_for_other_runs()
        self._title("Reference: a run without interruption")
        document = yaml.safe_load(RUN_FILE.read_text())
        config = paths.PROJECT / "training" / "configs" / f"{document['config']}.yaml"
        interval = int(yaml.safe_load(config.read_text())["checkpoint"]["every_steps"])
        [undisturbed] = self._deploy(reference=document)
        self._finish(undisturbed)
        reference = self._session.runs.progress(undisturbed)
        outcomes = []
        for name, title, notice_s, allowed in (
            ("notice", "reclaimed with notice", NOTICE_S, 0),
            ("kill", "reclaimed without notice", 0.0, interval),
        ):
            self._title(f"Interruption: a spot node is {title}")
            [target] = self._deploy(**{name: document})
            outcomes.append(self._interrupt(target, title, notice_s, allowed, reference))
            self._restore("all")
        self._title("Interruption: a spot node is taken from a program of two groups")
        equal = self._take_from_groups()
        columns = ("a spot node was", "run", "steps lost", "resumed after", "losses", "capacity")
        self._table("Interruptions", columns, map(_row, outcomes))
        return equal and all(
            one.differing_step is None and one.steps_lost <= one.allowed for one in outcomes
        )

    def _remove_earlier_drill(self) -> None:
        """Remove the runs of an earlier drill that was killed, and their folders."""
        runs = self._session.runs.all()
        if any(objects.label(run, naming.RUN).startswith(PREFIX) for run in runs):
            self._title("Removing the runs of an earlier drill")
            self._session.deploy()
        for folder in self._session.state.volumes.glob(f"*/checkpoints/{PREFIX}*"):
            shutil.rmtree(folder)

    def _wait_for_other_runs(self) -> None:
        """Wait for other runs: one on the spot nodes would move the drill's runs to other capacity."""
        for other in self._session.runs.all():
            # A run that is being deleted occupies nodes until its last pod has saved and stopped.
            with suppress(NoSuchRunError):
                if not summary_of(self._session.runs.read(other)).over:
                    self._title(f"Waiting for {objects.run_id_of(other)} to finish")
                    self._session.runs.follow(other, self._console)

    def _deploy(self, **runs: Json) -> list[Json]:
        """Add runs, by the middle part of their name, to the stack; return them."""
        names = {f"{PREFIX}{name}-{self._stamp}": document for name, document in runs.items()}
        self._deployed |= names
        folder = self._session.state.home / "drill"
        folder.mkdir(parents=True, exist_ok=True)
        stack = yaml.safe_load((paths.PROJECT / f"Pulumi.{STACK}.yaml").read_text())
        listed = stack["config"].setdefault("trainyard:runs", [])
        for name, document in self._deployed.items():
            (folder / f"{name}.yaml").write_text(yaml.safe_dump(document | {"name": name}))
            listed.append(str(folder / f"{name}.yaml"))
            if "groups" in document:
                stack["config"] |= ELASTIC_RUNS
        config = folder / f"Pulumi.{STACK}.yaml"
        config.write_text(yaml.safe_dump(stack))
        self._session.deploy(config)
        return [self._session.runs.find(name) for name in names]

    def _interrupt(
        self, target: Json, title: str, notice_s: float, allowed: int, reference: Progress
    ) -> Outcome:
        """Reclaim a node of the run at `INTERRUPT_AT_STEP`, then follow the run until it ends."""
        runs, run_id = self._session.runs, objects.run_id_of(target)
        before = runs.follow(target, self._console, lambda at: at.step >= INTERRUPT_AT_STEP)
        if summary_of(before).over:
            raise SandboxError(f"{run_id}: ended before it could be interrupted")
        running = [pod for pod in before.pods if pod["status"].get("phase") == "Running"]
        if not running:
            raise SandboxError(f"{run_id}: no running pod to interrupt")
        attempt, done, since = _attempt(runs.progress(target)), 0, time.time()

        def resumed(at: Progress) -> bool:
            nonlocal done
            # The resumed run removes the steps that it repeats.
            done = max([done, *(line["step"] for line in at.metrics if line["attempt"] == attempt)])
            return _attempt(at) > attempt or time.time() > since + RESUME_TIMEOUT_S

        self._reclaim(max(pod["spec"]["nodeName"] for pod in running), notice_s)
        after = runs.follow(target, self._console, resumed)
        progress = runs.progress(target)
        first = next((line for line in progress.metrics if line["attempt"] > attempt), None)
        if first is None:
            raise SandboxError(
                f"{run_id}: no step within {RESUME_TIMEOUT_S:.0f} s of its interruption;"
                f" see {runs.folder(target)}"
            )
        self._finish(target)
        return Outcome(
            title,
            run_id,
            " -> ".join(", ".join(summary_of(one).pools) for one in (before, after)),
            max(0, done + 1 - int(first["step"])),
            allowed,
            float(first["time"]) - since,
            first_difference(reference.metrics, runs.progress(target).metrics),
        )

    def _take_from_groups(self) -> bool:
        """Take a node from a program of two groups; return whether the other group went on with equal losses."""
        document = yaml.safe_load(GROUPS_RUN_FILE.read_text())
        document["program"]["command"] = _ENDLESS
        # First the undisturbed one: of the two spot nodes it leaves one.
        alone = document | {"groups": {"max": 1, "onDemand": 0}}
        undisturbed, target = self._deploy(alone=alone, groups=document)
        self._until(target, lambda at: groups_of(at) == 2 and at.step > _STEPS)
        stays, goes = (self._pod_of_group(target, number) for number in (0, 1))
        node = str(goes["spec"]["nodeName"])
        self._reclaim(node, NOTICE_S)
        left = self._until(target, lambda at: groups_of(at) == 1)
        self._until(target, lambda at: at.step > left.step + _STEPS)
        self._restore(node)
        last = self._until(target, lambda at: groups_of(at) == 2).step + _STEPS
        reached = self._until(target, lambda at: at.step >= last)
        restarted = _identity(self._pod_of_group(target, 0)) != _identity(stays)
        self._report(f"waiting for step {last} of the undisturbed run")
        other = self._until(undisturbed, lambda at: at.step >= last)
        wanted, got = (
            [line for line in one.metrics if line["step"] <= last] for one in (other, reached)
        )
        differing = first_difference(wanted, got)
        self._table(
            f"Elastic run {objects.run_id_of(target)}",
            ("change", "at step", "stall of the others", "restarts"),
            [
                (
                    one.what,
                    str(one.step),
                    f"{one.stall_s:.2f} s",
                    "the other group" if restarted else "none",
                )
                for one in changes(reached)
            ],
        )
        self._report(f"losses: {_losses(differing)}, of {last} steps")
        return differing is None and not restarted

    def _until(self, target: Json, found: Callable[[Progress], bool]) -> Progress:
        seen = summary_of(self._session.runs.follow(target, self._console, found))
        if seen.over:
            raise SandboxError(f"{seen.run_id}: {seen.state}: {seen.message}")
        return self._session.runs.progress(target)

    def _finish(self, target: Json) -> None:
        """Follow a run to its last step. Raises SandboxError if it ends otherwise."""
        ended: Snapshot = self._session.runs.follow(target, self._console)
        one = summary_of(ended)
        if one.state != states.FINISHED:
            raise SandboxError(f"{one.run_id}: {one.state}: {one.message}")

    def _pod_of_group(self, target: Json, number: int) -> Json:
        for pod in self._session.runs.read(target).pods:
            mine = groups.number_of(pod) == number
            if mine and pod["status"].get("phase") == "Running":
                return pod
        raise SandboxError(f"{objects.run_id_of(target)}: group {number} has no running pod")

    def _reclaim(self, node: str, notice_s: float) -> None:
        self._report(f"[bold]reclaiming {node}[/bold], {notice_s:.0f} s notice")
        reclaim.reclaim(node, notice_s, on_event=self._report)

    def _restore(self, node: str) -> None:
        for name in reclaim.restore(node):
            self._report(f"node {name} restored")

    def _title(self, text: str) -> None:
        self._console.print(f"[bold]{text}[/bold]")

    def _report(self, text: str) -> None:
        self._console.print(f"  {text}", highlight=False)

    def _table(self, title: str, columns: Iterable[str], rows: Iterable[Sequence[str]]) -> None:
        table = Table(*columns, title=title, title_justify="left")
        for row in rows:
            table.add_row(*row)
        self._console.print(table)


def _row(one: Outcome) -> tuple[str, ...]:
    lost = f"{one.steps_lost} (allowed {one.allowed})"
    seconds = f"{one.resumed_after_s:.1f} s"
    return one.title, one.run_id, lost, seconds, _losses(one.differing_step), one.capacity


def _losses(differing_step: int | None) -> str:
    return "bit for bit equal" if differing_step is None else f"differ from step {differing_step}"


def _attempt(progress: Progress) -> int:
    return int(progress.metrics[-1]["attempt"]) if progress.metrics else 0


def _identity(pod: Json) -> tuple[str, str]:
    """Return what changes when a pod or its container is started anew."""
    status = (pod["status"].get("containerStatuses") or [{}])[0]
    return str(pod["metadata"]["uid"]), str(status.get("containerID") or status.get("restartCount"))


def first_difference(wanted: list[dict[str, Any]], got: list[dict[str, Any]]) -> int | None:
    """Return the first step whose loss differs in any bit or that only one run has, else None."""
    losses = {line["step"]: line["loss"] for line in got}
    for line in wanted:
        if losses.pop(line["step"], None) != line["loss"]:
            return int(line["step"])
    return min(losses, default=None)


def groups_of(progress: Progress) -> int:
    """Return how many groups take part, by the newest change of the membership."""
    found = [e for e in progress.events if e.get("event") == "membership"]
    return int(found[-1]["groups"]) if found else 0


def changes(progress: Progress) -> list[Change]:
    """Return the changes after all groups were there first."""
    found: list[Change] = []
    before, most = 0, 0
    for event in (e for e in progress.events if e.get("event") == "membership"):
        number, step = int(event["groups"]), int(event["step"])
        if most == 2 and number != before:
            found.append(
                Change(f"{before} -> {number} groups", step, stall(progress.metrics, step))
            )
        before, most = number, max(most, number)
    return found


def stall(metrics: Sequence[Json], step: int) -> float:
    """Return the longest time between two steps around a step, less a usual one, in seconds."""
    times = {line["step"]: float(line["time"]) for line in metrics}
    gaps = {s: times[s] - times[s - 1] for s in times if s - 1 in times}
    near = [gap for s, gap in gaps.items() if abs(s - step - 1) <= 1]
    usual = statistics.median(gaps.values()) if gaps else 0.0
    return max(0.0, max(near, default=0.0) - usual)
