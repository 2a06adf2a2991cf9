"""Names the rank that all others wait for or that slows them down, in the parent processes of the ranks.

A parent needs nothing of the program: a process that is stopped, or holds Python's lock, is seen as well. Every
rank's parent reads the reports (watchdog.py) once its own rank stands still; the first verdict counts. Rank 0's
also compares how long ranks work. Reports are only compared with what they contained before: clocks differ
between nodes.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from trainyard import processes, shared_files
from trainyard.contract import EVENTS_FILE, EXIT_DIR_ENV, RUN_DIR_ENV
from trainyard.culprits import FOLDER, HUNG, NO_RANK, Culprit, Verdicts
from trainyard.exit_codes import ExitDir
from trainyard.run_logs import EventLog
from trainyard.slowness import SlowRanks
from trainyard.watchdog import (
    DATA,
    DUMP_REQUEST,
    DUMP_SIGNAL,
    FOLDER_ENV,
    IDLE,
    STEP,
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
_ORDER: Final = {DATA: 1, STEP: 2}
"""Phases in the order of a step; all others come between two steps."""
_STATES: Final = {
    "Z": "its process has ended",
    "X": "its process has ended",
    "T": "its process is stopped (SIGSTOP)",
    "t": "its process is stopped by a debugger",
    "D": "its process waits in the kernel, for a disk, a network file system or a device",
    "R": "its process runs, but answers nothing",
    "S": "its process sleeps, and answers nothing",
}


@dataclass
class _Beat:
    """When a rank's report last changed, in monotonic seconds of this process."""

    number: int
    seen: float


class RankWatch:
    """The watch of a rank by its parent process."""

    def __init__(self, folder: Path, rank: int, world: int) -> None:
        """`folder`: of this start, below the run's folder."""
        self._folder, self._rank, self._world = folder, rank, world
        self._start_s, self._step_s = limits(os.environ)
        self._every_s = min(beat_s(world), self._step_s / 5)
        self._silent_s = max(3.0, 2.5 * self._every_s)
        self._looked = self._processor_s = 0.0
        self._beats: dict[int, _Beat] = {}
        self._named: set[str] = set()
        self._dumped = False
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
        """Return the variables that have the program start its part."""
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

    def look(self, pid: int) -> None:
        """Do what is due for the rank's process; a failure is not the run's."""
        now = time.monotonic()
        if now - self._looked < self._every_s:
            return
        if now - self._looked > 10 * self._every_s:  # the machine was suspended
            self._beats.clear()
        self._looked = now
        try:
            self._look(pid, now)
        except Exception as error:
            text = f"watchdog of rank {self._rank}: {type(error).__name__}: {error}"
            if text not in self._named:
                self._named.add(text)
                print(text, file=sys.stderr, flush=True)

    def _look(self, pid: int, now: float) -> None:
        own = self._see(self._rank, now)
        if own is None or own.phase == IDLE:
            return  # no program that uses torch, or nobody waits for it
        silent_s = now - self._beats[self._rank].seen
        still = silent_s > self._silent_s or own.since_s > own.limit_s / 2
        if silent_s > self._silent_s:
            self._note_process(pid, silent_s, own)
        if still and (silent_s > own.limit_s / 2 or (self._folder / DUMP_REQUEST).exists()):
            self._dump_stacks(pid)
        if not still and self._rank != 0:
            return
        reports = {rank: self._see(rank, now) for rank in range(self._world)}
        known = {rank: report for rank, report in reports.items() if report}
        if len(known) < self._world or not any(one.together for one in known.values()):
            return
        if any(one.phase == IDLE for one in known.values()):
            return
        self._judge_standstill(known, pid, now)
        for culprit in self._slow.judge(known) if self._rank == 0 else ():
            self._announce(f"{culprit.symptom}-{self._folder.name}-rank-{culprit.rank}", culprit)

    def _see(self, rank: int, now: float) -> Report | None:
        report = read_report(self._folder, rank)
        beat = self._beats.get(rank)
        if report and (beat is None or beat.number != report.beat):
            self._beats[rank] = _Beat(report.beat, now)
        return report

    # A process that reports nothing

    def _note_process(self, pid: int, silent_s: float, own: Report) -> None:
        """Tell the others what this node shows of it; end one that is stopped for good."""
        letter, processor_s = _process(pid)
        busy = processor_s - self._processor_s > 0.5 * self._every_s
        self._processor_s = processor_s
        text = f"{_STATES.get(letter, f'its process is in state {letter}')} (pid {pid})"
        frame = _dumped_frame(self._folder / f"rank-{self._rank:05d}.stacks")
        file = self._folder / f"rank-{self._rank:05d}.process.json"
        values = {"text": text, "busy": busy, "frame": frame}
        file.write_text(json.dumps(values), encoding="utf-8")
        allowed_s = self._allowed_s(own, long=not own.steps)
        if letter == "T" and own.together and silent_s > allowed_s + 5 * self._every_s:
            print(
                f"watchdog: rank {self._rank} has been stopped for {silent_s:.0f} s (pid {pid}): it is ended",
                file=sys.stderr,
                flush=True,
            )
            processes.send(signal.SIGKILL, [pid])

    def _dump_stacks(self, pid: int) -> None:
        if not self._dumped and processes.handles(pid, DUMP_SIGNAL):
            self._dumped = True
            processes.send(DUMP_SIGNAL, [pid])

    def _allowed_s(self, report: Report, *, long: bool) -> float:
        """Return for how many seconds a rank may stay where it is."""
        return max(self._start_s, report.limit_s) if long else report.limit_s

    def _process_of(self, rank: int) -> dict[str, Any]:
        try:
            file = self._folder / f"rank-{rank:05d}.process.json"
            values: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {"text": "nor does its node", "busy": False, "frame": ""}
        return values

    # A standstill

    def _is_elastic(self) -> bool:
        """Return whether this rank is one of a replica group: those give signs of life."""
        folder = ExitDir.from_environment()
        return folder is not None and self._rank in folder.signs_of_life()

    def _judge_standstill(self, reports: Mapping[int, Report], pid: int, now: float) -> None:
        silent = {
            rank: now - self._beats[rank].seen
            for rank in reports
            if now - self._beats[rank].seen > self._silent_s
        }
        for rank, report in reports.items():
            waited, long = report.since_s, report.takes_long
            if rank in silent:
                waited = silent[rank]
                long = not report.steps or self._process_of(rank)["busy"]
            if waited <= self._allowed_s(report, long=long):
                return
        ranks = sorted(silent) or behind(reports)
        steps = min(report.steps for report in reports.values())
        name = f"{HUNG}-{self._folder.name}-step-{steps}"
        if name not in self._named:
            (self._folder / DUMP_REQUEST).touch()
            self._announce(name, self._culprit(reports, ranks, silent))
            if ranks[:1] == [self._rank] and self._is_elastic():
                print(f"watchdog: rank {self._rank} is ended: other groups go on", file=sys.stderr)
                processes.send(signal.SIGKILL, [pid])

    def _culprit(
        self, reports: Mapping[int, Report], ranks: Sequence[int], silent: Mapping[int, float]
    ) -> Culprit:
        rank = ranks[0] if ranks else NO_RANK
        one = reports[rank if ranks else 0]
        evidence = [*_others(reports, ranks), *_collectives(reports, rank), *_more(ranks, reports)]
        frame = one.frames[-1] if one.frames and ranks else ""
        if rank in silent:
            seen = self._process_of(rank)
            what, frame = f"does not answer for {silent[rank]:.0f} s", seen["frame"]
            evidence.insert(0, seen["text"])
        elif ranks:
            where = {STEP: "a step", DATA: "the loader"}.get(one.phase, f"phase {one.phase}")
            what = f"does not leave {where} for {one.since_s:.0f} s"
        else:
            what = f"all ranks wait, and none is behind the others, for {one.since_s:.0f} s"
        return Culprit(
            symptom=HUNG,
            rank=rank,
            node=one.node if ranks else "",
            pod=one.pod if ranks else "",
            step=max(report.number or report.steps for report in reports.values())
            if rank in silent
            else one.number or one.steps,
            attempt=max(report.attempt for report in reports.values()),
            time=time.time(),
            what=what,
            evidence=(*evidence, f"stacks and collectives of all ranks: {self._folder}"),
            frame=frame,
        )

    def _announce(self, name: str, culprit: Culprit) -> None:
        """Make a verdict known, once for all ranks; renew it while it holds. Raises OSError."""
        if name not in self._named and self._verdicts.claim(name, culprit):
            print(culprit.line(), file=sys.stderr, flush=True)
            _record(self._folder.parents[1], culprit)
        elif culprit.symptom != HUNG:
            self._verdicts.renew(name, culprit)
        self._named.add(name)


def _record(run_dir: Path, culprit: Culprit) -> None:
    """Add a verdict to the events of a run that has some."""
    file = run_dir / EVENTS_FILE
    if file.exists():
        details = asdict(culprit)
        step, attempt = details.pop("step"), details.pop("attempt")
        del details["time"]
        events = EventLog(file, attempt, enabled=True)
        events.write("culprit", step, **details)
        events.close()


def behind(reports: Mapping[int, Report]) -> list[int]:
    """Return the ranks that the others wait for; none if all have come equally far."""

    def narrowed(ranks: list[int], fewer: list[int]) -> list[int]:
        return fewer if fewer and len(fewer) < len(ranks) else ranks

    def place(rank: int) -> tuple[int, int]:
        return reports[rank].steps, _ORDER.get(reports[rank].phase, 0)

    most: dict[str, int] = {}
    for report in reports.values():
        for group, number in report.issued.items():
            most[group] = max(number, most.get(group, 0))
    ranks = sorted(reports)
    lowest = min(map(place, ranks))
    found = narrowed(ranks, [rank for rank in ranks if place(rank) == lowest])
    late = [
        rank for rank in found if any(n < most[group] for group, n in reports[rank].issued.items())
    ]
    found = narrowed(found, late)
    found = narrowed(found, [rank for rank in found if not reports[rank].waiting])
    return found if len(found) < len(reports) or len(reports) == 1 else []


def _others(reports: Mapping[int, Report], ranks: Sequence[int]) -> list[str]:
    others = [report for rank, report in reports.items() if rank not in ranks]
    frames = [report.frames[-1] for report in others if report.frames]
    if not frames:
        return []
    usual = max(set(frames), key=frames.count)
    return [f"{frames.count(usual)} of {len(others)} other ranks are in {usual}"]


def _collectives(reports: Mapping[int, Report], rank: int) -> list[str]:
    if rank == NO_RANK:
        return []
    found = []
    for group, number in reports[rank].issued.items():
        most = max(report.issued.get(group, 0) for report in reports.values())
        if number < most:
            found.append(f"it has issued {number} collectives of group {group}, others {most}")
    return found[:2]


def _more(ranks: Sequence[int], reports: Mapping[int, Report]) -> list[str]:
    named = [f"{rank} on {reports[rank].node}" for rank in ranks[1:5]]
    return [f"so far behind are also ranks {', '.join(named)}"] if named else []


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
