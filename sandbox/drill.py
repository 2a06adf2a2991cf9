"""The interruption drill: reclaim a spot node under a run, with and without notice, and under one with groups.

Three runs share one trainer configuration: a reference without interruption, one whose node is reclaimed
with the cloud's notice, and one whose node vanishes. `Outcome` holds the results: steps lost, seconds to
the first step after the interruption, and whether every loss equals the reference's bit for bit.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from infra.domain import naming
from ops import objects
from ops.collect import NoSuchRunError
from ops.runs.listing import summary_of
from ops.snapshot import Snapshot
from sandbox import elastic_drill, paths, run_report
from sandbox.elastic_drill import DrillError as DrillError
from sandbox.engine import STACK
from sandbox.node import reclaim
from sandbox.node.api import Json
from sandbox.runs import Progress
from sandbox.session import Session

RUN_FILE = paths.PROJECT / "training" / "runs" / "drill.yaml"
PREFIX = "drill-"
NOTICE_S = 120.0
"""The notice of an EC2 spot instance."""
INTERRUPT_AT_STEP = 14
"""Not a multiple of the checkpoint interval, so that lost steps show."""
RESUME_TIMEOUT_S = 600.0
POLL_S = 0.1


@dataclass(frozen=True)
class Resumption:
    """Observations from the interruption to the first step after it."""

    steps_before: int
    resumed_from: int
    seconds: float


@dataclass(frozen=True)
class Outcome:
    """Result of one interruption. `allowed`: steps that may be lost."""

    title: str
    run_id: str
    progress: Progress
    capacity: str
    resumption: Resumption
    allowed: int
    differing_step: int | None

    @property
    def steps_lost(self) -> int:
        """Steps that were repeated after the resume."""
        return max(0, self.resumption.steps_before - self.resumption.resumed_from)

    @property
    def passed(self) -> bool:
        """Whether no more steps were lost than allowed and all losses equal the reference's."""
        return self.differing_step is None and self.steps_lost <= self.allowed


def run_drill(session: Session, console: Console) -> bool:
    """Run the drill and print its results; return True when every interruption passed.

    Raises:
        DrillError: a run failed, or did not reach the step of its interruption.
    """
    interval = _checkpoint_interval()
    _remove_earlier_drill(session, console)
    _wait_for_other_runs(session, console)
    # Names are unique: an equal spec would be the same, already finished run.
    stamp = time.strftime("%m%d%H%M%S")
    names = [f"{PREFIX}reference-{stamp}"]
    console.print("[bold]Reference: a run without interruption[/bold]")
    undisturbed = _deploy_copies(session, names)
    elastic_drill.require_finished(session.runs.follow(undisturbed, console))
    reference = session.runs.progress(undisturbed)
    outcomes = []
    for name, title, notice_s, allowed in (
        ("notice", "reclaimed with notice", NOTICE_S, 0),
        ("kill", "reclaimed without notice", 0.0, interval),
    ):
        names.append(f"{PREFIX}{name}-{stamp}")
        console.print(f"[bold]Interruption: a spot node is {title}[/bold]")
        target = _deploy_copies(session, names)
        capacity, resumption = _interrupt(session, target, notice_s, console)
        progress = session.runs.progress(target)
        differing = first_difference(reference.metrics, progress.metrics)
        run_id = objects.run_id_of(target)
        outcomes.append(Outcome(title, run_id, progress, capacity, resumption, allowed, differing))
        for node in reclaim.restore("all"):
            console.print(f"  node {node} restored", highlight=False)
    runs = {name: _template() for name in names}

    def add(more: Mapping[str, Json]) -> None:
        _deploy(session, {**runs, **more})

    elastic = elastic_drill.run_elastic(session, console, PREFIX, stamp, add, NOTICE_S)
    _print_outcomes(session, reference, outcomes, console)
    elastic_drill.print_outcome(elastic, console)
    return all(outcome.passed for outcome in outcomes) and elastic.passed


def _remove_earlier_drill(session: Session, console: Console) -> None:
    """Remove the runs of an earlier drill that was killed, and their folders."""
    if any(objects.label(run, naming.RUN).startswith(PREFIX) for run in session.runs.all()):
        console.print("[bold]Removing the runs of an earlier drill[/bold]")
        session.deploy()
    for folder in session.state.volumes.glob(f"*/checkpoints/{PREFIX}*"):
        shutil.rmtree(folder)


def _wait_for_other_runs(session: Session, console: Console) -> None:
    """Wait for other runs: one on the spot nodes would move the drill's runs to other capacity."""
    for other in session.runs.all():
        # A run that is being deleted occupies nodes until its last pod has saved and stopped.
        with suppress(NoSuchRunError):
            if not summary_of(session.runs.read(other)).over:
                console.print(f"[bold]Waiting for {objects.run_id_of(other)} to finish[/bold]")
                session.runs.follow(other, console)


def first_difference(wanted: list[dict[str, Any]], got: list[dict[str, Any]]) -> int | None:
    """Return the first step whose loss differs in any bit or that only one run has, else None."""
    losses = {line["step"]: line["loss"] for line in got}
    for line in wanted:
        if losses.pop(line["step"], None) != line["loss"]:
            return int(line["step"])
    return min(losses, default=None)


def _template() -> Json:
    found: Json = yaml.safe_load(RUN_FILE.read_text())
    return found


def _deploy_copies(session: Session, names: list[str]) -> Json:
    """Add copies of the drill run under these names to the stack; return the last one's run."""
    _deploy(session, {name: _template() for name in names})
    return session.runs.find(names[-1])


def _deploy(session: Session, runs: Mapping[str, Json]) -> None:
    """Deploy the stack with these runs, by name, besides its own."""
    folder = session.state.home / "drill"
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for name, document in runs.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(document | {"name": name}))
        files.append(str(folder / f"{name}.yaml"))
    stack = yaml.safe_load((paths.PROJECT / f"Pulumi.{STACK}.yaml").read_text())
    stack["config"]["trainyard:runs"] = [*stack["config"].get("trainyard:runs", []), *files]
    if any("groups" in document for document in runs.values()):
        stack["config"] |= elastic_drill.SECTION
    config = folder / f"Pulumi.{STACK}.yaml"
    config.write_text(yaml.safe_dump(stack))
    session.deploy(config)


def _interrupt(
    session: Session, target: Json, notice_s: float, console: Console
) -> tuple[str, Resumption]:
    """Reclaim a node of the run at `INTERRUPT_AT_STEP`, then follow the run until it ends."""
    runs = session.runs
    before = runs.follow(target, console, lambda at: at.step >= INTERRUPT_AT_STEP)
    if summary_of(before).over:
        raise DrillError(f"{before.run_id}: ended before it could be interrupted")
    node = _node_of(before)
    console.print(f"  [bold]reclaiming {node}[/bold], {notice_s:.0f} s notice", highlight=False)
    watcher = _ResumptionWatcher(session, target)
    watcher.start()
    reclaim.reclaim(
        node, notice_s, on_event=lambda text: console.print(f"  {text}", highlight=False)
    )
    after = runs.follow(target, console, lambda _: not watcher.is_alive())
    resumption = watcher.result()
    elastic_drill.require_finished(runs.follow(target, console))
    pools = (", ".join(summary_of(one).pools) for one in (before, after))
    return " -> ".join(pools), resumption


class _ResumptionWatcher(threading.Thread):
    """Polls the run's files until the first step of the next attempt."""

    def __init__(self, session: Session, target: Json) -> None:
        super().__init__(daemon=True)
        self._session, self._target = session, target
        self._before = session.runs.progress(target)
        self._attempt = int(self._before.metrics[-1]["attempt"])
        self._since = time.monotonic()
        self._watched: Resumption | None = None

    def run(self) -> None:
        most = self._before.step
        while time.monotonic() - self._since < RESUME_TIMEOUT_S:
            progress = self._session.runs.progress(self._target)
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
                f"{objects.run_id_of(self._target)}: no step within {RESUME_TIMEOUT_S:.0f} s of its"
                f" interruption; see {self._session.runs.folder(self._target)}"
            )
        return self._watched


def _node_of(seen: Snapshot) -> str:
    nodes = sorted(
        pod["spec"]["nodeName"] for pod in seen.pods if pod["status"].get("phase") == "Running"
    )
    if not nodes:
        raise DrillError(f"{seen.run_id}: no running pod to interrupt")
    return str(nodes[-1])


def _checkpoint_interval() -> int:
    """Read the drill run's steps between two checkpoints from its configuration."""
    spec = yaml.safe_load(RUN_FILE.read_text())
    config = yaml.safe_load(
        (paths.PROJECT / "training/configs" / f"{spec['config']}.yaml").read_text()
    )
    return int(config["checkpoint"]["every_steps"])


def _print_outcomes(
    session: Session, reference: Progress, outcomes: list[Outcome], console: Console
) -> None:
    table = Table(title="Interruptions", title_justify="left")
    for column in (
        "a spot node was",
        "run",
        "steps lost",
        "resumed after",
        "losses",
        "capacity",
    ):
        table.add_column(column)
    for outcome in outcomes:
        same = outcome.differing_step is None
        table.add_row(
            outcome.title,
            outcome.run_id,
            f"{outcome.steps_lost} (allowed {outcome.allowed})",
            f"{outcome.resumption.seconds:.1f} s",
            "bit for bit equal" if same else f"differ from step {outcome.differing_step}",
            outcome.capacity,
        )
    console.print(table)
    picture = session.state.home / "runs" / "drill.png"
    found = {"reference": reference, **{one.run_id: one.progress for one in outcomes}}
    run_report.draw_loss_curves(found, picture)
    console.print(f"  loss curves: {picture}", highlight=False)
