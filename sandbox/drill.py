"""The interruption drill: a spot node is taken away under a run, with notice and without.

Three runs of one trainer configuration: one undisturbed (the reference), one whose node is reclaimed with the
notice that a cloud gives, one whose node vanishes. What counts is in `Outcome`: steps lost, seconds to the first
step after the interruption, and whether every loss is bit for bit that of the reference.
"""

from __future__ import annotations

import shutil
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from sandbox import paths, run_report
from sandbox.engine import STACK
from sandbox.node import reclaim
from sandbox.runs import Run, RunNotFoundError, RunStatus, run_dir
from sandbox.session import Session
from sandbox.watch import watch_run

RUN_FILE = paths.PROJECT / "training" / "runs" / "drill.yaml"
PREFIX = "drill-"
NOTICE_S = 120.0
"""What a spot instance of EC2 gets."""
INTERRUPT_AT_STEP = 14
"""Not a multiple of the drill's checkpoint interval, so that a lost interval would show."""
RESUME_TIMEOUT_S = 240.0
POLL_S = 0.1


class DrillError(Exception):
    """The drill could not be carried out, or a run did not survive it; one line."""


@dataclass(frozen=True)
class Resumption:
    """What was seen from the interruption to the first step after it."""

    steps_before: int
    resumed_from: int
    seconds: float


@dataclass(frozen=True)
class Outcome:
    """What one interruption cost. `allowed`: steps that may be lost."""

    title: str
    status: RunStatus
    capacity: str
    resumption: Resumption
    allowed: int
    differing_step: int | None

    @property
    def steps_lost(self) -> int:
        """Steps that had to be made twice."""
        return max(0, self.resumption.steps_before - self.resumption.resumed_from)

    @property
    def passed(self) -> bool:
        """No more lost than allowed, and the losses of the undisturbed run."""
        return self.differing_step is None and self.steps_lost <= self.allowed


def run_drill(session: Session, console: Console) -> bool:
    """Carry out the drill and print its table; True when every interruption passed.

    Raises:
        DrillError: a run failed, or never got to the step of its interruption.
    """
    interval = _checkpoint_interval()
    _remove_earlier_drill(session, console)
    _wait_for_other_runs(session, console)
    # The same spec would be the same run, and one that is finished has nothing left to interrupt.
    stamp = time.strftime("%m%d%H%M%S")
    names = [f"{PREFIX}reference-{stamp}"]
    console.print("[bold]Reference: a run that nobody disturbs[/bold]")
    reference = watch_run(session.reader, _deploy_copies(session, names), console)
    _require_completed(reference)
    outcomes = []
    for name, title, notice_s, allowed in (
        ("notice", "reclaimed with notice", NOTICE_S, 0),
        ("kill", "gone without notice", 0.0, interval),
    ):
        names.append(f"{PREFIX}{name}-{stamp}")
        console.print(f"[bold]A spot node is {title}[/bold]")
        status, capacity, resumption = _interrupt(
            session, _deploy_copies(session, names), notice_s, console
        )
        differing = first_difference(reference.progress.metrics, status.progress.metrics)
        outcomes.append(Outcome(title, status, capacity, resumption, allowed, differing))
        for node in reclaim.restore("all"):
            console.print(f"  node {node} is back", highlight=False)
    _print_outcomes(session, reference, outcomes, console)
    return all(outcome.passed for outcome in outcomes)


def _remove_earlier_drill(session: Session, console: Console) -> None:
    """Remove what an earlier drill has left: its runs in the stack, if it was killed, and their folders."""
    if any(run.name.startswith(PREFIX) for run in session.reader.runs()):
        console.print("[bold]Removing the runs of an earlier drill[/bold]")
        session.deploy()
    for folder in session.state.volumes.glob(f"*/checkpoints/{PREFIX}*"):
        shutil.rmtree(folder)


def _wait_for_other_runs(session: Session, console: Console) -> None:
    """Another run on the spot nodes would send the drill's to other capacity."""
    for other in session.reader.runs():
        # One that is being deleted goes on until its last pod has saved and stopped.
        with suppress(RunNotFoundError):
            if not session.reader.snapshot(other).outcome:
                console.print(f"[bold]The drill waits for {other.run_id}[/bold]")
                watch_run(session.reader, other, console)


def first_difference(wanted: list[dict[str, Any]], got: list[dict[str, Any]]) -> int | None:
    """The first step whose loss is not bit for bit the same, or that only one side has."""
    losses = {line["step"]: line["loss"] for line in got}
    for line in wanted:
        if losses.pop(line["step"], None) != line["loss"]:
            return int(line["step"])
    return min(losses, default=None)


def _deploy_copies(session: Session, names: list[str]) -> Run:
    """Add the named copies of the drill run to the stack, beside what it holds already."""
    folder = session.state.home / "drill"
    folder.mkdir(parents=True, exist_ok=True)
    template = RUN_FILE.read_text()
    files = []
    for name in names:
        document = yaml.safe_load(template) | {"name": name}
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(document))
        files.append(str(folder / f"{name}.yaml"))
    stack = yaml.safe_load((paths.PROJECT / f"Pulumi.{STACK}.yaml").read_text())
    stack["config"]["trainyard:runs"] = [*stack["config"].get("trainyard:runs", []), *files]
    config = folder / f"Pulumi.{STACK}.yaml"
    config.write_text(yaml.safe_dump(stack))
    session.deploy(config)
    return session.reader.find(names[-1])


def _interrupt(
    session: Session, target: Run, notice_s: float, console: Console
) -> tuple[RunStatus, str, Resumption]:
    """Reclaim a node of the run when it has got going, and follow it to its end."""
    before = watch_run(
        session.reader, target, console, until=lambda s: s.progress.step >= INTERRUPT_AT_STEP
    )
    if before.outcome:
        raise DrillError(
            f"{target.run_id} was over before it could be interrupted: {before.message}"
        )
    node = _node_of(session, target)
    console.print(f"  [bold]interrupting {node}[/bold], {notice_s:.0f} s notice", highlight=False)
    watcher = _ResumptionWatcher(session, target)
    watcher.start()
    reclaim.reclaim(
        node, notice_s, on_event=lambda text: console.print(f"  {text}", highlight=False)
    )
    after = watch_run(session.reader, target, console, until=lambda _: not watcher.is_alive())
    resumption = watcher.result()
    status = watch_run(session.reader, target, console)
    _require_completed(status)
    return status, f"{', '.join(before.flavors)} -> {', '.join(after.flavors)}", resumption


class _ResumptionWatcher(threading.Thread):
    """Looks at the run's files until the first step of the next attempt is there."""

    def __init__(self, session: Session, target: Run) -> None:
        super().__init__(daemon=True)
        self._session, self._target = session, target
        self._before = session.reader.progress(target)
        self._attempt = int(self._before.metrics[-1]["attempt"])
        self._since = time.monotonic()
        self._watched: Resumption | None = None

    def run(self) -> None:
        most = self._before.step
        while time.monotonic() - self._since < RESUME_TIMEOUT_S:
            progress = self._session.reader.progress(self._target)
            lines = progress.metrics
            most = max([most, *(x["step"] for x in lines if x["attempt"] == self._attempt)])
            if lines and lines[-1]["attempt"] > self._attempt:
                resumed = [e for e in progress.events if e.get("event") == "resumed"]
                start = int(resumed[-1]["from_step"]) if resumed else 0
                self._watched = Resumption(most, start, time.monotonic() - self._since)
                return
            time.sleep(POLL_S)

    def result(self) -> Resumption:
        self.join()
        if self._watched is None:
            raise DrillError(
                f"{self._target.run_id} made no step within {RESUME_TIMEOUT_S:.0f} s of its"
                f" interruption; see {run_dir(self._session.state, self._target)}"
            )
        return self._watched


def _node_of(session: Session, target: Run) -> str:
    nodes = sorted(
        pod["spec"]["nodeName"]
        for pod in session.reader.pods(target)
        if pod["status"].get("phase") == "Running"
    )
    if not nodes:
        raise DrillError(f"{target.run_id} has no running pod to interrupt")
    return str(nodes[-1])


def _require_completed(status: RunStatus) -> None:
    if status.outcome != "Completed":
        raise DrillError(f"{status.run.run_id} {status.outcome.lower()}: {status.message}")


def _checkpoint_interval() -> int:
    """Steps between two checkpoints of the drill run, from its own files."""
    spec = yaml.safe_load(RUN_FILE.read_text())
    config = yaml.safe_load(
        (paths.PROJECT / "training/configs" / f"{spec['config']}.yaml").read_text()
    )
    return int(config["checkpoint"]["every_steps"])


def _print_outcomes(
    session: Session, reference: RunStatus, outcomes: list[Outcome], console: Console
) -> None:
    table = Table(title="Interruptions survived", title_justify="left")
    for column in (
        "a spot node was",
        "run",
        "steps lost",
        "to the next step",
        "losses",
        "capacity",
    ):
        table.add_column(column)
    for outcome in outcomes:
        same = outcome.differing_step is None
        table.add_row(
            outcome.title,
            outcome.status.run.run_id,
            f"{outcome.steps_lost} (allowed {outcome.allowed})",
            f"{outcome.resumption.seconds:.1f} s",
            "bit for bit equal" if same else f"differ from step {outcome.differing_step}",
            outcome.capacity,
        )
    console.print(table)
    statuses = [reference, *(outcome.status for outcome in outcomes)]
    folders: list[Path] = [run_dir(session.state, status.run) for status in statuses]
    picture, drawn = run_report.draw_loss_curves(folders, session.state.home / "runs" / "drill.png")
    console.print(
        f"  loss curves: {picture}" if drawn else f"  no picture: {picture}", highlight=False
    )
