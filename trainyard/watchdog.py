"""Watchdog of one rank, in its process: the phase that it is in, for how long, and its own work in each step.

`trainyard.rank` has it start in each Python program that imports torch (startup/sitecustomize.py); the program
need not know of it. A thread replaces the rank's report in the run's folder every few seconds. The parent
processes of the ranks compare the reports: hangs.py finds a hang, naming.py names the rank.
Steps are counted by torch's hooks of optimizers. Phases are marked by this library, its adapters and whoever calls
`enter`.

The time of a step says nothing about one rank, because all end it together. A rank's own work ends with the
gradient of the model's first parameter, the last one of the backward pass; until the optimizer begins it waits
for others.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import json
import os
import signal
import statistics
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Final

from trainyard.contract import START_TIMEOUT_S
from trainyard.culprits import Culprit, Verdicts, node_name, pod_name
from trainyard.exit_codes import rank_of_environment

FOLDER_ENV: Final = "TRAINYARD_WATCH"
"""Folder of this start's reports; set by the parent process of a rank."""
LIMITS_ENV: Final = "TRAINYARD_WATCH_LIMITS"
"""`START,STEP`: seconds after which a start, and at least after which a step, counts as a hang."""
DUMP_SIGNAL: Final = signal.SIGRTMIN + 9
"""Has the process write the stacks of its threads, also while it holds Python's lock."""
DUMP_REQUEST: Final = "dump"
"""File in the folder that asks all ranks for their stacks and collectives."""

START, LOAD, SAVE, EVAL, DATA, STEP, END = "start", "load", "save", "eval", "data", "step", "end"
IDLE: Final = "idle"
"""Of a group of an elastic run that takes no part: nobody waits for it, however long it lasts."""
LONG: Final = (START, LOAD, SAVE, EVAL, END)
"""Phases that have the limit of a start: they compile, or wait for storage."""
_STEP_S: Final = 90.0
_TIMES_MEDIAN: Final = 30
_BEAT_S: Final = 2.0
_RECENT: Final = 64
"""Steps in a report, and that the median is of."""
_FRAMES: Final = 6
_RECORDERS: Final = ("gloo", "nccl2", "nccl")
"""torch's recorders of collectives, of which a process may have several."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """One rank, as it sees itself."""

    rank: int
    node: str
    pod: str
    pid: int = 0
    beat: int = 0
    """Grows with each report of this process."""
    attempt: int = 0
    number: int = 0
    """Last step by the program's own count; 0: not known."""
    steps: int = 0
    """Steps since the start; equal on ranks that have come equally far."""
    phase: str = START
    since_s: float = 0.0
    """Seconds since the rank last entered a phase or ended a step."""
    still_s: float = 0.0
    """Seconds for which its main thread has been at the same place."""
    limit_s: float = _STEP_S
    """Of `since_s` in a step: longer counts as a hang."""
    together: bool = False
    """Whether other ranks may wait for this one: torch.distributed is initialized, or a step was made."""
    frames: Sequence[str] = ()
    """`FILE:LINE FUNCTION` of the main thread, the innermost last."""
    issued: Mapping[str, int] = field(default_factory=dict)
    """Collectives issued by process group; of a rank that makes no progress."""
    waiting: bool = False
    """Whether one of them is not complete, or the rank waits for a file of another one."""
    work: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    """Seconds of own work and of waiting for samples, by step."""
    replaceable_s: float = 0.0
    """Silence in seconds after which the rank is ended, since others go on without it; 0: they wait for it."""

    @property
    def last_step(self) -> int:
        """The last step, by the program's own count if it is known."""
        return self.number or self.steps

    @property
    def takes_long(self) -> bool:
        """Whether the limit of a start holds: it starts, saves, loads or evaluates, perhaps without a mark."""
        return not self.steps or self.phase in LONG or self.still_s < self.limit_s / 2


def write_report(folder: Path, report: Report) -> None:
    """Replace a rank's report. Raises OSError."""
    file = folder / f"rank-{report.rank:05d}.json"
    fresh = file.with_name(f".{file.name}-{os.getpid()}")
    fresh.write_text(json.dumps(asdict(report)), encoding="utf-8")
    fresh.replace(file)


def read_report(folder: Path, rank: int) -> Report | None:
    """Return a rank's report; None without one that can be read."""
    try:
        text = (folder / f"rank-{rank:05d}.json").read_text(encoding="utf-8")
        values = json.loads(text)
        values["work"] = {int(step): tuple(two) for step, two in values["work"].items()}
        return Report(**values)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def beat_s(world: int) -> float:
    """Return the seconds between two reports: a shared file system takes 64 per second at most."""
    return max(_BEAT_S, world / 64)


def limits(environment: Mapping[str, str]) -> tuple[float, float]:
    """Return the limit of a start and the least one of a step, in seconds."""
    start, _, step = environment.get(LIMITS_ENV, "").partition(",")
    return float(start or START_TIMEOUT_S), float(step or _STEP_S)


class Watchdog:
    """The watchdog of this process; without `start` its marks cost next to nothing and go nowhere."""

    def __init__(self) -> None:
        self.attempt = self.number = self.steps = 0
        self.phase, self._since = START, time.monotonic()
        self._folder: Path | None = None
        self._receivers: list[Callable[[Culprit], None]] = []
        self._times: deque[float] = deque(maxlen=_RECENT)
        self._work: dict[int, tuple[float, float]] = {}
        self._loader = self._ended = self.replaceable_s = 0.0
        self._every, self._waits = 1, 0
        self._clock: _Clock | None = None
        self._is_ended = threading.Event()

    # Marks, by the thread that trains

    def enter(self, phase: str) -> str:
        """Mark the beginning of a phase, which ends the one before; return that."""
        now, before = time.monotonic(), self.phase
        if before == DATA:
            self._loader += now - self._since
        self.phase, self._since = phase, now
        return before

    def still_working(self) -> None:
        """Mark that this rank waits for a limited time, and does not hang."""
        self._since = time.monotonic()

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Mark that this rank waits for another one until the block ends."""
        self._waits += 1
        try:
            yield
        finally:
            self._waits -= 1

    @contextlib.contextmanager
    def during(self, phase: str) -> Iterator[None]:
        before = self.enter(phase)
        try:
            yield
        finally:
            self.enter(STEP if before == START and self.steps else before)

    @contextlib.contextmanager
    def replaceable(self, silent_s: float) -> Iterator[None]:
        """Mark that others go on without this rank until the block ends: it is ended after so much silence.

        Also where the launcher started another process, such as a shell, in which this one is not watched yet.
        """
        if self._folder is None:
            start_here()
        self.replaceable_s = silent_s
        try:
            yield
        finally:
            self.replaceable_s = 0.0

    def describe(self, *, attempt: int | None = None, number: int | None = None) -> None:
        """Tell the attempt of the run, or the program's own number of the step that it has ended."""
        self.attempt = self.attempt if attempt is None else attempt
        self.number = self.number if number is None else number

    def on_culprit(self, receive: Callable[[Culprit], None]) -> None:
        """Pass on whom any attempt of this run has named, old ones first; on the rank that reports."""
        self._receivers.append(receive)

    # torch's hooks

    def _before_update(self, optimizer: Any, *_: Any) -> None:
        if self._clock is None:
            self._clock = _Clock.of(optimizer)
        self._clock.update_begins()

    def _after_update(self, *_: Any) -> None:
        now = time.monotonic()
        if self.steps:
            self._times.append(now - self._ended)
        self._ended = now
        self.steps += 1
        worked = self._clock.step_ends() if self._clock else None
        if worked is not None and self.steps % self._every == 0:
            self._work[self.steps] = (max(0.0, worked - self._loader), self._loader)
            while len(self._work) > _RECENT:
                del self._work[next(iter(self._work))]
        self._loader = 0.0
        self.enter(STEP)

    # The thread

    def start(self, folder: Path, rank: int, world: int) -> None:
        """Report this rank to the folder from now on."""
        self._folder, self._rank, self._beat_s = folder, rank, beat_s(world)
        self._limits = limits(os.environ)
        self._beat, self._passed_on, self._place = 0, set[tuple[Any, ...]](), (0, 0.0)
        with contextlib.suppress(OSError, RuntimeError):
            self._stacks = (folder / f"rank-{rank:05d}.stacks").open("w")
            faulthandler.register(DUMP_SIGNAL, self._stacks, all_threads=True)
        with contextlib.suppress(KeyError, AttributeError):
            module: Any = sys.modules["torch.optim.optimizer"]
            module.register_optimizer_step_pre_hook(self._before_update)
            module.register_optimizer_step_post_hook(self._after_update)
        self._report(time.monotonic())
        thread = threading.Thread(target=self._run, name="trainyard-watchdog", daemon=True)
        thread.start()
        atexit.register(self._end, thread)

    def _end(self, thread: threading.Thread) -> None:
        """End the thread before the interpreter does: that would abort the process in a call of torch."""
        self.enter(END)
        self._is_ended.set()
        thread.join(_BEAT_S)

    def _run(self) -> None:
        written, poll_s = 0.0, min(1.0, self._limits[1] / 10)
        looked = time.monotonic()
        while True:
            ended = self._is_ended.wait(poll_s)
            now, before = time.monotonic(), looked
            looked, place = now, _place()
            if now - before > 10 * poll_s:  # the machine was suspended, or this process
                self._since = now
            if place != self._place[0] or now - before > 10 * poll_s:
                self._place = (place, now)
            if ended or now - written >= min(self._beat_s, self._limits[1] / 5):
                written = now
                with contextlib.suppress(Exception):  # its failure must not harm the run
                    self._report(now)
            if ended:
                return

    def _report(self, now: float) -> None:
        assert self._folder is not None
        self._beat += 1
        since, still = now - self._since, now - self._place[1]
        step_s = self._limits[1]
        usual = statistics.median(self._times) if self._times else 0.0
        step_s = max(step_s, _TIMES_MEDIAN * usual)
        # Ranks report at different times: of short steps every second, fourth ... one is kept, the same on all.
        while usual and _RECENT * usual * self._every < 4 * self._beat_s:
            self._every *= 2
        stuck = since > step_s / 2 and self.phase != IDLE
        recorded = _recorded() if stuck else []
        if stuck and (self._folder / DUMP_REQUEST).exists():
            file = self._folder / f"rank-{self._rank:05d}.collectives.json"
            file.write_text(json.dumps(recorded), encoding="utf-8")
        report = Report(
            rank=self._rank,
            node=node_name(),
            pod=pod_name(),
            pid=os.getpid(),
            beat=self._beat,
            attempt=self.attempt,
            number=self.number,
            steps=self.steps,
            phase=self.phase,
            since_s=since,
            still_s=still,
            limit_s=step_s,
            together=bool(self.steps) or _is_distributed(),
            frames=_frames() if stuck else (),
            issued=issued(recorded),
            waiting=bool(self._waits) or any(not one.get("retired") for one in recorded),
            work=dict(self._work),
            replaceable_s=self.replaceable_s,
        )
        write_report(self._folder, report)
        self._pass_on()

    def _pass_on(self) -> None:
        if self._folder is None or not self._receivers:
            return
        for one in Verdicts(self._folder.parents[1]).all():
            if (*one.key, one.time) not in self._passed_on:
                self._passed_on.add((*one.key, one.time))
                for receive in self._receivers:
                    receive(one)


watchdog: Final = Watchdog()
"""The watchdog of this process."""


def start_here() -> None:
    """Start it, if this process is a rank that `trainyard.rank` watches."""
    if folder := os.environ.get(FOLDER_ENV):
        world = int(os.environ.get("WORLD_SIZE", "1"))
        watchdog.start(Path(folder), rank_of_environment(), world)


class _Clock:
    """A rank's own work in each step, by the clock of its thread, or by CUDA's events for a model on a GPU."""

    @classmethod
    def of(cls, optimizer: Any) -> _Clock:
        found = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
        return (_GpuClock if found and found[0].is_cuda else cls)(found[0] if found else None)

    def __init__(self, first: Any) -> None:
        self._delay = -1
        with contextlib.suppress(OSError):
            self._delay = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        self._begun = self._ready = self._update = self.now()
        if first is not None:
            first.register_post_accumulate_grad_hook(self._gradient_is_ready)

    def now(self) -> Any:
        """Return seconds, without those in which the thread was ready but had no processor."""
        delay_ns = int(os.pread(self._delay, 64, 0).split()[1]) if self._delay >= 0 else 0
        return time.perf_counter() - delay_ns / 1e9

    def _gradient_is_ready(self, _: Any) -> None:
        self._ready = self.now()

    def update_begins(self) -> None:
        self._update = self.now()

    def step_ends(self) -> float | None:
        """Return the seconds of own work, waiting for samples included; None: not known."""
        now, begun, ready = self.now(), self._begun, self._ready
        self._begun = now
        if ready <= begun:
            return None
        return float(ready - begun + now - self._update)


class _GpuClock(_Clock):
    """The same in the stream that computes, one step later: its events are not waited for."""

    def __init__(self, first: Any) -> None:
        self._former: tuple[Any, ...] = ()
        super().__init__(first)

    def now(self) -> Any:
        event = sys.modules["torch"].cuda.Event(enable_timing=True)
        event.record()
        return event

    def step_ends(self) -> float | None:
        now, known = self.now(), self._former
        self._former = (self._begun, self._ready, self._update, now)
        self._begun = now
        if not known or not known[3].query():
            return None
        begun, ready, update, ended = known
        worked = begun.elapsed_time(ready) + update.elapsed_time(ended)
        return float(worked) / 1000 if worked > 0 else None


def _is_distributed() -> bool:
    module = sys.modules.get("torch.distributed")
    check = getattr(module, "is_initialized", None)
    return bool(check and check())


def _main_frame() -> FrameType | None:
    return sys._current_frames().get(threading.main_thread().ident or 0)


def _place() -> int:
    """Return a number for where the main thread is, another one as soon as it moves."""
    frame, parts = _main_frame(), []
    while frame:
        parts.append((id(frame.f_code), frame.f_lasti))
        frame = frame.f_back
    return hash(tuple(parts))


def _frames() -> tuple[str, ...]:
    frame = _main_frame()
    walked = list(traceback.walk_stack(frame))[:_FRAMES] if frame else []
    return tuple(
        f"{'/'.join(Path(one.f_code.co_filename).parts[-3:])}:{line} {one.f_code.co_name}"
        for one, line in reversed(walked)
    )


def _recorded() -> list[dict[str, Any]]:
    """Return the collectives that torch has recorded of this rank (TORCH_FR_BUFFER_SIZE), the newest last."""
    c10d = getattr(getattr(sys.modules.get("torch"), "_C", None), "_distributed_c10d", None)
    dump: Any = getattr(c10d, "_dump_fr_trace_json", None)
    found: list[dict[str, Any]] = []
    for backend in _RECORDERS if dump else ():
        with contextlib.suppress(RuntimeError, ValueError, TypeError):
            found += json.loads(dump(True, False, backend=backend)).get("entries") or []
    return found


def issued(recorded: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return how many collectives were issued in each process group."""
    found: dict[str, int] = {}
    for one in recorded:
        with contextlib.suppress(KeyError, IndexError, TypeError, ValueError):
            group, number = str(one["process_group"][0]), int(one["collective_seq_id"])
            found[group] = max(number, found.get(group, 0))
    return found
