"""Log the start of an attempt and set up its step metrics."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path

import torch

from training.spec import ATTEMPT_ENV
from training.trainer.loop import Run
from training.trainer.metrics import flops
from training.trainer.metrics.progress import ProgressDisplay
from training.trainer.metrics.step_metrics import StepMeter
from training.trainer.parallel.build import Network
from training.trainer.parallel.world import World
from training.trainer.preflight import RunRequest
from trainyard.run_logs import MetricsLog


def log_start(run: Run, request: RunRequest, *, resumed: bool) -> None:
    """Write the `started` event and print a summary line."""
    parameters = run.network.parameters
    run.events.write(
        "started",
        run.progress.step,
        total_steps=run.config.steps,
        parameters=parameters,
        world_size=run.world.size,
        device=run.world.device.type,
        device_name=_device_name(run.world.device),
        dataset_version=request.corpus.version,
        tokens_per_step=run.config.batch.global_samples * run.config.data.sequence_length,
        unigram_loss=run.evaluator.unigram_loss,
        run_id=request.record.get("run_id"),
        restart=os.environ.get(ATTEMPT_ENV),
        startup_s=_process_age_s(),
        dropped=run.metrics.dropped,
        config=run.config.to_dict(),
    )
    if resumed:
        run.events.write("resumed", run.progress.step, from_step=run.progress.step)
    for warning in run.config.warnings():
        run.display.log(f"warning: {warning}")
    run.display.log(
        f"{parameters:,} parameters on {run.world.size} x {run.world.device.type}, "
        f"attempt {run.attempt}, "
        + (f"resumed from step {run.progress.step}" if resumed else "new run")
        + f", {run.config.steps} steps"
    )


def make_step_meter(
    request: RunRequest,
    world: World,
    network: Network,
    log: MetricsLog,
    display: ProgressDisplay,
    attempt: int,
) -> StepMeter:
    """Return the StepMeter of this run."""
    config, shape = request.config, network.settings
    tied, heads = shape.tie_word_embeddings, shape.num_attention_heads
    token_flops = flops.flops_per_token(
        parameters=network.parameters,
        looked_up=0 if tied else shape.vocab_size * shape.hidden_size,
        layers=shape.num_hidden_layers,
        width=heads * (getattr(shape, "head_dim", None) or shape.hidden_size // heads),
        sequence_length=config.data.sequence_length,
    )
    return StepMeter(
        log=log,
        display=display,
        attempt=attempt,
        samples=config.batch.global_samples,
        sequence_length=config.data.sequence_length,
        token_flops=token_flops,
        devices=world.size,
        device_flops=flops.peak_flops(_device_name(world.device)),
    )


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return platform.processor() or platform.machine()


def _process_age_s() -> float:
    """Return seconds since this process started; 0 where /proc does not show it."""
    try:
        after_name = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        began_s = int(after_name[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - began_s)
