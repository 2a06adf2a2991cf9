"""What the leading group does besides training: logs, checkpoints, metrics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from torch.distributed import PrefixStore  # type: ignore[attr-defined]

from training.checkpoint import contents
from training.spec import EVENTS_FILE, METRICS_FILE
from training.trainer.assembly import claim_for_all
from training.trainer.checkpointing import Checkpointer
from training.trainer.elastic.computation import RecentMetrics
from training.trainer.elastic.membership import Excluded
from training.trainer.elastic.views import View
from training.trainer.export import check_export
from training.trainer.loop import Run, save_if_due
from training.trainer.metrics.progress import ProgressDisplay
from training.trainer.metrics.reporting import Reports
from training.trainer.preflight import RunRequest
from training.trainer.resume import check_same_run, make_checkpointer
from training.trainer.startup import log_start
from trainyard.contract import RUN_NOTICE_FILE
from trainyard.run_logs import EventLog, MetricsLog, Totals, entries_from_end
from trainyard.store.interface import Fence

_LOOK_S: Final = 0.1
"""Between two looks at a claim."""


@dataclass(kw_only=True)
class Leadership:
    """This rank's part of what the leading group does; does nothing in other groups."""

    request: RunRequest
    recent: RecentMetrics
    leads: bool = False
    """Whether this group has the logs and the checkpoints."""
    _first: bool = False
    """Whether this group is the first of its view."""
    _pending: list[dict[str, Any]] = field(default_factory=list)
    """Changes of the view that are not in the event log yet."""
    _open: ExitStack = field(default_factory=ExitStack)
    _writer: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))
    _opening: Future[None] = field(default_factory=Future)
    """The logs, in a thread."""

    @contextmanager
    def reporting(self, run: Run, describe: Callable[[Exception], str | None]) -> Iterator[None]:
        """Close what `take` opens, and record a failure."""
        with self._open:
            try:
                yield
            except Excluded:
                raise
            except Exception as error:
                text = describe(error) or f"{type(error).__name__}: {error}"
                with suppress(OSError):  # it must not hide the failure
                    run.events.write(
                        "failed", run.progress.step, error=" ".join(text.split())[:300]
                    )
                raise

    def take(
        self, run: Run, attempt: int, *, load: bool = False, holds_state: bool = False
    ) -> None:
        """Open the logs and claim the checkpoints with the view's attempt, which fences out the former leader.

        `load`: start from the newest checkpoint, or from new weights, unless the state is here and as new. Raises
        StaleAttempt on all ranks when there is a newer leader.
        """
        if self.leads:
            return
        self.leads = True
        request, config = self.request, run.config
        fence = self._claim(run, attempt)
        run.attempt = run.meter.attempt = fence.attempt
        # Counters are of an attempt: the former leader reported the steps before.
        run.meter.totals = Totals()
        leader = run.world.is_leader
        run.events = EventLog(request.run_dir / EVENTS_FILE, fence.attempt, enabled=leader)
        # Names in the store are used once per attempt.
        world = replace(run.world, store=PrefixStore(f"attempt-{fence.attempt}", run.world.store))
        saver = make_checkpointer(
            request, world, fence, run.network.unwrapped, run.optimizer, run.events
        )
        if config.checkpoint.export:
            check_export(saver.attachments, run.progress.tokens)
        if load and leader:
            saver.store.sweep()
        resumed = load and self._load(run, saver, holds_state)
        saver.metrics = self.recent
        saver.allocate(in_background=not load)
        run.checkpointer, run.saved_at = saver, time.monotonic()
        run.display = run.meter.display = self._open.enter_context(
            ProgressDisplay(
                config.steps,
                run.progress.step,
                config.report.every_seconds,
                enabled=leader,
                metric_lines_every=config.report.metric_lines_every,
            )
        )
        self.recent.hold()
        resumed_from = saver.store.place if resumed else None
        # A copy: training goes on meanwhile if the state was here.
        self._opening = self._writer.submit(self._open_logs, replace(run), resumed_from)
        if load:
            self._opening.result()
        if leader and not load:
            self._record_last_evaluation(run)
        reports = Reports(run, request)
        self._open.callback(lambda: reports.close(patient=run.progress.step == config.steps))
        self._open.callback(_close_events, run.events, saver)
        self._open.callback(self.recent.close)
        self._open.callback(self._writer.shutdown)
        if leader:
            run.notice.watch_run_dir()

    def _claim(self, run: Run, attempt: int) -> Fence:
        """Claim an attempt in a thread, so that this rank makes progress while a bucket does not answer.

        Raises StaleAttempt on all ranks.
        """
        claim = self._writer.submit(claim_for_all, self.request, run.world, attempt)
        limit = time.monotonic() + run.config.collective_timeout_s  # as long as others wait
        while not wait([claim], _LOOK_S).done and time.monotonic() < limit:
            run.recorder.renew()
        return claim.result()

    def _open_logs(self, run: Run, resumed_from: str | None) -> None:
        """Take over the metrics, a file that becomes long, and record the start.

        Then remove what the former leader has left unfinished, as large as a checkpoint. Raises OSError.
        """
        file = self.request.run_dir / METRICS_FILE
        try:
            run.metrics = MetricsLog(file, run.progress.step, enabled=run.world.is_leader)
            self.recent.write_to(run.metrics, run.progress.step, run.attempt)
        except BaseException:
            self.recent.give_up()
            raise
        log_start(run, self.request, resumed_from=resumed_from)
        if run.world.is_leader:
            run.checkpointer.store.sweep(run.attempt)

    def _load(self, run: Run, saver: Checkpointer, holds_state: bool) -> bool:
        """Load the newest checkpoint or new weights; return whether the run goes on from a former one."""
        if holds_state:
            saved = saver.store.steps() if run.world.is_leader else []
            if run.world.broadcast_from_leader(max(saved, default=0)) <= run.progress.step:
                return True
        found = saver.load_newest(lambda progress: check_same_run(progress, run.progress))
        if found is None:
            run.network.init_weights()
            contents.reset_optimizer(run.network.unwrapped, run.optimizer)
        run.progress = found or run.progress
        return found is not None

    def _record_last_evaluation(self, run: Run) -> None:
        """Record the last evaluation, if the former leader was lost before it did."""
        step, loss = run.progress.evaluated_step, run.progress.evaluation_loss
        if step and loss is not None and not self._is_recorded(step):
            baseline = run.evaluator.unigram_loss
            run.events.write("evaluated", step, loss=loss, unigram_loss=baseline, seconds=0.0)

    def _is_recorded(self, step: int) -> bool:
        """Return whether the evaluation after this step is in the log: among the last of them, if at all."""
        for entry in entries_from_end(self.request.run_dir / EVENTS_FILE):
            if entry.get("event") == "evaluated" and entry["step"] <= step:
                return bool(entry["step"] == step)
        return False

    def view_formed(self, view: View, run: Run, seconds: float, *, first: bool) -> None:
        """Record a change of the membership; `first`: this group leads."""
        self._first = first
        self._pending.append(
            {
                "view": view.number,
                "groups": len(view.members),
                "reason": view.reason,
                "seconds": seconds,
                "at_step": run.progress.step,
            }
        )

    def after_round(self, run: Run, attempt: int, *, time_due: bool, compared: bool) -> None:
        """Record changes, and save if it is time; only a state that all groups have `compared`.

        Raises StaleAttempt on all ranks.
        """
        if not self._first:
            self._pending.clear()
            return
        self.take(run, attempt)
        if self._opening.done():
            self._opening.result()
        for details in self._pending:
            # An event is fsynced: in a thread, so that a slow disk does not stall all groups.
            self._writer.submit(run.events.write, "membership", run.progress.step, **details)
        self._pending.clear()
        # Rounds without a step, while groups are missing, leave the state as it was saved.
        if run.progress.step > 0 and compared and run.checkpointer.saved_step != run.progress.step:
            save_if_due(run, time_due)

    def is_run_notice(self, run: Run) -> bool:
        """Return whether the notice asks the whole run to stop, not this group alone."""
        return run.notice.source == str(self.request.run_dir / RUN_NOTICE_FILE)


def _close_events(events: EventLog, saver: Checkpointer) -> None:
    """Close the event log, unless a save in flight has yet to record there that it was refused."""
    if not saver.writing:
        events.close()
