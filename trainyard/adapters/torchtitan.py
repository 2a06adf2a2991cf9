"""A checkpoint manager for torchtitan that publishes checkpoints of the run and stops on a notice.

    config.checkpoint = NoticeCheckpointManager.Config(enable=True, interval=100)

It takes the place of torchtitan's `CheckpointManager` and writes the same files (DCP) into the run's checkpoint
folder; `folder`, `keep_latest_k` and `async_mode` have no effect: saves are synchronous, and the run keeps three.

Exact: what torchtitan saves (parameters, optimizers, schedulers, its train state, and the data loader's position
per data rank). Not exact: random generators are restored per rank, but torchtitan's Trainer then takes one number
for its iterator of data, which only a model with dropout notices; another number of data ranks cannot resume,
since torchtitan cannot divide the positions anew; `load_step` has no effect once the run has a checkpoint. The
last checkpoint has the whole state, whatever `last_save_model_only` says. The framework reads its index and the
state of the loader with pickle: resume only from the checkpoint folder of the run.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.distributed.checkpoint.state_dict_saver import save as save_sharded
from torchtitan.components.checkpointer import CheckpointManager

import trainyard
from trainyard.adapters import agreement
from trainyard.tensors import random_state


class NoticeCheckpointManager(CheckpointManager):  # type: ignore[misc]
    """Saves every `interval` steps; after a notice saves and ends with exit code 75."""

    @dataclass(kw_only=True, slots=True)
    class Config(CheckpointManager.Config):  # type: ignore[misc]
        """torchtitan's settings of checkpoints."""

    def _save(self, curr_step: int, last_step: bool = False) -> bool:
        due = self._should_save(curr_step, last_step)
        save = functools.partial(agreement.save, write=self._write)
        agreement.finish_step(curr_step, save, every=int(due), last=last_step)
        return bool(due)

    @torch.no_grad()
    def _load(self, step: int = -1) -> bool:
        found = trainyard.checkpoints.latest()
        if found is None:
            return bool(super()._load(step))
        state = self._states_to_load(model_only=False)
        self.dcp_load(state, str(found.path), from_hf=False, from_quantized=False)
        random_state.load(found.path)
        return True

    @torch.no_grad()
    def _write(self, folder: Path) -> None:
        save_sharded(self._flattened_model_states_sd(), checkpoint_id=str(folder))
        random_state.save(folder)
