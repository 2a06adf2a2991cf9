"""A short training with the trainer's own network and parallel code on generated data.

It needs no dataset and writes no checkpoint. Every sample is a sequence of consecutive numbers, which a working
network learns in a few steps.
"""

from __future__ import annotations

import hashlib
import math
import time
from dataclasses import dataclass
from typing import Any, Final

import torch

from trainer.config.settings import TrainerConfig
from trainer.parallel.world import World

STEPS: Final = 40
_SAMPLES: Final = 16
"""Samples per rank and step."""
_SEQUENCE: Final = 32
_VOCABULARY: Final = 257
_LEARNED: Final = 0.8
"""Maximum ratio of the last loss to the first."""

SETTINGS: Final[dict[str, Any]] = {
    "steps": STEPS,
    "model": {"hidden_size": 64, "intermediate_size": 128, "layers": 2, "heads": 2, "kv_heads": 2},
    "data": {"path": "none", "sequence_length": _SEQUENCE},
    "optimizer": {"learning_rate": 0.01},
    "schedule": {"warmup_steps": 0},
}
"""Trainer settings; the batch follows from the number of ranks."""


@dataclass(frozen=True, kw_only=True)
class TrainingResult:
    """Result of the training; equal on all ranks."""

    first_loss: float
    last_loss: float
    """Means over all ranks, in nats per token."""
    tokens_per_s: float
    ranks_agree: bool
    """Whether all ranks hold the same parameters at the end."""

    @property
    def learned(self) -> bool:
        return math.isfinite(self.last_loss) and self.last_loss < _LEARNED * self.first_loss


def trainer_settings(world_size: int) -> dict[str, Any]:
    batch = {"global_samples": _SAMPLES * world_size, "micro_samples": _SAMPLES}
    return {**SETTINGS, "batch": batch}


def train(config: TrainerConfig, world: World) -> TrainingResult:
    """Train STEPS steps; all ranks call it."""
    # Late import: other checks do not load transformers.
    from trainer.optimizer import make_optimizer
    from trainer.parallel import build

    torch.manual_seed(config.seed)
    network = build.build_network(config, world, _VOCABULARY)
    optimizer = make_optimizer(network.unwrapped, config.optimizer)
    network.init_weights()
    losses: list[float] = []
    begun = time.perf_counter()
    for step in range(STEPS):
        parts_M = network.passes.forward_backward(_samples(world, step))
        network.clip(config.optimizer.clip_norm)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(world.sum([float(parts_M.sum().item())])[0] / world.size)
    seconds = time.perf_counter() - begun
    return TrainingResult(
        first_loss=losses[0],
        last_loss=losses[-1],
        tokens_per_s=STEPS * _SAMPLES * _SEQUENCE * world.size / seconds,
        ranks_agree=len(set(_fingerprints(network.unwrapped, world))) == 1,
    )


def _samples(world: World, step: int) -> torch.Tensor:
    """Return this rank's samples, shape [B, S + 1]."""
    first = (step * world.size + world.rank) * _SAMPLES
    starts_B1 = torch.arange(first, first + _SAMPLES).unsqueeze(1) * 7
    rows_BS1 = (starts_B1 + torch.arange(_SEQUENCE + 1)) % _VOCABULARY
    return rows_BS1.to(world.device)


def _fingerprints(model: torch.nn.Module, world: World) -> list[str]:
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().cpu().numpy().tobytes())
    return world.gather(digest.hexdigest())
