"""Checkpoints of the Lightning Trainer.

    callback = NoticeCallback(every=100)
    trainer = Trainer(..., callbacks=[callback], enable_checkpointing=False)
    trainer.fit(model, data, ckpt_path=callback.latest())

Exact: parameters, optimizers, schedulers, callbacks, loops, and random generators per rank. Not exact: a resume in
the middle of an epoch continues with the right batch only if loader and sampler have a state, as torchdata's
StatefulDataLoader and StatefulDistributedSampler (with `use_distributed_sampler=False`, or Lightning wraps the
sampler); `loss` in metrics is the value that `training_step` returned on the leading rank. The framework reads its
file with torch.load: resume only from the checkpoint folder of the run.
"""

from __future__ import annotations

import functools
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from lightning.pytorch import Callback, LightningModule, Trainer

import trainyard
from trainyard.adapters import agreement
from trainyard.tensors import random_state

_FILE: Final = "lightning.ckpt"


class NoticeCallback(Callback):  # type: ignore[misc]
    """Saves every `every` optimizer steps; after a notice saves and ends with exit code 75."""

    def __init__(self, *, every: int) -> None:
        self._every = every
        self._finished_step = 0
        trainyard.notice.requested()  # listens from now on
        self._handler = signal.getsignal(signal.SIGTERM)

    def latest(self) -> str | None:
        """Return the file for `ckpt_path`; None starts from the beginning."""
        found = trainyard.checkpoints.latest()
        return str(found.path / _FILE) if found else None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Restore random states; handle SIGTERM again, which the Trainer has taken over.

        The Trainer's own handler communicates within the handler and ends without saving.
        """
        signal.signal(signal.SIGTERM, self._handler)
        self._finished_step = trainer.global_step
        if trainer.ckpt_path:
            random_state.load(Path(trainer.ckpt_path).parent)

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: torch.Tensor | Mapping[str, Any] | None,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Report and save after each optimizer step; batches that only accumulate are skipped."""
        step = trainer.global_step
        if step == self._finished_step:
            return
        self._finished_step = step
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
        if loss is not None:
            trainyard.log(step=step, loss=loss)

        def write(folder: Path) -> None:
            trainer.save_checkpoint(folder / _FILE)
            random_state.save(folder)

        save = functools.partial(agreement.save, write=write)
        agreement.finish_step(step, save, every=self._every, last=step == trainer.max_steps)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Say that training is done, also where it ends by epochs or stops early."""
        trainyard.finished()

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Leave out the loaders' positions after the last batch of an epoch.

        The Trainer starts the next epoch then, and would find no batch left for it.
        """
        if trainer.fit_loop.epoch_loop.batch_progress.is_last_batch:
            checkpoint["loops"]["fit_loop"]["state_dict"].pop("combined_loader", None)
