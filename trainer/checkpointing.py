"""What a checkpoint of this trainer has, and how a run ends with one; `trainyard.checkpoints` does the rest."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import torch

from trainer import lineage
from trainer.checkpoint import contents
from trainer.checkpoint.contents import Progress, progress_of
from trainer.config.settings import CONFIG_FILE
from trainer.config_errors import ConfigError
from trainer.data.sampler import Sampler
from trainer.parallel.world import World, unwrap
from trainer.preflight import RunRequest
from trainyard import checkpoints
from trainyard.contract import EXIT_PREEMPTED
from trainyard.store.interface import SaveUnfinished, folder_name
from trainyard.store.manifest import UnknownFormat
from trainyard.store.policy import SavePolicy
from trainyard.tensors import random_state, replicas
from trainyard.tensors.local_tensors import Groups

TOKENIZER_FILES: Final = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")


@dataclass(kw_only=True)
class Checkpointer:
    """Saves and loads one run; all ranks call the same methods in the same order."""

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    lineage: Mapping[str, Any]
    """Metadata of every checkpoint: configuration, data, parallelism."""
    attachments: Mapping[str, bytes]
    """Small files in every checkpoint: model configuration and tokenizer."""
    policy: SavePolicy
    keep_latest: int
    stream: int
    """Number of this rank's stream of random numbers; ranks with the same samples share one."""
    loaded: Mapping[str, Any] | None = None
    """Metadata of the checkpoint that this attempt resumed from."""
    saved_step: int | None = None
    """Step of the newest checkpoint loaded or started."""
    failed: bool = False
    """Whether the last save failed, other than by taking too long."""

    def tensors(self) -> Groups:
        return contents.tensors(self.model, self.optimizer)

    def check_replicas(self, step: int) -> None:
        """Check that ranks with the same part of the model agree in its state. Raises ReplicasDiffer on all."""
        replicas.check(self.tensors(), step)

    def save(self, progress: Progress, reason: str, timeout_s: float) -> None:
        """Start a checkpoint of this step, unless the one before is not complete within `timeout_s`.

        Returns once the state is copied. Raises ReplicasDiffer and StaleAttempt on every rank.
        """
        step = progress.step
        self.check_replicas(step)
        started = checkpoints.save_async(
            self.tensors(),
            step,
            {**self.lineage, "progress": asdict(progress)},
            milestone=self.policy.is_milestone(step),
            evaluation_loss=progress.evaluation_loss if progress.evaluated_step == step else None,
            keep_latest=self.keep_latest,
            reason=reason,
            files=self.attachments,
            timeout_s=timeout_s,
        )
        if started:
            self.saved_step, self.failed = step, False

    def load(self, wanted: Progress) -> Progress | None:
        """Load the newest good checkpoint on every rank; return None if there is no checkpoint.

        Raises NoUsableCheckpoint when none is good, ConfigError for one that cannot be read here or is of a run
        with another configuration than that of `wanted`.
        """
        try:
            found = checkpoints.load(
                self.tensors(), lambda metadata: check_same_run(metadata, wanted)
            )
        except checkpoints.NoUsableCheckpoint as error:
            if not isinstance(error.__cause__, UnknownFormat):
                raise
            raise ConfigError(
                [f"resume: {error}; use the run's image, or another --run-dir"]
            ) from None
        if found is None:
            return None
        if found.metadata["parallelism"] != self.lineage["parallelism"]:
            random_state.seed_all(wanted.seed + 1_000_003 * (found.step + 1) + self.stream)
        self.loaded, self.saved_step = found.metadata, found.step
        return progress_of(found.metadata)

    def conclude(self, step: int, intended_code: int, timeout_s: float) -> int:
        """Wait for the save in flight; return the exit code for all ranks.

        It is `intended_code` if this step is saved; step 0 need not be. A preemption whose save missed its
        deadline still ends with 75 if an older good checkpoint exists; anything else is a failure, also in
        a later call for the same step. Raises StaleAttempt on every rank.
        """
        try:
            checkpoints.wait(timeout_s)
        except OSError as error:
            self.failed = not isinstance(error, SaveUnfinished)
            text = f"checkpoint not written: {folder_name(step)}: {error}"
            print(text, file=sys.stderr, flush=True)
        saved = checkpoints.saved_step()
        late = saved and intended_code == EXIT_PREEMPTED and not self.failed
        return intended_code if saved == step or late else 1


def initial_progress(request: RunRequest, order: Sampler) -> Progress:
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


def check_same_run(metadata: Mapping[str, Any], wanted: Progress) -> None:
    """Raise ConfigError when a checkpoint with this metadata does not match the configuration of `wanted`."""
    found = progress_of(metadata)
    if found is None:
        raise ConfigError(
            [
                "resume: the checkpoint was written by another program, or by an earlier release; use another "
                "--run-dir, or the run's image"
            ]
        )
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
