"""Who is to blame, decided by one rank of those that answer, and made known.

A verdict goes where each reader can look: a file in the run directory, the log, the events and, on the leader, the
metrics.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from training.trainer.flight import hangs, process, shares
from training.trainer.flight.hangs import Suspect
from training.trainer.flight.reports import RUNNING, Board, Report, Team
from training.trainer.flight.ring import STACK, Identity, Phase, process_state, read_ring
from training.trainer.flight.shares import Slowness, Window
from trainyard.culprits import HUNG, MISMATCHED, NO_RANK, Culprit, Verdicts

_REPEAT_S: Final = 300.0
"""Between two lines in the log about the same slow rank."""
_LOOKED_AT: Final = 16
"""Lower ranks of which a rank finds out at the same time whether they answer: at least those of a node."""


@dataclass
class Beats:
    """When the reports of other ranks changed last, by this process's clock."""

    patience_s: float
    seen: dict[int, tuple[int, float, bool]] = field(default_factory=dict)
    """By rank: its beat, when that was new, and whether it has changed since it was first seen."""

    def see(self, rank: int, beat: int, now: float) -> None:
        """Note a rank's beat; -1 without a report."""
        known = self.seen.get(rank)
        if known is None:
            self.seen[rank] = (beat, now, False)
        elif known[0] != beat:
            self.seen[rank] = (beat, now, True)

    def is_silent(self, rank: int, now: float) -> bool:
        """Return whether it has not changed for the whole patience."""
        return rank in self.seen and now - self.seen[rank][1] > self.patience_s

    def is_fresh(self, rank: int) -> bool:
        """Return whether it has changed since it was first seen."""
        return self.seen[rank][2]


class Judge:
    """The verdicts of one rank."""

    def __init__(self, run_dir: Path, team: Team, silent_s: float) -> None:
        """`silent_s`: after which a rank that reports nothing does not answer."""
        self.board = Board(run_dir, team.label)
        self.verdicts = Verdicts(run_dir)
        self._run_dir, self._team, self._silent_s = run_dir, team, silent_s
        self._rank, self._world = team.rank, team.world
        self._beats: Beats | None = None
        self._judged_step, self._history = 0, shares.History()
        self._named: dict[str, float] = {}
        self._passed_on: dict[tuple[str, int, str], float] = {}

    # A standstill

    def forget_standstill(self) -> None:
        """Note that this rank makes progress."""
        self._beats = None

    def silent_ranks(self) -> list[int]:
        """Return the ranks that have not answered in this standstill."""
        now, beats = time.monotonic(), self._beats
        return [rank for rank in beats.seen if beats.is_silent(rank, now)] if beats else []

    def judge_standstill(self, own: Report) -> None:
        """Name the rank that all others wait for, if this rank is the one that judges. Raises OSError."""
        now = time.monotonic()
        beats = self._beats = self._beats or Beats(self._silent_s)
        if not self._lower_ranks_are_silent(beats, now):
            return
        reports = self.board.read(range(self._world))
        answering, silent = {self._rank: own}, dict[int, str]()
        for rank in range(self._world):
            report = reports.get(rank)
            if rank == self._rank:
                continue
            beats.see(rank, report.beat if report else -1, now)
            if beats.is_silent(rank, now):
                silent[rank] = _last_known(report)
            elif beats.is_fresh(rank) and report:
                answering[rank] = report
            else:
                return  # it has not had time to report
        if suspect := hangs.find(answering, silent, self._world):
            # What a silent rank has reported last is older than what is known to those that wait for it.
            step = answering.get(suspect.rank, own).step
            self._name(suspect, reports | answering, step)

    def _lower_ranks_are_silent(self, beats: Beats, now: float) -> bool:
        """Return whether this rank is the lowest that answers.

        All ranks read only until one that answers, but look at those of a node at the same time: one after the
        other they would be silent for a multiple of the patience.
        """
        unknown = 0
        for lower in range(self._rank):
            found = self.board.read([lower])
            beats.see(lower, found[lower].beat if found else -1, now)
            if beats.is_silent(lower, now):
                continue
            unknown += 1
            if beats.is_fresh(lower) or unknown == _LOOKED_AT:
                break
        return not unknown

    def find_silent(self, rank: int, step: int) -> Culprit:
        """Return the verdict about a rank whose group is lost because it was silent."""
        report = self.board.read([rank]).get(rank)
        seen = seen_of(report) if report else ""
        suspect = Suspect(
            symptom=HUNG,
            rank=rank,
            what="does not answer: its group is lost",
            evidence=tuple(filter(None, (seen, _last_known(report)))),
        )
        return self._culprit(suspect, report, step)

    def announce_hangs(self, culprits: Sequence[Culprit]) -> None:
        """Record verdicts about ranks that no rank of this team has named for a hang. Raises OSError."""
        known = {one.rank for one in self.verdicts.of(self._full(f"{HUNG}-"))}
        for culprit in culprits:
            if culprit.rank not in known:
                self.announce(f"{HUNG}-silent-rank-{culprit.rank}", culprit)

    def judge_failure(self, own: Report | None = None) -> None:
        """Name the rank that broke the exchange with the others. Raises OSError."""
        reports = reports_after_failure(self.board, self._world)
        if own:
            reports[self._rank] = own
        if suspect := hangs.mismatched(reports):
            self._name(suspect, reports, reports[suspect.rank].step)

    def _name(self, suspect: Suspect, reports: dict[int, Report], step: int) -> None:
        culprit = self._culprit(suspect, reports.get(suspect.rank), step)
        self.announce(f"{culprit.symptom}-step-{step}-rank-{culprit.rank}", culprit)

    def _culprit(self, suspect: Suspect, report: Report | None, step: int) -> Culprit:
        return Culprit(
            symptom=suspect.symptom,
            rank=suspect.rank,
            node=report.node if report else "",
            pod=report.pod if report else "",
            step=step,
            attempt=self._team.attempt,
            time=time.time(),
            what=suspect.what,
            evidence=(*suspect.evidence, *_group_line(report)),
            frame=report.frame if report else "",
        )

    # Shares of the step time

    def judge_shares(self, own: Report) -> None:
        """Name a rank or loader that has been slow for several windows. Raises OSError."""
        if own.window is None or not own.window.steps or max(own.window.steps) <= self._judged_step:
            return
        reports = self.board.read(range(self._world))
        windows: dict[int, Window] = {r: one.window for r, one in reports.items() if one.window}
        if len(windows) < self._world:
            return
        found, last = shares.compare(windows, self._judged_step)
        if not last:
            return
        self._judged_step = last
        for slowness in self._history.add(found):
            self._name_slow(slowness, reports.get(slowness.rank))

    def _name_slow(self, slowness: Slowness, report: Report | None) -> None:
        name = f"{slowness.symptom}-rank-{slowness.rank}"
        culprit = Culprit(
            symptom=slowness.symptom,
            rank=slowness.rank,
            node=report.node if report else "",
            pod=report.pod if report else "",
            step=self._judged_step,
            attempt=self._team.attempt,
            time=time.time(),
            what=slowness.what,
            evidence=(*slowness.evidence, *_group_line(report)),
        )
        if name not in self._named:
            self.announce(name, culprit)
            return
        self.verdicts.renew(self._full(name), culprit)
        if time.monotonic() - self._named[name] >= _REPEAT_S:
            self._named[name] = time.monotonic()
            print(culprit.line(), file=sys.stderr, flush=True)

    # What follows

    def announce(self, name: str, culprit: Culprit) -> None:
        """Record a verdict, unless any rank has recorded it already. Raises OSError."""
        if name in self._named:
            return
        self.verdicts.announce(self._full(name), culprit)
        self._named[name] = time.monotonic()

    def pass_on(self, receive: Callable[[Culprit], None]) -> None:
        """Hand over the verdicts of the run that are new, the oldest first."""
        for culprit in self.verdicts.all():
            if self._passed_on.get(culprit.key, 0.0) < culprit.time:
                self._passed_on[culprit.key] = culprit.time
                receive(culprit)

    def hung_ranks(self, step: int) -> list[int]:
        """Return the ranks that are named for hanging, or for a mismatch, where others are in this step.

        Raises OSError.
        """
        found = [
            one for symptom in (HUNG, MISMATCHED) for one in self.verdicts.of(self._full(symptom))
        ]
        return [one.rank for one in found if one.rank != NO_RANK and step - 1 <= one.step <= step]

    def end_hung_rank(self, ranks: Sequence[int]) -> None:
        """Kill this rank, or a neighbour that does not answer, if it is one of these."""
        if self._rank in ranks:
            print(f"rank {self._rank} hangs: it ends itself", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        for report in self.board.read(
            [rank for rank in self.silent_ranks() if rank in ranks]
        ).values():
            if report.host == process.host_name():
                _kill(Path(report.ring))

    def _full(self, name: str) -> str:
        return f"{self._team.label}-{name}"


def seen_of(report: Report) -> str:
    """Return what this node shows of a rank that does not answer; empty for one of another node."""
    if report.host != process.host_name():
        return ""
    ring = Path(report.ring)
    return process.neighbour(ring, ring.with_suffix(STACK)) or ""


def _group_line(report: Report | None) -> tuple[str, ...]:
    return (f"rank of group {report.group}",) if report and report.group else ()


def _last_known(report: Report | None) -> str:
    if report is None:
        return "it has never reported"
    return f"its last report: {Phase(report.phase).text} of step {report.step}"


def _kill(ring: Path) -> None:
    """Kill the process of a ring, if it is still there."""
    try:
        identity: Identity = read_ring(ring)[0]
        if process_state(identity):
            os.kill(identity.pid, signal.SIGKILL)
    except (OSError, ValueError, TypeError):
        return


def reports_after_failure(board: Board, world: int) -> dict[int, Report]:
    """Return all reports, with the marks of ranks of this node that could not write their own."""
    reports = board.read(range(world))
    for rank, report in reports.items():
        if report.state == RUNNING and report.host == process.host_name():
            try:
                marks = read_ring(Path(report.ring))[1]
            except (OSError, ValueError, TypeError):
                continue
            last = marks[-1] if marks else None
            reports[rank] = replace(
                report,
                marks=tuple(marks),
                step=last.step if last else report.step,
                phase=last.phase if last else report.phase,
                issued=last.issued if last else report.issued,
                inside=last.inside if last else report.inside,
            )
    return reports
