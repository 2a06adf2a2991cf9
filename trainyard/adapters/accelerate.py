"""Checkpoints of an Accelerate program: DDP and FSDP2 in the background, FSDP1, DeepSpeed and several models by
`Accelerator.save_state`.

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
`register_for_checkpointing` (in the background: with a state of tensors, numbers and text), random generators of
each rank. Not exact: the position in the data is not restored. Skip to it as above; a shuffled order is the same
with `use_seedable_sampler`, and give the loader a `generator`, since otherwise each iterator takes a number from
the restored one. DDP and FSDP2 can be resumed by another number of ranks and the other of the two; random
generators then keep the state they had at start. By `save_state` the framework reads some of its files with
pickle: resume only from the checkpoint folder of the run.
"""

from __future__ import annotations

import functools
from pathlib import Path

from accelerate import Accelerator, DistributedType

import trainyard
from trainyard.adapters import agreement, dcp
from trainyard.tensors import random_state

_PLAIN = (DistributedType.NO, DistributedType.MULTI_CPU, DistributedType.MULTI_GPU)


class Checkpointer:
    """Saves an Accelerator's state every `every` optimizer steps, and on a notice."""

    def __init__(self, accelerator: Accelerator, *, every: int) -> None:
        self._accelerator = accelerator
        self._every = every

    @functools.cached_property
    def _background(self) -> dcp.Checkpointer | None:
        """What saves the state in the background; None where only the framework can."""
        accelerator = self._accelerator
        plain = accelerator.distributed_type in _PLAIN or accelerator.is_fsdp2
        if not plain or len(accelerator._models) != 1:
            return None
        objects = [*accelerator._schedulers, *accelerator._custom_objects]
        others = {f"object-{number}": one for number, one in enumerate(objects)}
        if accelerator.scaler is not None:
            others["scaler"] = accelerator.scaler
        optimizers = [one.optimizer for one in accelerator._optimizers]
        return dcp.Checkpointer(accelerator._models[0], optimizers, every=self._every, **others)

    def resume(self) -> int:
        """Restore the newest checkpoint; return its step, 0 without one. A collective call."""
        if self._background:
            return self._background.resume()
        found = trainyard.checkpoints.latest()
        if found is None:
            return 0
        self._accelerator.load_state(str(found.path))
        # Accelerate's own copy is skipped without an error when it cannot be read.
        random_state.load(found.path)
        return found.step

    def finish_step(self, step: int, *, last: bool = False) -> None:
        """Save if due; after a notice save and end with 75. A collective call after each step."""
        if self._background:
            return self._background.finish_step(step, last=last)
        save = functools.partial(agreement.save, write=self._write)
        return agreement.finish_step(step, save, every=self._every, last=last)

    def _write(self, folder: Path) -> None:
        self._accelerator.save_state(str(folder))
        random_state.save(folder)
