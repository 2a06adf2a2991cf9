"""The start of an attempt: its event, and the process that sends what it logs to MLflow."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from trainer.config import flatten, rules
from trainer.loop import Run
from trainer.preflight import RunRequest
from trainyard import contract, tracking
from trainyard.contract import ATTEMPT_ENV
from trainyard.reporting import reporter
from trainyard.restart_budget import restarts_in_pod


def log_start(run: Run, request: RunRequest, *, resumed: bool) -> None:
    """Write the `started` event and print a summary line. `resumed`: whether this is no new run."""
    parameters = run.network.parameters
    run.events.write(
        "started",
        run.progress.step,
        total_steps=run.config.steps,
        parameters=parameters,
        world_size=run.world.size,
        device=run.world.device.type,
        device_name=run.world.device_name,
        dataset_version=request.corpus.version,
        tokens_per_step=run.config.batch.global_samples * run.config.data.sequence_length,
        unigram_loss=run.evaluator.unigram_loss,
        run_id=request.record.get("run_id"),
        restart=os.environ.get(ATTEMPT_ENV),
        restarts_in_pod=restarts_in_pod(),
        startup_s=_process_age_s(),
        dropped=reporter.dropped,
        config=run.config.to_dict(),
    )
    for warning in [*rules.warnings(run.config), *_resume_warnings(run, request)]:
        run.display.log(f"warning: {warning}")
    run.display.log(
        f"{parameters:,} parameters on {run.world.size} x {run.world.device.type}, "
        f"attempt {run.attempt}, "
        + (f"resumed from step {run.progress.step}" if resumed else "new run")
        + f", {run.config.steps} steps"
    )


def _resume_warnings(run: Run, request: RunRequest) -> Iterator[str]:
    """Yield one line for each thing that makes the resumed run another than the one before."""
    if reporter.missing and request.continued:
        yield (
            f"metrics.jsonl lacks the first {reporter.missing} steps: they are in {request.continued}"
        )
    elif reporter.missing:
        yield (
            f"metrics.jsonl lacks {reporter.missing} of the first {run.progress.step} steps: it was "
            "removed or damaged; the checkpoint does not depend on it"
        )
    loaded = run.checkpointer.loaded
    before = loaded.get("config") if loaded else None
    if isinstance(before, dict):
        was, now = flatten(before), flatten(run.config.to_dict())
        keys = (key for key in sorted(was.keys() | now.keys()) if was.get(key) != now.get(key))
        changed = ", ".join(f"{key}: {was.get(key)}, now {now.get(key)}" for key in keys)
        if changed:
            yield f"resumed with changed settings: {changed}"


def _process_age_s() -> float:
    """Return seconds since this process started; 0 where /proc does not show it."""
    try:
        after_name = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        began_s = int(after_name[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - began_s)


@contextmanager
def sent_to_mlflow(request: RunRequest, patient: Callable[[], bool]) -> Iterator[None]:
    """Run a process that sends what the run logs to `report.mlflow`; its failure never stops the run.

    `patient`: whether to wait at the end until the server has the rest.
    """
    report, record = request.config.report, request.record
    if report.mlflow is None:
        yield
        return
    own = {
        contract.TRACKING_URI_ENV: report.mlflow,
        contract.RUN_DIR_ENV: str(request.run_dir),
        contract.RUN_ID_ENV: str(record.get("run_id") or request.run_dir.resolve().name),
        contract.TEAM_ENV: str(record.get("team") or ""),
        tracking.EXPERIMENT_ENV: report.mlflow_experiment,
    }
    process = tracking.start(os.environ | own)
    try:
        yield
    finally:
        if process:
            tracking.close(process, tracking.CLOSE_S if patient() else 0)
