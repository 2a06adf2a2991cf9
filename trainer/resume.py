"""Initial progress of a run, the check that a checkpoint belongs to it, and its Checkpointer."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import torch

from trainer import lineage
from trainer.checkpoint.contents import Progress
from trainer.checkpointing import Checkpointer
from trainer.config_errors import ConfigError
from trainer.data.sampler import Sampler
from trainer.parallel.world import World, unwrap
from trainer.preflight import RunRequest
from trainyard.contract import CHECKPOINTS_DIR
from trainyard.run_logs import EventLog
from trainyard.store.factory import open_store
from trainyard.store.interface import Fence
from trainyard.store.manifest import Manifest


def initial_progress(request: RunRequest, order: Sampler) -> Progress:
    """Return the progress of a run before its first step."""
    config = request.config
    cursor = order.cursor(0)
    return Progress(
        step=0,
        samples=cursor.samples,
        windows=cursor.windows,
        seed=cursor.seed,
        evaluated_step=0,
        evaluation_loss=None,
        dataset_version=request.corpus.version,
        model={**config.model.identity(), "sequence_length": config.data.sequence_length},
        tokens=request.corpus.tokens,
    )


def check_same_run(found: Progress, wanted: Progress) -> None:
    """Raise ConfigError when a checkpoint does not match this configuration."""
    issues = []
    for name in ("seed", "dataset_version", "windows"):
        if getattr(found, name) != getattr(wanted, name):
            pair = f"{getattr(found, name)}, now {getattr(wanted, name)}"
            issues.append(f"resume: {name}: the checkpoint has {pair}")
    for key in sorted(found.model.keys() | wanted.model.keys()):
        if found.model.get(key) != wanted.model.get(key):
            pair = f"{found.model.get(key)}, now {wanted.model.get(key)}"
            issues.append(f"resume: model.{key}: the checkpoint has {pair}")
    if issues:
        raise ConfigError([f"{line}; use another --run-dir or the old value" for line in issues])


def make_checkpointer(
    request: RunRequest,
    world: World,
    fence: Fence,
    network: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    events: EventLog,
) -> Checkpointer:
    """Return the object that saves and loads this run on this rank."""
    config = request.config
    made_by = lineage.describe(config, request.record, request.corpus.version)
    milestone = config.checkpoint.milestone_every_steps

    def describe(progress: Progress, reason: str) -> Manifest:
        evaluated = progress.evaluated_step == progress.step
        return Manifest(
            step=progress.step,
            reason=reason,
            milestone=milestone is not None and progress.step % milestone == 0,
            evaluation_loss=progress.evaluation_loss if evaluated else None,
            attempt=fence.attempt,
            saved_at=time.time(),
            world_size=world.size,
            parallelism=world.layout.dimensions(),
            data_cursor={
                "dataset": config.data.path,
                "version": progress.dataset_version,
                "sources": request.corpus.sources(),
                "samples": progress.samples,
                "windows": progress.windows,
                "seed": progress.seed,
            },
            run=request.record,
            trainer=made_by,
        )

    return Checkpointer(
        world=world,
        run_dir=request.run_dir,
        store=open_store(request.run_dir / CHECKPOINTS_DIR, config.checkpoint.store),
        fence=fence,
        model=unwrap(network),
        optimizer=optimizer,
        describe=describe,
        attachments=attached_files(unwrap(network), request.corpus.folders),
        keep_latest=config.checkpoint.keep_latest,
        events=events,
    )


CONFIG_FILE: Final = "config.json"
TOKENIZER_FILES: Final = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")


def attached_files(model: torch.nn.Module, folders: Sequence[Path]) -> dict[str, bytes]:
    """Return config.json and the tokenizer's files by name, so that transformers can load a checkpoint.

    Tokenizer files come from the first of `folders` that has them; byte tokens have none.
    """
    found: dict[str, bytes] = {}
    config: Any = getattr(model, "config", None)
    if hasattr(config, "to_dict"):
        found[CONFIG_FILE] = _config_json(model, config.to_dict())
    for name in TOKENIZER_FILES:
        files = [folder / name for folder in folders if (folder / name).is_file()]
        if files:
            found[name] = files[0].read_bytes()
    return found


def _config_json(model: torch.nn.Module, values: dict[str, Any]) -> bytes:
    if not values.get("architectures"):
        # fully_shard prefixes the class name.
        values["architectures"] = [type(model).__name__.removeprefix("FSDP")]
    return (json.dumps(values, indent=2, sort_keys=True, default=str) + "\n").encode()
