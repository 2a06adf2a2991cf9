"""What the leading group does besides training: logs, checkpoints, metrics, transfers to joining groups."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from training.checkpoint.factory import claim_attempt, open_store
from training.spec import EVENTS_FILE, METRICS_FILE
from training.trainer.elastic.computation import Computation, RecentMetrics
from training.trainer.elastic.links import Listener
from training.trainer.elastic.membership import Excluded
from training.trainer.elastic.transfer import Donor
from training.trainer.elastic.views import View
from training.trainer.export import check_export
from training.trainer.loop import Run, save_if_due
from training.trainer.metrics.progress import ProgressDisplay
from training.trainer.metrics.reporting import Reports
from training.trainer.preflight import RunRequest
from training.trainer.resume import check_same_run, make_checkpointer
from training.trainer.startup import log_start
from trainyard.run_logs import EventLog, MetricsLog


@dataclass(kw_only=True)
class Leadership:
    """The leader's part; does nothing on other groups."""

    request: RunRequest
    listener: Listener
    recent: RecentMetrics
    leads: bool = False
    _donor: Donor | None = None
    _pending: list[dict[str, Any]] = field(default_factory=list)
    """Changes of the view that are not in the event log yet."""
    _leader: bool = False
    """Whether this group is the first of its view."""
    _open: ExitStack = field(default_factory=ExitStack)
    _writer: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))

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
                run.events.write("failed", run.progress.step, error=" ".join(text.split())[:300])
                raise

    def take(self, run: Run, *, load: bool = False) -> None:
        """Open the logs and claim the checkpoints, which fences out the former leader.

        `load`: start from the newest checkpoint, or from new weights.
        """
        if self.leads:
            return
        self.leads = True
        request, config = self.request, run.config
        fence = claim_attempt(request.run_dir, config.checkpoint.store)
        open_store(request.run_dir, config.checkpoint.store).sweep()
        run.attempt = run.meter.attempt = fence.attempt
        run.events = EventLog(request.run_dir / EVENTS_FILE, fence.attempt, enabled=True)
        saver = make_checkpointer(
            request, run.world, fence, run.network.unwrapped, run.optimizer, run.events
        )
        if config.checkpoint.export:
            check_export(saver.attachments, run.progress.tokens)
        resumed = False
        if load:
            found = saver.load_newest(lambda progress: check_same_run(progress, run.progress))
            resumed = found is not None
            if found is None:
                run.network.init_weights()
            run.progress = found or run.progress
        file = MetricsLog(request.run_dir / METRICS_FILE, run.progress.step, enabled=True)
        run.metrics = file
        self.recent.write_to(file, run.progress.step, fence.attempt)
        saver.metrics = file
        saver.allocate()
        run.checkpointer, run.saved_at = saver, time.monotonic()
        run.display = run.meter.display = self._open.enter_context(
            ProgressDisplay(
                config.steps,
                run.progress.step,
                config.report.every_seconds,
                enabled=True,
                metric_lines_every=config.report.metric_lines_every,
            )
        )
        log_start(run, request, resumed=resumed)
        if not load:
            self._record_last_evaluation(run)
        reports = Reports(run, request)
        self._open.callback(lambda: reports.close(patient=run.progress.step == config.steps))
        self._open.callback(run.events.close)
        self._open.callback(file.close)
        self._open.callback(self._writer.shutdown)
        run.notice.watch_run_dir()

    def _record_last_evaluation(self, run: Run) -> None:
        """Record the last evaluation, if the former leader was lost before it did."""
        step, loss = run.progress.evaluated_step, run.progress.evaluation_loss
        events = (self.request.run_dir / EVENTS_FILE).read_text(encoding="utf-8")
        line = f'"event": "evaluated", "time": [0-9.]+, "step": {step},'
        if step and loss is not None and not re.search(line, events):
            baseline = run.evaluator.unigram_loss
            run.events.write("evaluated", step, loss=loss, unigram_loss=baseline, seconds=0.0)

    def view_changed(self, view: View) -> None:
        """Let the joining group take part, if it is in the view."""
        donor = self._donor
        if donor and view.position(donor.peer) is not None:
            donor.adopt(view.number)
            self._donor = None

    def view_formed(self, view: View, run: Run, seconds: float) -> None:
        """Record a change of the membership."""
        self._leader = view.members[0].id == self.listener.member.id
        self._pending.append(
            {
                "view": view.number,
                "groups": len(view.members),
                "reason": view.reason,
                "seconds": seconds,
                "at_step": run.progress.step,
            }
        )

    def after_round(self, view: View, computation: Computation) -> None:
        """Save if it is time, and serve groups that want to join."""
        run = computation.run
        if not self._leader:
            self._pending.clear()
            self._refuse_joins()
            return
        self.take(run)
        for details in self._pending:
            # An event is fsynced: in a thread, so that a slow disk does not stall all groups.
            self._writer.submit(run.events.write, "membership", run.progress.step, **details)
        self._pending.clear()
        run.checkpointer.raise_if_replaced()
        if run.progress.step > 0:
            save_if_due(run, run.save_policy.time_due(time.monotonic() - run.saved_at))
        self._tend_joins(view, computation)

    def ready_joiner(self, step: int) -> str:
        """Return the id of a group that has the state and may join now; empty for none."""
        donor = self._donor
        return donor.peer if donor and donor.has_reached(step - 1) else ""

    def is_run_notice(self, run: Run) -> bool:
        """Return whether the notice asks the whole run to stop, not this group alone."""
        return run.notice.source == str(self.request.run_dir / "notice")

    def end_join(self) -> None:
        """End a transfer in progress."""
        if self._donor:
            self._donor.close()

    def _tend_joins(self, view: View, computation: Computation) -> None:
        if self._donor and self._donor.failed:
            self._donor = computation.donor = None
        if self._donor or len(view.members) >= computation.run.config.groups.max:
            self._refuse_joins()
        elif self.listener.joins:
            connection, peer = self.listener.joins.pop(0)
            connection.settimeout(computation.run.config.collective_timeout_s)
            progress = computation.run.progress
            self._donor = Donor(connection, peer, progress, computation.tensors)
            computation.donor = self._donor

    def _refuse_joins(self) -> None:
        """Close the callers' connections: they try again."""
        while self.listener.joins:
            self.listener.joins.pop(0)[0].close()
