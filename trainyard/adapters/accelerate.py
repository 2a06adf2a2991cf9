"""Checkpoints of an Accelerate program (DDP, FSDP2, DeepSpeed) by `Accelerator.save_state`.

    checkpointer = Checkpointer(accelerator, every=100)
    step = checkpointer.resume()              # after `accelerator.prepare`
    while step < steps:
        epoch, done = divmod(step, len(loader))
        loader.set_epoch(epoch)
        for batch in accelerator.skip_first_batches(loader, done):
            ...
            step += 1
            checkpointer.finish_step(step, last=step == steps)

Exact: parameters, optimizers, schedulers and scalers given to `prepare`, objects registered with
`register_for_checkpointing`, random generators per rank. Not exact: the position in the data is not restored.
Skip to it as above; a shuffled order is the same again with `use_seedable_sampler`, and give the loader a
`generator`, since otherwise each iterator takes a number from the restored one. With FSDP the sharded state dicts
(`SHARDED_STATE_DICT`) can be read by another number of ranks, whose random generators keep the state they had at
start. The framework reads some of its files with pickle: resume only from the checkpoint folder of the run.
"""

from __future__ import annotations

import functools
from pathlib import Path

from accelerate import Accelerator

import trainyard
from trainyard.adapters import agreement
from trainyard.tensors import random_state


class Checkpointer:
    """Saves an Accelerator's state every `every` optimizer steps, and on a notice."""

    def __init__(self, accelerator: Accelerator, *, every: int) -> None:
        self._accelerator = accelerator
        self._every = every

    def resume(self) -> int:
        """Restore the newest checkpoint; return its step, 0 without one. A collective call."""
        found = trainyard.checkpoints.latest()
        if found is None:
            return 0
        self._accelerator.load_state(str(found.path))
        # Accelerate's own copy is skipped without an error when it cannot be read.
        random_state.load(found.path)
        return found.step

    def finish_step(self, step: int, *, last: bool = False) -> None:
        """Save if due; after a notice save and end with 75. A collective call after each step."""
        save = functools.partial(agreement.save, write=self._write)
        agreement.finish_step(step, save, every=self._every, last=last)

    def _write(self, folder: Path) -> None:
        self._accelerator.save_state(str(folder))
        random_state.save(folder)
