"""Passes through a pipeline: this rank runs one stage.

B samples of S + 1 tokens; H is the model's width, V the vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed import ProcessGroup
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from trainer.parallel.passes import cross_entropy
from trainer.parallel.pipeline_stages import Stage


class PipelinePasses:
    def __init__(
        self,
        model: torch.nn.Module,
        stage: Stage,
        group: ProcessGroup,
        *,
        schedule: str,
        micro_batches: int,
        shapes: Shapes,
    ) -> None:
        self._stage = stage
        self._loss_scale: float | None = None
        kinds: dict[str, Any] = {"1f1b": Schedule1F1B, "gpipe": ScheduleGPipe}
        self._training = kinds[schedule](
            shapes.stage(model, stage, group), n_microbatches=micro_batches, loss_fn=self._loss
        )
        # A separate stage: evaluation sends one micro-batch at a time and keeps no activations.
        self._evaluating = ScheduleGPipe(shapes.stage(model, stage, group), n_microbatches=1)

    def forward_backward(
        self, tokens_BS1: torch.Tensor, loss_scale: float | None = None
    ) -> torch.Tensor:
        self._loss_scale = loss_scale
        losses: list[torch.Tensor] = []
        if self._stage.last:
            inputs = (tokens_BS1[:, :-1],) if self._stage.first else ()
            self._training.step(*inputs, target=tokens_BS1, losses=losses, return_outputs=False)
            mean = torch.stack(losses).detach().double().mean(0, keepdim=True)
            return mean if loss_scale is None else mean / loss_scale
        self._training.step(*((tokens_BS1[:, :-1],) if self._stage.first else ()))
        return torch.zeros(1)

    @torch.no_grad()
    def evaluation_loss(self, tokens_BS1: torch.Tensor, wanted: int) -> float:
        inputs = (tokens_BS1[:, :-1],) if self._stage.first else ()
        logits_BSV = self._evaluating.eval(*inputs)
        if not self._stage.last or not wanted:
            return 0.0
        return float(cross_entropy(logits_BSV[:wanted], tokens_BS1[:wanted]))

    def _loss(self, logits_BSV: torch.Tensor, tokens_BS1: torch.Tensor) -> torch.Tensor:
        loss = cross_entropy(logits_BSV, tokens_BS1)
        return loss if self._loss_scale is None else loss * self._loss_scale


class Shapes:
    """Tensor shapes between stages, given explicitly so that torch need not infer them."""

    def __init__(
        self,
        *,
        micro_samples: int,
        sequence_length: int,
        width: int,
        vocabulary: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        def example(*shape: int) -> torch.Tensor:
            return torch.empty(*shape, device="meta", dtype=dtype, requires_grad=True)

        self._device = device
        self._tokens_BS = torch.empty(
            micro_samples, sequence_length, device="meta", dtype=torch.int64
        )
        self._hidden_BSH = example(micro_samples, sequence_length, width)
        self._logits_BSV = example(micro_samples, sequence_length, vocabulary)

    def stage(self, model: torch.nn.Module, stage: Stage, group: ProcessGroup) -> PipelineStage:
        return PipelineStage(
            model,
            stage.number,
            stage.count,
            self._device,
            input_args=self._tokens_BS if stage.first else self._hidden_BSH,
            output_args=self._logits_BSV if stage.last else self._hidden_BSH,
            group=group,
        )
