"""Initial progress of a run, and its Checkpointer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import torch

from trainer import lineage
from trainer.checkpoint.contents import Progress
from trainer.checkpointing import Checkpointer
from trainer.config.settings import CONFIG_FILE
from trainer.data.sampler import Sampler
from trainer.parallel.world import World, unwrap
from trainer.preflight import RunRequest
from trainyard.store.policy import SavePolicy


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


def make_checkpointer(
    request: RunRequest, world: World, network: torch.nn.Module, optimizer: torch.optim.Optimizer
) -> Checkpointer:
    """Return the object that saves and loads this run on this rank."""
    config = request.config
    data = {"path": config.data.path, "version": request.corpus.version}
    return Checkpointer(
        model=unwrap(network),
        optimizer=optimizer,
        lineage={
            **lineage.describe(config, request.record),
            "data": {**data, "sources": request.corpus.sources()},
            "parallelism": world.layout.dimensions(),
        },
        attachments=attached_files(unwrap(network), request.corpus.folders),
        policy=SavePolicy(
            every_steps=config.checkpoint.every_steps,
            every_seconds=config.checkpoint.interval_s,
            milestone_every_steps=config.checkpoint.milestone_every_steps,
        ),
        keep_latest=config.checkpoint.keep_latest,
        stream=world.rank // world.layout.tensor,
    )


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
