"""A thread of each rank that reports for it and notices when it makes no progress.

Nothing here runs in the training thread, and nothing waits for another rank: what others do is read from their
files in the run directory. The lowest rank that answers judges (judge.py); the others only report.
"""

from __future__ import annotations

import faulthandler
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, Protocol

from training.trainer.communication import is_communication
from training.trainer.flight import collectives, process, shares
from training.trainer.flight.judge import Judge, seen_of
from training.trainer.flight.recorder import Recorder, StepTimes
from training.trainer.flight.reports import FAILED, FINISHED, RUNNING, Report, Team
from training.trainer.flight.ring import STACK, Phase, read_ring
from trainyard.culprits import Culprit, node_name, pod_name

_LIMIT: Final = 0.75
"""Part of the timeout of a collective after which a phase of unknown duration counts as a hang: before ranks give
up."""
_TIMES_USUAL: Final = 3.0
_STEPS_KEPT: Final = 4 * shares.STEPS_NEEDED
"""Steps that are reported at least, however long they take: ranks report at different times."""
_UNDISTURBED: Final[dict[str, Any]] = {
    "marks": (),
    "frames": (),
    "collectives": (),
    "waiting": None,
    "departs": False,
    "kinds": {},
    "silent": {},
}
"""Details of a report of a rank that makes progress."""


@dataclass(frozen=True, kw_only=True)
class Patience:
    """Times of the watchdog, in seconds."""

    hang_after_s: float
    window_s: float
    start_limit_s: float
    collective_timeout_s: float
    world: int

    @property
    def poll_s(self) -> float:
        """Between two looks at the own rank."""
        return min(1.0, self.hang_after_s / 10)

    @property
    def heartbeat_s(self) -> float:
        """Between two reports of a rank that makes progress; the file system takes 64 per second at most."""
        return min(max(2.0, self.world / 64), self.hang_after_s / 3)

    @property
    def silent_s(self) -> float:
        """After which a rank that reports nothing does not answer."""
        return max(3.0, 2.5 * self.heartbeat_s)

    def allowed_s(self, usual_ns: float | None, *, starting: bool = False) -> float:
        """Return for how long a phase may last: three times what is usual, or until just before ranks give up."""
        limit = _LIMIT * (self.start_limit_s if starting else self.collective_timeout_s)
        if usual_ns is None:
            return limit
        return min(limit, max(self.hang_after_s, _TIMES_USUAL * usual_ns / 1e9))


class Groups(Protocol):
    """What a watchdog needs of the membership of an elastic run."""

    def lose(self, group: str) -> None:
        """Go on without a group, a rank of which is named for hanging while this rank waits."""

    def newer_view(self) -> bool | None:
        """Return whether this rank's group is in the newest view; None if that is the one that it is at."""

    def end(self, reason: str) -> None:
        """End this process, so that its group starts again."""


class Watchdog:
    """Reports and judges for one rank, from `watch` to `close`."""

    def __init__(
        self,
        run_dir: Path,
        recorder: Recorder,
        patience: Callable[[int], Patience],
        *,
        rank: int,
        ring: Path,
        end_hung_rank: bool,
    ) -> None:
        """`patience`: by the number of ranks that wait for each other; `rank`: in its gang or group."""
        self.on_culprit: Callable[[Culprit], None] | None = None
        """Called on the first rank for every verdict of the run, old ones first, whoever has reached it."""
        self.groups: Groups | None = None
        """Of an elastic run."""
        self._run_dir, self._recorder, self._rank, self._ring = run_dir, recorder, rank, ring
        self._patience_of, self._end_hung_rank = patience, end_hung_rank
        self.wanted: Team | None = None
        """The ranks that are watched from the thread's next look on."""
        self._stop, self._wake = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._complaint = ""
        self._errands: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._stack_file: Any = None
        self._beat = 0
        self._patience = patience(1)
        self._join(None)

    def watch(self, team: Team | None) -> None:
        """Watch this rank as one of these ranks from now on; None: as none, until the next call."""
        self.wanted = team
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)
            self._thread.start()
        self._wake.set()

    def announce(self, name: str, culprit: Culprit) -> None:
        """Make a verdict of the training thread known. Raises OSError."""
        team = self.wanted
        assert team is not None
        Judge(self._run_dir, team, 0.0).announce(name, culprit)

    def name_silent(self, ranks: Sequence[int]) -> Callable[[], None]:
        """Find out what is known of ranks that have been silent; return what makes them known."""
        team = self.wanted
        if team is None:
            return lambda: None
        judge = Judge(self._run_dir, team, 0.0)
        found = [judge.find_silent(rank, self._recorder.step) for rank in ranks]
        return lambda: judge.announce_hangs(found)

    def name_mismatch(self) -> None:
        """Name the rank that broke the exchange, as this process ends. Raises OSError."""
        if team := self.wanted:
            Judge(self._run_dir, team, 0.0).judge_failure()

    def later(self, action: Callable[[], None]) -> None:
        """Have the thread do something that takes time."""
        self._errands.put(action)
        self._wake.set()

    def close(self) -> None:
        """End the thread, and leave a last report of a rank that has ended in order."""
        self._end_thread()
        if self._team:
            self._attempt_to(lambda: self._publish(state=FINISHED))

    def fail(self, error: BaseException) -> None:
        """Leave a last report of a rank that ends with an error, and name a rank that broke the exchange."""
        self._end_thread()
        text = " ".join(str(error).split())[:200]

        def report() -> None:
            details = {**self._details(), "frames": process.frames_of(error)}
            self._publish(state=FAILED, error=text, **details)
            if is_communication(error):
                self._judge.judge_failure(self._report)

        if self._team:
            self._attempt_to(report)

    def _end_thread(self) -> None:
        self._stop.set()
        self._wake.set()
        if self._thread and self._thread is not threading.current_thread():
            self._thread.join(timeout=5.0)
        self._run_errands()
        self._attempt_to(self._follow)
        if self._stack_file:
            faulthandler.cancel_dump_traceback_later()

    def _join(self, team: Team | None) -> None:
        """Begin anew as one of these ranks; in the watchdog's thread once that runs."""
        self._team = team
        self._marks, self._still_s, self._looked = -1, 0.0, time.monotonic()
        self._written = self._closed = 0.0
        self._steps: deque[tuple[float, StepTimes]] = deque()
        if team is None:
            return
        self._patience = self._patience_of(team.world)
        self._judge = Judge(self._run_dir, team, self._patience.silent_s)
        self._report = Report(
            rank=team.rank,
            group=team.group,
            host=process.host_name(),
            node=node_name(),
            pod=pod_name(),
            beat=self._beat,
            ring=str(self._ring),
        )
        if team.group:
            self._judge.board.open(first=team.rank == 0)

    # The thread

    def _run(self) -> None:
        self._attempt_to(self._open_stack_file)
        while True:
            self._wake.wait(self._patience.poll_s)
            self._wake.clear()
            if self._stop.is_set():
                return
            self._run_errands()
            self._attempt_to(self._follow)
            if self._team:
                self._attempt_to(self._tick)

    def _run_errands(self) -> None:
        while not self._errands.empty():
            self._attempt_to(self._errands.get_nowait())

    def _follow(self) -> None:
        if self.wanted is not self._team:
            self._join(self.wanted)

    def _attempt_to(self, action: Callable[[], None]) -> None:
        """Do something whose failure must not harm the run; each failure is printed once."""
        try:
            action()
        except FileNotFoundError:
            self._team = None  # newer ranks have removed the folder of these
            if self.wanted is not None and not self.wanted.group:
                self.wanted = None
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            if text != self._complaint:
                self._complaint = text
                print(f"flight recorder of rank {self._rank}: {text}", file=sys.stderr, flush=True)

    def _tick(self) -> None:
        now, leads = time.monotonic(), self._report.rank == 0
        self._arm_stack_dump()
        stuck = self._is_stuck(now)
        self._keep_steps(now)
        if stuck and self._is_left_behind():
            return
        if stuck or now - self._written >= self._patience.heartbeat_s:
            self._publish(stuck=stuck, **(self._details() if stuck else {}))
            self._written = now
            if leads and self.on_culprit:
                self._judge.pass_on(self.on_culprit)
        if stuck:
            self._judge.judge_standstill(self._report)
            self._obey_verdicts()
        else:
            self._judge.forget_standstill()
            if leads:
                self._judge.judge_shares(self._report)

    def _obey_verdicts(self) -> None:
        """Do what follows for this rank from whom any rank has named for this standstill."""
        ranks = self._judge.hung_ranks(self._recorder.step)
        if ranks and self._end_hung_rank:
            self._judge.end_hung_rank(ranks)
        for report in self._judge.board.read(ranks).values() if self.groups else ():
            if report.group != self._report.group and self.groups:
                self.groups.lose(report.group)

    def _is_left_behind(self) -> bool:
        """Return whether a newer view exists, whose groups do not report to this one; end a rank that is in none.

        It makes no progress, and nobody waits for it: only a new process can take part again.
        """
        if self.groups is None or (newer := self.groups.newer_view()) is None:
            return False
        if not newer:
            self.groups.end(
                f"no progress for {self._still_s:.0f} s, and the others went on without it"
            )
        return True

    def _is_stuck(self, now: float) -> bool:
        """Return whether the rank has made no progress for too long, by looks and not by the clock.

        A process or a machine that was stopped and goes on has made none while nobody looked, either.
        """
        recorder, elapsed = self._recorder, now - self._looked
        self._looked = now
        if recorder.marks != self._marks:
            self._marks, self._still_s = recorder.marks, 0.0
        else:
            self._still_s += min(elapsed, 2 * self._patience.poll_s)
        return self._still_s >= self._patience.hang_after_s and recorder.phase != Phase.FINISH

    def _keep_steps(self, now: float) -> None:
        """Take the steps that the rank has made; close a window when it is time."""
        window_s = self._patience.window_s
        self._steps.extend((now, one) for one in self._recorder.take_steps())
        if now - self._closed < window_s:
            return
        self._closed = now
        while len(self._steps) > _STEPS_KEPT and self._steps[0][0] < now - 2 * window_s:
            self._steps.popleft()
        window = shares.window_of(one for _, one in self._steps)
        self._report = replace(self._report, window=window if window.steps else None)

    # Reports

    def _publish(
        self, *, stuck: bool = False, state: str = RUNNING, error: str = "", **details: Any
    ) -> None:
        recorder = self._recorder
        self._beat += 1
        self._report = replace(
            self._report,
            **{**_UNDISTURBED, **details},
            beat=self._beat,
            state=state,
            error=error,
            step=recorder.step,
            phase=recorder.phase,
            seconds=self._still_s,
            allowed=self._patience.allowed_s(
                recorder.longest.get(recorder.phase), starting=recorder.starting
            ),
            issued=recorder.issued(),
            inside=recorder.inside(),
            stuck=stuck,
        )
        self._judge.board.write(self._report)

    def _details(self) -> dict[str, Any]:
        """Return what is only known of a rank that is stuck or has failed."""
        recorded = collectives.recorded()
        last = collectives.last_of(recorded)
        silent = self._judge.board.read(self._judge.silent_ranks())
        return {
            "marks": self._own_marks(),
            "frames": process.main_thread_frames(),
            "collectives": tuple(one.text for one in last),
            "waiting": any(not one.complete for one in last) if last else None,
            "departs": collectives.departs(recorded),
            "kinds": collectives.kinds(recorded),
            "silent": {rank: seen for rank, one in silent.items() if (seen := seen_of(one))},
        }

    def _own_marks(self) -> tuple[Any, ...]:
        try:
            return tuple(read_ring(self._ring)[1])
        except (OSError, ValueError, TypeError):
            return ()

    # Frames of a process whose interpreter is blocked

    def _open_stack_file(self) -> None:
        self._stack_file = open(self._ring.with_suffix(STACK), "wb", buffering=0)  # noqa: SIM115
        self._stack_file.write(f"0x{threading.main_thread().ident or 0:016x}\n".encode())

    def _arm_stack_dump(self) -> None:
        """Have all frames written if this thread does not come back: code that holds the interpreter's lock
        hangs."""
        if self._stack_file:
            after = self._patience.hang_after_s / 2
            faulthandler.dump_traceback_later(after, file=self._stack_file)
