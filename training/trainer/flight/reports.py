"""What each rank tells the others about itself, as one small file in the run directory.

The watchdog of a rank replaces its file every few seconds, and at once when the rank makes no progress; the
training thread never writes it. Files are only compared with what they contained before: clocks differ between
nodes.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from training.trainer.flight.ring import Mark, Phase
from training.trainer.flight.shares import Window
from trainyard.culprits import FOLDER

RUNNING, FAILED, FINISHED = "running", "failed", "finished"


@dataclass(frozen=True, kw_only=True)
class Team:
    """Ranks that wait for each other, and this one among them: a gang, or the groups of a view of an elastic
    run."""

    label: str
    """`attempt-N` or `view-N`, with eight digits: newer teams sort later."""
    rank: int
    world: int
    attempt: int
    """Of the gang, or of the group that leads the view."""
    group: str = ""
    """Id of this rank's replica group in an elastic run."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """One rank, as it sees itself."""

    rank: int
    group: str = ""
    host: str
    node: str
    pod: str
    beat: int
    """Increases with every report of this process."""
    state: str = RUNNING
    error: str = ""
    step: int = 0
    phase: int = Phase.STARTUP
    seconds: float = 0.0
    """For how long the rank has been in this phase."""
    allowed: float = 0.0
    """For how long it may be there before that counts as a hang."""
    issued: int = 0
    """Collectives issued; in an elastic run, exchanges with other groups."""
    inside: int = 0
    """In an elastic run, collectives issued inside the group."""
    stuck: bool = False
    """Whether the rank has made no progress for `report.hang_after_s`."""
    marks: tuple[Mark, ...] = ()
    """The last ones; of a rank that is stuck or has failed."""
    frames: tuple[str, ...] = ()
    """`FILE:LINE FUNCTION` of the main thread, the innermost last; of a rank that is stuck or has failed."""
    collectives: tuple[str, ...] = ()
    """The last collectives, or those that are not complete; likewise."""
    waiting: bool | None = None
    """Whether any collective is not complete; None: not known."""
    kinds: Mapping[str, str] = field(default_factory=dict)
    """Operation, sizes and types of the last collectives, by number and group; of a rank that is stuck or has
    failed."""
    departs: bool = False
    """Whether the newest collective never came after the same ones before."""
    ring: str = ""
    """Where the ring of this rank is on its node."""
    window: Window | None = None
    silent: Mapping[int, str] = field(default_factory=dict)
    """What this rank sees of processes of its node that do not answer, by rank."""

    @property
    def frame(self) -> str:
        """The innermost frame of the main thread; empty if it is not known."""
        return self.frames[-1] if self.frames else ""

    def text(self) -> str:
        """Return the content of the file."""
        return json.dumps(asdict(self))


def parse(text: str) -> Report:
    """Return the report in a file. Raises KeyError, TypeError, ValueError."""
    values: dict[str, Any] = json.loads(text)
    window = values.pop("window")
    values["marks"] = tuple(Mark(**mark) for mark in values["marks"])
    values["silent"] = {int(rank): seen for rank, seen in values["silent"].items()}
    for name in ("frames", "collectives"):
        values[name] = tuple(values[name])
    if window is not None:
        window = Window.of(window)
    return Report(window=window, **values)


def attempt_label(attempt: int) -> str:
    """Return the label of a gang."""
    return f"attempt-{attempt:08d}"


def view_label(view: int) -> str:
    """Return the label of the groups of a view."""
    return f"view-{view:08d}"


class Board:
    """The reports of all ranks of one team."""

    def __init__(self, run_dir: Path, label: str) -> None:
        self._root = run_dir / FOLDER
        self.folder = self._root / label

    def open(self, *, first: bool) -> None:
        """Create the folder; the first rank removes those of earlier teams. Raises OSError."""
        if first:
            self.prepare()
        else:
            self.folder.mkdir(parents=True, exist_ok=True)

    def prepare(self) -> None:
        """Create the folder, and remove those of earlier teams. Raises OSError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        kind = self.folder.name.partition("-")[0]
        for old in self._root.glob(f"{kind}-*"):
            if old.name < self.folder.name:
                with contextlib.suppress(OSError):
                    for file in old.iterdir():
                        file.unlink()
                    old.rmdir()

    def write(self, report: Report) -> None:
        """Replace a rank's file. Raises OSError; FileNotFoundError once a newer team has begun."""
        file = self.folder / f"rank-{report.rank:05d}.json"
        fresh = file.with_name(f".{file.name}-{os.getpid()}")
        fresh.write_text(report.text(), encoding="utf-8")
        fresh.replace(file)

    def read(self, ranks: Sequence[int]) -> dict[int, Report]:
        """Return the reports of these ranks; without those that are missing or unreadable."""
        found = {}
        for rank in ranks:
            with contextlib.suppress(OSError, KeyError, TypeError, ValueError):
                text = (self.folder / f"rank-{rank:05d}.json").read_text(encoding="utf-8")
                found[rank] = parse(text)
        return found
