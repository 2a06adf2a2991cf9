"""How a hang is found and ended, in processes that do not hang: the parents of the ranks, and the node's launcher.

Nothing of this needs a change to the program. There are four limits:

1. *Standstill.* Every rank's parent reads the reports of all ranks (watchdog.py) once its own rank stands still.
   When all of them have stayed where they are for longer than a step or a start may take, the one behind is named
   (naming.py), and stacks and collectives of all are written.
2. *Silence.* A process that is stopped, or holds Python's lock, reports nothing: its parent tells the others what
   the kernel shows of it, and ends it where it is stopped for good.
3. *Ranks of an elastic run* are ended by both, since the other groups go on without them.
4. *Progress.* A program that has reported steps (metrics.jsonl, events.jsonl) and then reports none for an hour is
   ended on every node, by each node's launcher.

Reports and files are only compared with what they contained before: clocks differ between nodes.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from trainyard import processes, shared_files
from trainyard.contract import EVENTS_FILE, EXIT_DIR_ENV, METRICS_FILE, RUN_DIR_ENV
from trainyard.culprits import FOLDER, HUNG, Culprit, Verdicts
from trainyard.naming import Silence, SlowRanks, hung_rank
from trainyard.watchdog import (
    DUMP_REQUEST,
    DUMP_SIGNAL,
    END,
    FOLDER_ENV,
    IDLE,
    Report,
    beat_s,
    limits,
    read_report,
)

_STARTUP: Final = Path(__file__).parent / "startup"
"""Folder of the module that starts the watchdog in a program."""
_PARENT_ENV: Final = "TRAINYARD_WATCHED_BY"
_KEPT: Final = 80
"""Folders of starts in a run's folder: more than a run has groups."""
_STATES: Final = {
    "Z": "its process has ended",
    "X": "its process has ended",
    "T": "its process is stopped (SIGSTOP)",
    "t": "its process is stopped by a debugger",
    "D": "its process waits in the kernel, for a disk, a network file system or a device",
    "R": "its process runs, but answers nothing",
    "S": "its process sleeps, and answers nothing",
}
PROGRESS_TIMEOUT_S: Final = 3600.0
"""Default; longer than any evaluation between two steps should be."""
_PROGRESS_POLL_S: Final = 1.0
"""Limits requests to the shared file system."""


@dataclass
class _Beat:
    """When a rank's report last changed, in monotonic seconds of this process."""

    number: int
    seen: float


class RankWatch:
    def __init__(self, folder: Path, rank: int, world: int) -> None:
        """`folder`: of this start, below the run's folder."""
        self._folder, self._rank, self._world = folder, rank, world
        self._start_s, self._step_s = limits(os.environ)
        self._every_s = min(beat_s(world), self._step_s / 5)
        self._silent_s = max(3.0, 2.5 * self._every_s)
        self._looked = float("-inf")
        self._processor_s = 0.0
        self._beats: dict[int, _Beat] = {}
        self._named: set[str] = set()
        self._dumped = self._ended = False
        self._slow = SlowRanks()
        self._verdicts = Verdicts(folder.parents[1])

    @classmethod
    def of_rank(cls, rank: int, world: int) -> RankWatch | None:
        """Return that of a rank whose parent this process is; None where there is no place for reports."""
        place = os.environ.get(RUN_DIR_ENV) or os.environ.get(EXIT_DIR_ENV)
        if not place:
            return None
        folder = Path(place, FOLDER, f"start-{shared_files.start_id()}")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if rank == 0:
                _remove_old(folder)
        except OSError as error:
            print(f"watchdog: {folder}: {error.strerror}; ranks are not watched", file=sys.stderr)
            return None
        return cls(folder, rank, world)

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        paths = filter(None, (str(_STARTUP), inherited.get("PYTHONPATH")))
        recorder = {
            "TORCH_FR_BUFFER_SIZE": "2000",
            "TORCH_FR_DUMP_TEMP_FILE": f"{self._folder}/nccl-rank-",
        }
        return {
            FOLDER_ENV: str(self._folder),
            _PARENT_ENV: str(os.getpid()),
            "PYTHONPATH": os.pathsep.join(paths),
            **{name: value for name, value in recorder.items() if name not in inherited},
        }

    def look(self, now: float) -> None:
        """Do what is due; a failure is not the run's. `now`: monotonic seconds."""
        elapsed = now - self._looked
        if elapsed < self._every_s:
            return
        if elapsed > 10 * self._every_s:  # the machine was suspended, or this process
            self._beats.clear()
        self._looked = now
        try:
            self._look(now)
        except Exception as error:
            text = f"watchdog of rank {self._rank}: {type(error).__name__}: {error}"
            if text not in self._named:
                self._named.add(text)
                print(text, file=sys.stderr, flush=True)

    def _look(self, now: float) -> None:
        own = self._see(self._rank, now)
        if own is None:
            return  # no program that uses torch
        silent_s = now - self._beats[self._rank].seen
        if silent_s > self._silent_s:
            self._look_at_silent(own, silent_s)
        if own.phase == IDLE:
            return  # nobody waits for it
        still = silent_s > self._silent_s or own.since_s > own.limit_s / 2
        if still and (silent_s > own.limit_s / 2 or (self._folder / DUMP_REQUEST).exists()):
            self._dump_stacks(own.pid)
        if not still and self._rank != 0:
            return
        reports = {rank: self._see(rank, now) for rank in range(self._world)}
        known = {rank: report for rank, report in reports.items() if report}
        if len(known) < self._world or not any(one.together for one in known.values()):
            return
        if any(one.phase == IDLE for one in known.values()):
            return
        self._judge_standstill(known, now)
        for culprit in self._slow.judge(known) if self._rank == 0 else ():
            self._announce(f"{culprit.symptom}-{self._folder.name}-rank-{culprit.rank}", culprit)

    def _see(self, rank: int, now: float) -> Report | None:
        report = read_report(self._folder, rank)
        beat = self._beats.get(rank)
        if report and (beat is None or beat.number != report.beat):
            self._beats[rank] = _Beat(report.beat, now)
        return report

    def _allowed_s(self, report: Report, *, long: bool) -> float:
        """Return for how many seconds a rank may stay where it is."""
        return max(self._start_s, report.limit_s) if long else report.limit_s

    # A process that reports nothing

    def _look_at_silent(self, own: Report, silent_s: float) -> None:
        """Tell the others what this node shows of it; end one that will not go on, or that others do not need."""
        letter, processor_s = _process(own.pid)
        busy = processor_s - self._processor_s > 0.5 * self._every_s
        self._processor_s = processor_s
        text = f"{_STATES.get(letter, f'its process is in state {letter}')} (pid {own.pid})"
        frame = _dumped_frame(self._folder / f"rank-{self._rank:05d}.stacks")
        values = {"text": text, "busy": busy, "frame": frame}
        self._process_file(self._rank).write_text(json.dumps(values), encoding="utf-8")
        stopped_s = self._allowed_s(own, long=not own.steps) + 5 * self._every_s
        if letter not in "ZX" and own.replaceable_s and silent_s >= own.replaceable_s:
            self._end(own, f"has given no sign of life for {silent_s:.0f} s")
        elif letter == "T" and own.together and own.phase != IDLE and silent_s > stopped_s:
            self._end(own, f"has been stopped for {silent_s:.0f} s")

    def _end(self, own: Report, why: str) -> None:
        if not self._ended:
            self._ended = True
            text = f"watchdog: rank {self._rank} {why} (pid {own.pid}): it is ended"
            print(text, file=sys.stderr, flush=True)
            processes.send(signal.SIGKILL, [own.pid])

    def _dump_stacks(self, pid: int) -> None:
        if not self._dumped and processes.handles(pid, DUMP_SIGNAL):
            self._dumped = True
            processes.send(DUMP_SIGNAL, [pid])

    def _process_file(self, rank: int) -> Path:
        return self._folder / f"rank-{rank:05d}.process.json"

    def _silence(self, rank: int, seconds: float) -> Silence:
        try:
            return Silence(seconds, **json.loads(self._process_file(rank).read_text("utf-8")))
        except (OSError, ValueError, TypeError):
            return Silence(seconds)

    # A standstill

    def _judge_standstill(self, reports: Mapping[int, Report], now: float) -> None:
        since = {rank: now - self._beats[rank].seen for rank in reports}
        silent = {r: self._silence(r, s) for r, s in since.items() if s > self._silent_s}
        for rank, report in reports.items():
            waited, long = report.since_s, report.takes_long
            if rank in silent:
                long = not report.steps or report.phase == END or silent[rank].busy
                waited = silent[rank].seconds
            if waited <= self._allowed_s(report, long=long):
                return
        steps = min(report.steps for report in reports.values())
        name = f"{HUNG}-{self._folder.name}-step-{steps}"
        if name in self._named:
            return
        (self._folder / DUMP_REQUEST).touch()
        culprit = hung_rank(reports, silent, self._folder)
        self._announce(name, culprit)
        own = reports[self._rank]
        if culprit.rank == self._rank and own.replaceable_s:
            self._end(own, "hangs, and other groups go on")

    def _announce(self, name: str, culprit: Culprit) -> None:
        """Make a verdict known, once for all ranks; renew it while it holds. Raises OSError."""
        first = name not in self._named and self._verdicts.announce(name, culprit)
        if not first and culprit.symptom != HUNG:
            self._verdicts.renew(name, culprit)
        self._named.add(name)


def _process(pid: int) -> tuple[str, float]:
    """Return the state of a process and the processor time that it has used; "Z" once it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "Z", 0.0
    return fields[0], (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _dumped_frame(stacks: Path) -> str:
    """Return the innermost frame of the main thread, the last one that faulthandler writes."""
    try:
        text = stacks.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    threads = text.split("hread 0x")
    lines = threads[-1].splitlines() if len(threads) > 1 else []
    place, _, function = lines[1].strip().rpartition(" in ") if len(lines) > 1 else ("", "", "")
    file, _, line = place.removeprefix('File "').partition('", line ')
    return f"{'/'.join(Path(file).parts[-3:])}:{line} {function}" if line.isdigit() else ""


def _remove_old(folder: Path) -> None:
    """Remove what former starts have left, but for the newest."""
    found = sorted(folder.parent.glob("start-*"), key=lambda one: one.stat().st_mtime)
    for old in found[:-_KEPT]:
        shutil.rmtree(old, ignore_errors=True)


_State = tuple[tuple[int, int], ...]


@dataclass
class Progress:
    """Watches metrics.jsonl and events.jsonl; for a program that writes neither it never ends."""

    folder: Path | None
    timeout_s: float = PROGRESS_TIMEOUT_S
    """0: off."""
    _seen: _State = ()
    _armed: bool = False
    """Whether this start of the program has reported a step."""
    _changed: float = field(default_factory=time.monotonic)
    _polled: float = 0.0

    @classmethod
    def of_run(cls, facts: Mapping[str, str], settings: Mapping[str, Any]) -> Progress:
        """Return that of a run. `facts`: values of placeholders; `settings`: program.json."""
        folder = facts.get("run_dir")
        timeout = float(settings.get("progress_timeout_s", PROGRESS_TIMEOUT_S))
        found = cls(Path(folder) if folder else None, timeout)
        found._seen = found._state()
        return found

    def stalled_s(self) -> float | None:
        """Return the seconds without a report once they exceed the limit; None before."""
        now = time.monotonic()
        if self.folder is None or not self.timeout_s or now - self._polled < _PROGRESS_POLL_S:
            return None
        self._polled = now
        state = self._state()
        if state != self._seen:
            self._armed = self._armed or state[0] != self._seen[0]
            self._seen, self._changed = state, now
        silent = now - self._changed
        return silent if self._armed and silent > self.timeout_s else None

    def _state(self) -> _State:
        found = []
        for name in (METRICS_FILE, EVENTS_FILE):
            entry = (0, 0)
            if self.folder:
                with contextlib.suppress(OSError):
                    about = os.stat(self.folder / name)
                    entry = (about.st_size, about.st_mtime_ns)
            found.append(entry)
        return tuple(found)
