"""Loss on held-out files, the same windows every time, split over the ranks."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from training.prepare.dataset import Index
from training.trainer import model as model_module
from training.trainer.data import Int64s, TokenWindows, spread, unigram_loss
from training.trainer.interruption import Notice
from training.trainer.parallel import World, bare


@dataclass(frozen=True, kw_only=True)
class Evaluator:
    """The evaluation set and its baseline."""

    windows: TokenWindows
    chosen: Int64s
    unigram_loss: float
    """Nats per token of a model that knows only token frequencies, on the same targets."""
    micro_samples: int

    @classmethod
    def over(
        cls, windows: TokenWindows, index: Index, samples: int, micro_samples: int
    ) -> Evaluator:
        """At most `samples` windows, spread evenly."""
        chosen = spread(windows, samples)
        baseline = unigram_loss(index, windows.gather(chosen)[:, 1:])
        return cls(
            windows=windows, chosen=chosen, unigram_loss=baseline, micro_samples=micro_samples
        )

    @torch.no_grad()
    def loss(self, model: torch.nn.Module, world: World, notice: Notice) -> float | None:
        """Mean loss, nats per token; None when the ranks agreed to stop because of a notice."""
        share = world.share_of(len(self.chosen))
        most = -(-len(self.chosen) // world.data_size)
        total = 0.0
        model.eval()
        try:
            for first in range(0, most, self.micro_samples):
                wanted = self.chosen[share.start : share.stop][first : first + self.micro_samples]
                if len(wanted):
                    tokens_BS1 = to_device(self.windows.gather(wanted), world.device)
                    loss = model_module.mean_loss(bare(model), tokens_BS1)
                    total += loss.double().item() * len(wanted)
                if world.sum([float(notice.given())])[0]:
                    return None
        finally:
            model.train()
        return world.sum([total * world.counts])[0] / len(self.chosen)


def to_device(rows: object, device: torch.device) -> torch.Tensor:
    """Token rows as int64 on a device."""
    return torch.as_tensor(rows).to(torch.int64).to(device, non_blocking=True)
