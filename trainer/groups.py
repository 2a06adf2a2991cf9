"""One group of an elastic run: the trainer's part beside `trainyard.elastic`.

The library takes the steps with the other groups and gives their state to newcomers; here are a group's passes for
its logical workers, and what the leading group does besides: logs, checkpoints, reports.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, replace
from typing import Any, Final, NoReturn

import torch

from trainer import assembly, loop, publication
from trainer.checkpoint.contents import progress_of
from trainer.checkpointing import check_same_run
from trainer.config import flatten
from trainer.config.settings import TrainerConfig
from trainer.evaluation import to_device
from trainer.loop import Run, Work
from trainer.parallel.world import World
from trainer.preflight import RunRequest
from trainer.startup import log_start, sent_to_mlflow
from trainyard import checkpoints, elastic, notice, session
from trainyard.contract import EVENTS_FILE, EXIT_DONE
from trainyard.elastic.leader import claim
from trainyard.elastic.leaves import seed_all
from trainyard.elastic.ranks import Ranks
from trainyard.elastic.views import View
from trainyard.reporting import reporter
from trainyard.run_logs import EventLog, entries_from_end
from trainyard.store.factory import newest_attempt
from trainyard.tensors.local_tensors import local_data
from trainyard.watchdog import LOAD, STEP, watchdog

MAY_DIFFER: Final = (
    "device",
    "start_timeout_s",
    "collective_timeout_s",
    "parallel.replicate",
    "data.path",
    "data.sources[].path",
    "data.sources[].version",
    "data.verify",
    "data.staging",
    "data.prefetch_steps",
    "groups.silent_after_s",
    "checkpoint.every_steps",
    "checkpoint.every_seconds",
    "checkpoint.milestone_every_steps",
    "checkpoint.keep_latest",
    "checkpoint.deadline_s",
    "checkpoint.export",
    "report",
)
"""Settings, or sections, that groups need not have in common: how long a group waits, when the leading one saves,
what it reports, and where the same data lie. The version of the data, the device and the ranks are compared."""


class _Left(Exception):
    """This group has ended, or its part in the run."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def run_group(
    request: RunRequest,
    world: World,
    asked: notice.Notice,
    *,
    describe: Callable[[Exception], str | None],
    leave: Callable[[int], NoReturn],
) -> int:
    """Take part in the run until it ends or this group leaves; return the exit code.

    `describe` returns one line for an expected error; `leave` ends the process with an exit code. Raises
    ConfigError, DatasetError, NoUsableCheckpoint, LossNotFinite, ReplicasDiffer.
    """
    config, run_dir = request.config, request.run_dir
    if world.is_leader:
        asked.watch_run_dir()
    nothing = EventLog(run_dir / EVENTS_FILE, 0, enabled=False)
    run = assembly.make_run(request, world, asked, 0, nothing)
    reporter.waits = True
    with torch.no_grad():
        for parameter in run.network.unwrapped.parameters():
            local_data(parameter).zero_()  # memory as it was allocated may hold any numbers
    assert config.groups.workers
    state = _ProgressState(run)
    leader = GroupLeader(request, run, state)
    members = elastic.join(
        run.network.unwrapped,
        run.optimizer,
        progress=state,
        workers=config.groups.workers,
        seed=config.seed,
        leader=leader,
        run_dir=run_dir,
        settings=describe_settings(config, request.corpus.version),
        silent_after_s=config.groups.silent_after_s,
        timeout_s=config.collective_timeout_s,
    )
    run.compute = computation = _GroupComputation(run)
    with leader.recording_failures(describe):
        code = EXIT_DONE
        try:
            for step in members.steps(config.steps):
                computation.step = step
                with step:
                    loop.train_step(run)
                if members.takes_part and not step.void and loop.evaluation_is_due(run):
                    loop.evaluate(run)
            if members.leads:
                publication.publish(run, request, leave)
        except _Left as left:
            code = left.code
    run.loader.close()
    return code


class _GroupComputation:
    """The gradients of a step: this group's logical workers, and the exchange with the other groups."""

    step: elastic.Step

    def __init__(self, run: Run) -> None:
        config, world = run.config, run.world
        self._share, self._each = range(0), config.samples_at_once(world.data_size)
        self._first = world.data_share(config.batch.global_samples).start
        self._stream = world.rank // world.layout.tensor
        self._counted = float(world.counts) * world.size / world.data_size

    def __call__(self, run: Run, loss_scale: float | None) -> Work:
        """See loop.Computation. Raises elastic's Lost, which its `with step` catches."""
        step = self.step
        rows = self._rows(run)
        loaded_at = time.perf_counter()
        watchdog.enter(STEP)
        for worker, part in zip(step.workers(), rows, strict=True):
            seed_all(run.config.seed, step.number, worker, self._stream)
            losses = run.network.passes.forward_backward(part, loss_scale)
            step.add(losses.sum() * self._counted)
        begun = time.perf_counter()
        loss = torch.tensor([step.reduce()], dtype=torch.float64)
        exchanged_s = time.perf_counter() - begun
        return Work(losses=loss, loaded_at=loaded_at, exchanged_s=exchanged_s)

    def _rows(self, run: Run) -> tuple[torch.Tensor, ...]:
        """Return this rank's samples for each of the group's logical workers in this step.

        First the data ranks divide a step, then the logical workers what a data rank has.
        """
        share = self.step.share
        if not share:
            return ()
        first, stop = (self._first + worker * self._each for worker in (share.start, share.stop))
        if share != self._share:
            run.loader.close()
            run.loader = assembly.make_loader(run.config, run.world, run.order, range(first, stop))
            self._share = share
        rows = run.loader.take(run.progress.samples + first, stop - first)
        return torch.split(to_device(rows, run.world.device), self._each)


class _ProgressState:
    """What a group that joins gets beside the tensors."""

    def __init__(self, run: Run) -> None:
        self._run, self.initial = run, run.progress
        self.there = False
        """Whether this group has a state."""

    def state_dict(self) -> dict[str, Any]:
        return {"progress": json.dumps(asdict(self._run.progress))}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over the progress. Raises ConfigError for that of another run."""
        metadata = {"progress": json.loads(state_dict["progress"])}
        check_same_run(metadata, self.initial)
        self._run.progress, self.there = progress_of(metadata) or self.initial, True


class GroupLeader(elastic.Leader):
    """This rank's part of what the leading group does; see trainyard.elastic.leader."""

    def __init__(self, request: RunRequest, run: Run, state: _ProgressState) -> None:
        self._request, self._run, self._state = request, run, state
        self._idle = run.events, run.display
        super().__init__(Ranks(), None, 0)
        self._open = ExitStack()
        self._writer = ThreadPoolExecutor(1, "logs")
        """So that a slow disk does not stall all groups."""
        self._opening: Future[None] | None = None
        self._resumed = False

    @contextmanager
    def recording_failures(self, describe: Callable[[Exception], str | None]) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            text = describe(error) or f"{type(error).__name__}: {error}"
            with suppress(OSError):  # it must not hide the failure
                step, line = self._run.progress.step, " ".join(text.split())[:300]
                self._run.events.write("failed", step, error=line)
            raise
        finally:
            self._close()

    def newest_attempt(self) -> int:
        return newest_attempt(self._request.run_dir, self._run.config.checkpoint.store)

    def is_due(self, step: int) -> bool:
        run = self._run
        time_due = run.checkpointer.policy.time_due(time.monotonic() - run.saved_at)
        reason = run.checkpointer.policy.reason(step, time_due=time_due)
        return reason is not None and step < run.config.steps

    def lead(self, attempt: int, step: int) -> None:
        run = self._run
        with watchdog.during(LOAD):  # a bucket that does not answer is no hang of this rank
            claim(self._ranks, attempt)
        run.attempt = attempt
        run.events = session.current().events
        if run.world.is_leader:
            reporter.take_over()
        checkpoints.prepare(run.checkpointer.tensors())
        run.checkpointer.saved_step, run.saved_at = None, time.monotonic()
        self._resumed, self._opening = False, None

    def resume(self, step: int) -> int:
        run = self._run
        if self._state.there and self._ranks.share(_newest_step) <= step:
            self._resumed = True
        else:
            run.progress = self._state.initial
            self._resumed = assembly.load(run)
            self._state.there = True
        if loop.evaluation_is_due(run):
            loop.evaluate(run)
        return run.progress.step

    def formed(self, view: View, position: int, step: int, seconds: float) -> None:
        run = self._run
        run.flops.devices = view.groups * run.world.size
        if position == 0 and self._opening is None:
            self._open_logs()
        if position == 0:
            self._writer.submit(run.events.write, "membership", step, **view.details(seconds))

    def _open_logs(self) -> None:
        run, leads = self._run, self._run.world.is_leader
        step = run.progress.step
        run.display = assembly.make_display(run.config, step, enabled=leads)
        # A copy: training goes on meanwhile.
        self._opening = self._writer.submit(self._write_start, replace(run), self._resumed)
        if leads:
            sending = sent_to_mlflow(self._request, lambda: run.progress.step == run.config.steps)
            self._open.enter_context(sending)

    def _write_start(self, run: Run, resumed: bool) -> None:
        """Open the metrics, a file that becomes long, and record the start and what the last leader did not."""
        if not run.world.is_leader:
            return
        config = run.config
        groups = elastic.Groups.of_run().max or config.groups.workers or 0
        reporter.open(run.progress.step, steps=config.steps, groups=groups)
        log_start(run, self._request, resumed=resumed)
        step, loss = run.progress.evaluated_step, run.progress.evaluation_loss
        if step and loss is not None and not self._is_recorded(step):
            loop.record_evaluation(run, step, loss, 0.0)

    def _is_recorded(self, step: int) -> bool:
        """Return whether the evaluation after this step is in the log: among the last of them, if at all."""
        for entry in entries_from_end(self._request.run_dir / EVENTS_FILE):
            if entry.get("event") == "evaluated" and entry["step"] <= step:
                return bool(entry["step"] == step)
        return False

    def save(self, step: int) -> None:
        run = self._run
        if self._opening and self._opening.done():
            self._opening.result()
        if step > 0 and run.checkpointer.saved_step != step:
            loop.save_if_due(run, time_due=True)

    def finish(self, step: int, *, stopped: bool) -> int:
        if self._opening:
            self._opening.result()
        return loop.stop_on_notice(self._run, "signal") if stopped else loop.finish(self._run)

    def step_down(self) -> None:
        run = self._run
        self._close()
        run.events, run.display = self._idle
        self._opening = None

    def leave(self, code: int) -> NoReturn:
        raise _Left(code)

    def _close(self) -> None:
        self._writer.submit(lambda: None).result()
        self._open.close()
        reporter.close()


def _newest_step() -> int:
    return max(session.store().steps(), default=0)


def describe_settings(config: TrainerConfig, version: str) -> dict[str, str]:
    """Return what must be equal in all groups, by dotted path; `version`: of the data that this one reads."""
    values = flatten(config.to_dict())
    found = {path: str(value) for path, value in values.items() if not _may_differ(path)}
    identity = {f"model.{name}": str(value) for name, value in config.model.identity().items()}
    return {**found, **identity, "data.version": version}


def _may_differ(path: str) -> bool:
    head, *rest = path.split("[")
    pattern = head + "".join(f"[]{part.partition(']')[2]}" for part in rest)
    return pattern in MAY_DIFFER or pattern.partition(".")[0] in MAY_DIFFER
