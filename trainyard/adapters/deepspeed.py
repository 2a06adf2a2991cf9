"""Checkpoints of a DeepSpeed engine, ZeRO stages 0 to 3.

    engine, _, _, _ = deepspeed.initialize(...)
    checkpointer = Checkpointer(engine, every=100)
    step = checkpointer.resume()
    while step < steps:
        ...                                   # forward, backward, engine.step()
        step += 1
        checkpointer.finish_step(step, last=step == steps)

Exact: parameters, optimizer shards, the engine's scheduler, loss scale and counters, random generators per rank.
Not exact: the position in the data is not saved: choose batches by `step`. With gradient accumulation call
`finish_step` after the micro batch that ends a step, since accumulated gradients are not saved. ZeRO's optimizer
shards belong to one number of ranks: another number cannot resume without converting them to a universal
checkpoint. The framework reads its files with pickle: resume only from the checkpoint folder of the run.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Final

from deepspeed import DeepSpeedEngine

import trainyard
from trainyard.adapters import agreement
from trainyard.tensors import random_state

_TAG: Final = "engine"


class Checkpointer:
    """Saves an engine every `every` optimizer steps, and on a notice."""

    def __init__(self, engine: DeepSpeedEngine, *, every: int) -> None:
        self._engine = engine
        self._every = every

    def resume(self) -> int:
        """Restore the newest checkpoint; return its step, 0 without one. A collective call.

        Raises:
            RuntimeError: the checkpoint is none of this engine.
        """
        found = trainyard.checkpoints.latest()
        if found is None:
            return 0
        loaded, _ = self._engine.load_checkpoint(str(found.path), tag=_TAG)
        if loaded is None:
            raise RuntimeError(f"{found.path}: DeepSpeed found no checkpoint of this engine in it")
        random_state.load(found.path)
        return found.step

    def finish_step(self, step: int, *, last: bool = False) -> None:
        """Save if due; after a notice save and end with 75. A collective call after each step."""
        save = functools.partial(agreement.save, write=self._write)
        agreement.finish_step(step, save, every=self._every, last=last)

    def _write(self, folder: Path) -> None:
        self._engine.save_checkpoint(str(folder), tag=_TAG, save_latest=False)
        random_state.save(folder)
