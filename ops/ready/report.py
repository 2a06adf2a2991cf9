"""Results of a check: JSON for scripts, and text for people as it proceeds."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.status import Status

from ops import objects
from ops.ready.results import Check, Outcome, StageResult
from ops.ready.stack_facts import Stack
from ops.ready.stages import STAGES, Stage

_COLOURS: Final = {
    Outcome.PASSED: "green",
    Outcome.SIMULATED: "cyan",
    Outcome.FAILED: "bold red",
    Outcome.SKIPPED: "dim",
    Outcome.UNKNOWN: "yellow",
    Outcome.UNREACHED: "dim",
}
_WIDTH: Final = max(len(outcome.value) for outcome in Outcome)


def is_sound(stages: Sequence[StageResult]) -> bool:
    """Whether no stage failed."""
    return all(found.outcome is not Outcome.FAILED for found in stages)


def as_json(stack: Stack, at: dt.datetime, stages: Sequence[StageResult]) -> str:
    found = {
        "stack": stack.name,
        "cluster": stack.cluster,
        "at": objects.stamp(at),
        "sound": is_sound(stages),
        "stages": [found.as_json() for found in stages],
    }
    return json.dumps(found, indent=2)


def summary(outcomes: Sequence[Outcome]) -> str:
    """Return `11 of 14 passed, 1 simulated, 1 failed, 1 not known`."""
    counts = Counter(outcomes)
    others = [
        f"{counts[outcome]} {outcome.value}"
        for outcome in Outcome
        if outcome is not Outcome.PASSED and counts[outcome]
    ]
    return ", ".join([f"{counts[Outcome.PASSED]} of {len(outcomes)} passed", *others])


class Progress:
    def __init__(self, console: Console, status: Status) -> None:
        self._console = console
        self._status = status

    def show_stack(self, stack: Stack) -> None:
        about = f"stack {stack.name}, cluster {stack.cluster}, scheduler {stack.scheduler}"
        _print(self._console, escape(about))

    def show_progress(self, text: str) -> None:
        """Update the status line, which only terminals show."""
        self._status.update(escape(text))

    def stage_started(self, number: int, stage: Stage) -> None:
        self.show_progress(stage.title)
        self._title(number, stage.name, stage.title)

    def _title(self, number: int, name: str, title: str, more: str = "") -> None:
        _print(self._console, f"[bold]{number} {name}[/bold] {escape(title)}{more}")

    def found(self, check: Check) -> None:
        _line(self._console, check.outcome, check.subject, check.seen)
        for line in check.evidence:
            _print(self._console, f"      {escape(line)}")
        for line in check.remedy.splitlines():
            _print(self._console, f"      [green]->[/green] {escape(line)}")

    def print_rest(self, stages: Sequence[StageResult]) -> None:
        """Print the stages that were not reached, then the last one, which is evaluated at once."""
        *climbed, last = stages
        for one in climbed:
            if one.outcome is Outcome.UNREACHED:
                _line(self._console, one.outcome, one.stage, one.title)
        counts = summary([check.outcome for check in last.checks])
        self._title(len(STAGES) + 1, last.stage, last.title, f": {counts}")
        for check in last.checks:
            self.found(check)


def _line(console: Console, outcome: Outcome, subject: str, text: str) -> None:
    colour = _COLOURS[outcome]
    about = f"{escape(subject)}: " if subject else ""
    padded = outcome.value.ljust(_WIDTH)
    _print(console, f"  [{colour}]{padded}[/{colour}] {about}{escape(text)}")


def _print(console: Console, text: str) -> None:
    # Users copy commands from here: no added line breaks or colors.
    console.print(text, highlight=False, soft_wrap=True)
