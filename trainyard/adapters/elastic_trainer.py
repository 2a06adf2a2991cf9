"""A Hugging Face Trainer of an elastic run: use `ElasticTrainer` in place of `Trainer`.

    trainer = ElasticTrainer(model=model, args=arguments, train_dataset=dataset)   # arguments: max_steps=400
    trainer.train()

Exact: parameters, optimizer, schedule, dropout. `per_device_train_batch_size` is the batch of one logical worker,
and `args.seed` gives the order of the samples. The dataset must have a length and be read by index; samplers and
the normalisation of a loss by the tokens of a whole step are not used. Checkpoints are the library's, every
`save_steps`; the leading group reports each step. Callbacks that save or report, such as
`hf_trainer.NoticeCallback`, are not for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import torch
from transformers import Trainer, TrainingArguments

import trainyard
from trainyard import elastic


class ElasticTrainer(Trainer):  # type: ignore[misc]
    """Takes part, as one group, in the run whose folder this process is given. Requires `max_steps`."""

    workers = 8
    """Logical workers of a step, a power of two."""
    run: elastic.Run
    loss = math.nan
    """Mean over all workers in the last step."""
    _steps: Iterator[elastic.Step] | None = None

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """Train up to `max_steps`. Raises ValueError for what groups cannot have."""
        if problems := list(refusals(self.args, self.train_dataset)):
            raise ValueError("\n".join(problems))
        result = super().train(*args, **kwargs)
        if self._steps is not None:
            next(self._steps, None)  # what follows the last step, such as its checkpoint
        return result

    def training_step(self, model: torch.nn.Module, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Compute the gradients of the next whole step; a step in which a group is lost is taken again."""
        if self._steps is None:
            self._steps = self._join().steps(self.args.max_steps)
        for step in self._steps:
            with step:
                for worker in step.workers():
                    inputs = self._batch(step.number, worker)
                    step.add(super().training_step(model, inputs))
                self.loss = step.reduce()
                self.state.global_step = step.number - 1
                if self.run.leads:
                    rate = self.lr_scheduler.get_last_lr()[0] if self.lr_scheduler else None
                    trainyard.log(step=step.number, loss=self.loss, lr=rate)
                return torch.tensor(self.loss)
        raise RuntimeError("the run has no more steps")

    def _join(self) -> elastic.Run:
        assert self.optimizer is not None
        self.run = elastic.join(
            self.model,
            self.optimizer,
            schedule=self.lr_scheduler,
            workers=self.workers,
            seed=self.args.seed,
            save_every=int(self.args.save_steps) if self.args.save_strategy != "no" else 0,
        )
        return self.run

    def _batch(self, step: int, worker: int) -> Any:
        size, length = self.args.per_device_train_batch_size, len(self.train_dataset)
        first = ((step - 1) * self.workers + worker) * size
        places = (divmod(i, length) for i in range(first, first + size))
        rows = [_order(self.args.seed, epoch, length)[place] for epoch, place in places]
        return self.data_collator([self.train_dataset[row] for row in rows])

    def _save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: the run saves."""


def refusals(args: TrainingArguments, dataset: object) -> Iterator[str]:
    """Yield a line for each setting that has no meaning, or another one, in groups."""
    if args.max_steps <= 0:
        yield "max_steps: must be set; an elastic run counts steps, not epochs"
    if args.gradient_accumulation_steps != 1:
        yield "gradient_accumulation_steps: must be 1; a step has `workers` passes; set ElasticTrainer.workers"
    if args.fp16:
        yield "fp16: the scale of the loss is not exchanged between groups; valid are float32 and bf16; use bf16"
    if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        kind = type(dataset).__name__
        yield f"train_dataset: {kind} has no length or no index; must have both; use a map-style dataset"


@lru_cache(maxsize=2)
def _order(seed: int, epoch: int, length: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed + epoch)
    order: list[int] = torch.randperm(length, generator=generator).tolist()
    return order
