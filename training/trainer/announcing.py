"""Says what a run is when it starts."""

from __future__ import annotations

import os

from training.spec import ATTEMPT_ENV
from training.trainer import model
from training.trainer.loop import Run
from training.trainer.request import Request


def announce(run: Run, request: Request, *, resumed: bool) -> None:
    """The start of this attempt, as an event and as a line."""
    parameters = model.parameter_count(run.model)
    run.events.write(
        "started",
        run.progress.step,
        total_steps=run.config.steps,
        parameters=parameters,
        world_size=run.world.size,
        device=run.world.device.type,
        dataset_version=request.index.version,
        tokens_per_step=run.config.batch.global_samples * run.config.data.sequence_length,
        unigram_loss=run.evaluator.unigram_loss,
        run_id=request.record.get("run_id"),
        restart=os.environ.get(ATTEMPT_ENV),
    )
    if resumed:
        run.events.write("resumed", run.progress.step, from_step=run.progress.step)
    run.display.say(
        f"{parameters:,} parameters on {run.world.size} x {run.world.device.type}, "
        f"attempt {run.attempt}, "
        + (f"resumed from step {run.progress.step}" if resumed else "from the beginning")
        + f", {run.config.steps} steps"
    )
