"""The elastic part of the interruption drill: a spot node is taken from a program of two groups, and comes back.

Beside it the same run trains with one group that nothing disturbs, on the other spot node; so the lost group finds
no other node. Both have no last step: they are compared step by step, and then removed.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml
from rich.console import Console
from rich.table import Table

from ops import groups, objects
from ops.runs import states
from ops.runs.listing import summary_of
from ops.snapshot import Snapshot
from sandbox import paths
from sandbox.node import reclaim
from sandbox.node.api import Json
from sandbox.runs import Progress
from sandbox.session import Session

RUN_FILE: Final = paths.PROJECT / "examples" / "ddp" / "elastic.yaml"
SECTION: Final = {"trainyard:elasticRuns": {"image": "sandbox.trainyard.dev/ops@source"}}
"""Of the stack file: run files have groups only with it."""
_ENDLESS: Final = ["elastic.py", "--steps", "1000000", "--save-every", "200"]
_STEPS: Final = 6
"""Steps between two changes."""

Deploy = Callable[[Mapping[str, Json]], None]
"""Adds runs, by name, to the stack."""


class DrillError(Exception):
    """The drill could not run, or a run did not resume; the text is one line."""


@dataclass(frozen=True)
class Change:
    """A group left or joined."""

    what: str
    step: int
    stall_s: float
    """The longest time between two steps around it, less a usual step."""


@dataclass(frozen=True)
class ElasticOutcome:
    """What happened to the run."""

    run_id: str
    changes: Sequence[Change]
    restarted: bool
    """Whether the group that stayed was started anew."""
    steps: int
    """Steps that were compared."""
    differing_step: int | None

    @property
    def passed(self) -> bool:
        """Whether nobody restarted, and all losses equal those of the undisturbed run."""
        return self.differing_step is None and not self.restarted


def run_elastic(
    session: Session, console: Console, prefix: str, stamp: str, deploy: Deploy, notice_s: float
) -> ElasticOutcome:
    """Run it; return what happened. Raises DrillError."""
    console.print("[bold]Interruption: a spot node is taken from a program of two groups[/bold]")
    name, alone = f"{prefix}groups-{stamp}", f"{prefix}alone-{stamp}"
    template = yaml.safe_load(RUN_FILE.read_text())
    template["program"]["command"] = _ENDLESS
    # First the undisturbed one: of the two spot nodes it leaves one.
    deploy({alone: template | {"groups": {"max": 1, "onDemand": 0}}, name: template})
    target, undisturbed = session.runs.find(name), session.runs.find(alone)
    _until(session, target, console, lambda at: groups_of(at) == 2 and at.step > _STEPS)
    stays, goes = (_pod(session, target, number) for number in (0, 1))
    node = str(goes["spec"]["nodeName"])
    console.print(f"  [bold]reclaiming {node}[/bold], {notice_s:.0f} s notice", highlight=False)

    def report(text: str) -> None:
        console.print(f"  {text}", highlight=False)

    reclaim.reclaim(node, notice_s, on_event=report)
    left = _until(session, target, console, lambda at: groups_of(at) == 1)
    _until(session, target, console, lambda at: at.step > left.step + _STEPS)
    for back in reclaim.restore(node):
        report(f"node {back} restored")
    grown = _until(session, target, console, lambda at: groups_of(at) == 2)
    last = grown.step + _STEPS
    reached = _until(session, target, console, lambda at: at.step >= last)
    restarted = _identity(_pod(session, target, 0)) != _identity(stays)
    console.print(f"  waiting for step {last} of the undisturbed run", highlight=False)
    other = _until(session, undisturbed, console, lambda at: at.step >= last)
    wanted, got = (_up_to(one, last) for one in (other, reached))
    return ElasticOutcome(
        run_id=objects.run_id_of(target),
        changes=changes(reached),
        restarted=restarted,
        steps=last,
        differing_step=next((s for s in range(1, last + 1) if wanted.get(s) != got.get(s)), None),
    )


def print_outcome(outcome: ElasticOutcome, console: Console) -> None:
    """Print what happened to the run with groups."""
    table = Table(title=f"Elastic run {outcome.run_id}", title_justify="left")
    for column in ("change", "at step", "stall of the others", "restarts"):
        table.add_column(column)
    for change in outcome.changes:
        table.add_row(
            change.what,
            str(change.step),
            f"{change.stall_s:.2f} s",
            "the other group" if outcome.restarted else "none",
        )
    console.print(table)
    same = f"bit for bit equal over {outcome.steps} steps"
    found = same if outcome.differing_step is None else f"differ from step {outcome.differing_step}"
    console.print(f"  losses: {found}", highlight=False)


def groups_of(progress: Progress) -> int:
    """Return how many groups take part, by the newest change of the membership."""
    found = [e for e in progress.events if e.get("event") == "membership"]
    return int(found[-1]["groups"]) if found else 0


def changes(progress: Progress) -> list[Change]:
    """Return the changes after all groups were there first."""
    found: list[Change] = []
    before, most = 0, 0
    for event in (e for e in progress.events if e.get("event") == "membership"):
        number = int(event["groups"])
        if most == 2 and number != before:
            what = f"{before} -> {number} groups"
            step = int(event["step"])
            found.append(Change(what, step, stall(progress.metrics, step)))
        before, most = number, max(most, number)
    return found


def stall(metrics: Sequence[Json], step: int) -> float:
    """Return the longest time between two steps around a step, less a usual one, in seconds."""
    times = {line["step"]: float(line["time"]) for line in metrics}
    gaps = {s: times[s] - times[s - 1] for s in times if s - 1 in times}
    near = [gap for s, gap in gaps.items() if abs(s - step - 1) <= 1]
    usual = statistics.median(gaps.values()) if gaps else 0.0
    return max(0.0, max(near, default=0.0) - usual)


def _up_to(progress: Progress, step: int) -> dict[int, Any]:
    return {line["step"]: line["loss"] for line in progress.metrics if line["step"] <= step}


def _until(
    session: Session, target: Json, console: Console, found: Callable[[Progress], bool]
) -> Progress:
    seen = session.runs.follow(target, console, found)
    if summary_of(seen).over:
        raise DrillError(f"{seen.run_id}: {summary_of(seen).state}: {summary_of(seen).message}")
    return session.runs.progress(target)


def require_finished(ended: Snapshot) -> None:
    """Raise DrillError unless the run has reached its last step."""
    one = summary_of(ended)
    if one.state != states.FINISHED:
        raise DrillError(f"{one.run_id}: {one.state}: {one.message}")


def _pod(session: Session, target: Json, number: int) -> Json:
    """Return the running pod of a group."""
    for pod in session.runs.read(target).pods:
        mine = groups.number_of(pod) == number
        if mine and pod["status"].get("phase") == "Running":
            return pod
    raise DrillError(f"{objects.run_id_of(target)}: group {number} has no running pod")


def _identity(pod: Json) -> tuple[str, str]:
    """Return what changes when a pod or its container is started anew."""
    status = (pod["status"].get("containerStatuses") or [{}])[0]
    return str(pod["metadata"]["uid"]), str(status.get("containerID") or status.get("restartCount"))
