"""The processes of one node: start the launcher, pass on a notice, keep the deadline."""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from trainyard import processes
from trainyard.contract import (
    EXIT_BAD_CONFIG,
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_PREEMPTED,
    NO_CHECKPOINT_LINE,
    STEP_ALLOWANCE_S,
)
from trainyard.exit_codes import ExitDir, RankResult, node_exit_code
from trainyard.gang_notice import GangNotice
from trainyard.hangs import Progress
from trainyard.launchers import Start

_LAUNCHER_END_S: Final = 3.0
"""Time for the launcher to end after the last rank, where its ranks were stopped."""
_KILL_AFTER_S: Final = 2.0
"""The ranks' own parents kill them at the deadline; this is for ranks that have lost theirs."""
UNSAVED_AFTER_S: Final = 600.0
"""Time after which a program that still runs is expected to have saved something."""


@dataclass
class Node:
    results: ExitDir
    expected_ranks: int
    deadline_s: float
    """From a request to stop to the SIGKILL of what still runs."""
    gang: GangNotice
    progress: Progress
    nodes: int = 1
    """Of the run."""
    checkpoints: Path | None = None
    """The program's `{checkpoints}`; None: another node reports whether it is empty."""
    poll_s: float = 0.1
    """Interval between two looks at the results."""
    notice: float | None = None
    """When this node was asked to stop, in Unix seconds."""
    _launchers: dict[int, int | None] = field(default_factory=dict)
    """Exit codes by process id: of the launcher, or of the parents of all ranks; None while it runs."""
    _parents: dict[int, int] = field(default_factory=dict)
    """Ranks by the process id of their parent, where this process starts them itself."""
    _told: set[int] = field(default_factory=set)
    """Ranks that were asked to stop."""
    _stopping: float | None = None
    """Since when the ranks are being stopped, for whatever reason, in monotonic seconds."""
    _all_ended: float | None = None
    _expects_save: float = field(default_factory=lambda: time.monotonic() + UNSAVED_AFTER_S)

    def run(self, start: Start, env: Mapping[str, str], folder: Path | None) -> int:
        """Start the launcher or the ranks, wait for them and return the node's exit code."""
        try:
            for variables in start.ranks:
                pid = processes.start(start.command, {**env, **variables}, folder)
                self._launchers[pid] = None
                if "RANK" in variables:
                    self._parents[pid] = int(variables["RANK"])
        except OSError as error:
            print(f"launch: {start.command[0]}: {error.strerror}", file=sys.stderr)
            return EXIT_BAD_CONFIG
        while None in self._launchers.values():
            self._on_signal(processes.wait_for_signal(self.poll_s))
            self._reap()
            self._check()
        self._end_ranks()
        return self._conclude()

    def _reap(self) -> None:
        for pid, code in processes.reap().items():
            if pid in self._launchers:
                self._launchers[pid] = code
            if pid in self._parents and code:  # one that was killed has recorded nothing
                self.results.add_result(RankResult(self._parents[pid], code, time.time()))

    def _on_signal(self, number: signal.Signals | None) -> None:
        if number not in processes.FORWARDED or self.notice is not None:
            return
        self._stop(number.name)

    def _stop(self, reason: str) -> None:
        self.notice = time.time()
        print(
            f"launch: {reason}: ranks have {self.deadline_s:.0f} s to stop",
            file=sys.stderr,
            flush=True,
        )
        self.gang.send()  # first: the ranks of other nodes may fail as soon as those here end
        self.results.write_notice(self.notice)
        if not self.results.processes():
            processes.send(signal.SIGKILL, self._launchers, groups=True)
        self._signal_ranks()

    def _signal_ranks(self) -> None:
        self._stopping = self._stopping or time.monotonic()
        known = self._told | {result.rank for result in self.results.results()}
        parents = {rank: p[0] for rank, p in self.results.processes().items() if rank not in known}
        self._told |= parents.keys()
        processes.send(signal.SIGTERM, parents.values())

    def _check(self) -> None:
        """Stop the ranks once one has failed; kill what is left at the deadline."""
        if self.notice is None and (host := self.gang.received()):
            self._stop(f"node {host} got a notice")
            self.notice = self.gang.started  # it explains failures that were seen before it
        if time.monotonic() > self._expects_save:
            self._expects_save = math.inf
            self._report_unsaved(f"after {UNSAVED_AFTER_S / 60:.0f} min")
        results = self.results.results()
        if self._stopping is None:
            if any(result.code not in (EXIT_DONE, EXIT_PREEMPTED) for result in results):
                self._signal_ranks()
            elif any(r.ended + STEP_ALLOWANCE_S < time.time() for r in results if r.code):
                self._signal_ranks()  # not earlier: they may be saving the same state
            elif (seconds := self.progress.stalled_s()) is not None:
                self._end_hung_ranks(seconds)
            return
        self._signal_ranks()  # those that have started meanwhile
        now = time.monotonic()
        if len(results) >= self.expected_ranks:
            self._all_ended = self._all_ended or now
        late = now > self._stopping + self.deadline_s + _KILL_AFTER_S
        if late or (self._all_ended and now > self._all_ended + _LAUNCHER_END_S):
            self._kill()

    def _end_hung_ranks(self, seconds: float) -> None:
        """End ranks that report no more: one of them hangs, and the others wait for it."""
        why = f"no progress for {seconds:.0f} s: a rank hangs"
        limit = f"{self.progress.timeout_s:.0f} s is program.progressTimeoutSeconds"
        self.results.write_hang(why)
        self.results.write_notice(time.time())  # for ranks on other hosts
        print(
            f"launch: {why}; {limit}; ranks have {self.deadline_s:.0f} s to stop",
            file=sys.stderr,
            flush=True,
        )
        self._signal_ranks()

    def _kill(self) -> None:
        ended = {result.rank for result in self.results.results()}
        for rank, pids in self.results.processes().items():
            if rank not in ended:
                processes.send(signal.SIGKILL, pids[1:], groups=True)
        processes.send(signal.SIGKILL, self._launchers, groups=True)

    def _end_ranks(self) -> None:
        """Wait for ranks that outlive their launcher; they have been asked to stop by its end."""
        self._stopping = self._stopping or time.monotonic()
        limit = self._stopping + self.deadline_s + _KILL_AFTER_S
        while processes.children():
            if time.monotonic() > limit:
                processes.send(signal.SIGKILL, processes.children())
            self._on_signal(processes.wait_for_signal(self.poll_s))
            processes.reap()

    def _conclude(self) -> int:
        results = self.results.results()
        if self.notice is None and (host := self.gang.received(now=True)):
            print(f"launch: node {host} got a notice", file=sys.stderr)
            self.notice = self.gang.started
        for text in self.results.config_errors():
            print(text, file=sys.stderr)
        code = next((code for code in self._launchers.values() if code), 0)
        code = code if code >= 0 else 128 - code
        requests = [t for t in (self.notice, self.results.first_request()) if t is not None]
        done = self.results.is_done()
        request = min(requests, default=None)
        verdict = node_exit_code(results, self.expected_ranks, code, request, done=done)
        if self.results.hang() and verdict != EXIT_BAD_CONFIG:
            verdict = EXIT_FAILED  # not 75, which would repeat it without end
        if self.nodes > 1 and verdict == EXIT_FAILED and not self.results.processes():
            why = "the launcher ended before it started a rank; its own lines are above"
            print(f"launch: the nodes did not meet: {why}", file=sys.stderr)
        first = min((r for r in results if r.code != 0), key=lambda r: r.ended, default=None)
        if first and verdict:
            print(f"launch: rank {first.rank} ended first, with {first.exit_code}", file=sys.stderr)
        if verdict == EXIT_PREEMPTED:
            said = any(result.code for result in results) or not results
            why = "" if said else ": it ended with 0 without trainyard.finished()"
            print(f"launch: stopped by a notice (75){why}", file=sys.stderr)
        if verdict in (EXIT_DONE, EXIT_PREEMPTED):
            self._report_unsaved("at the end")
        return verdict

    def _report_unsaved(self, when: str) -> None:
        """Print a line if nothing is in the folder that outlasts the pod."""
        if self.checkpoints and not any(files for _, _, files in os.walk(self.checkpoints)):
            lost = "what a program saves outside of the run's folder is lost with its pods"
            print(f"{NO_CHECKPOINT_LINE}{self.checkpoints} {when}: {lost}", file=sys.stderr)
