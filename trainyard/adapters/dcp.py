"""Checkpoints of a plain PyTorch program (DDP, FSDP2, tensor parallel): model, optimizer and more, by one object.

    checkpointer = dcp.Checkpointer(model, optimizer, every=100, scheduler=scheduler)
    step = checkpointer.resume()
    while step < steps:
        ...                                   # one optimizer step; batches chosen by `step`
        step += 1
        checkpointer.finish_step(step, last=step == steps)

Exact: parameters, buffers, optimizer, schedulers and other objects with a state of numbers and tensors, and the
random generators of each rank. Not exact: the position in the data is not saved: choose batches by `step`, or
pass a loader with a `state_dict` that is the same on all ranks. After a change of the world size tensors are
resharded, but random generators keep the state they had at start.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

import trainyard
from trainyard.adapters import agreement


class Stateful(Protocol):
    """An object with a state, such as a learning rate scheduler."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> object: ...


class Checkpointer:
    """Saves a model, its optimizer and further objects every `every` steps, and on a notice."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer],
        *,
        every: int,
        **others: Stateful,
    ) -> None:
        self._model = model
        self._optimizer = optimizer
        self._every = every
        self._others = others

    def resume(self) -> int:
        """Restore the newest checkpoint; return its step, 0 without one. A collective call."""
        found = trainyard.checkpoints.load(self._state())
        if found is None:
            return 0
        set_state_dict(
            self._model,
            self._optimizer,
            model_state_dict=found.state["model"],
            optim_state_dict=found.state["optimizer"],
        )
        for name, other in self._others.items():
            other.load_state_dict(found.state[name])
        return found.step

    def finish_step(self, step: int, *, last: bool = False) -> None:
        """Save if due; after a notice save and end with 75. A collective call after each step."""
        agreement.finish_step(step, self.save, every=self._every, last=last)

    def save(self, step: int) -> None:
        """Save now, in the background. A collective call."""
        trainyard.checkpoints.save_async(self._state(), step)

    def _state(self) -> dict[str, Any]:
        model, optimizer = get_state_dict(self._model, self._optimizer)
        others = {name: other.state_dict() for name, other in self._others.items()}
        return {"model": model, "optimizer": optimizer, **others}
