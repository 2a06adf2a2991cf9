"""Loss on a fixed set of held-out windows, split over the ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from trainer.data.windows import Int64s, TokenWindows
from trainer.parallel.build import Network
from trainer.parallel.world import World
from trainyard.notice import Notice


@dataclass(frozen=True, kw_only=True)
class Evaluator:
    windows: TokenWindows
    chosen: Int64s
    unigram_loss: float
    """Nats per token of a model that knows only token frequencies, on the same targets."""
    micro_samples: int

    @torch.no_grad()
    def loss(
        self, network: Network, world: World, notice: Notice, progress: Callable[[], object]
    ) -> float | None:
        """Return the mean loss in nats per token; None when a notice ended the evaluation.

        Ranks that share a model run the same number of passes, even with no sample left. `progress` is
        called before each of them.
        """
        share = world.data_share(len(self.chosen))
        most = -(-len(self.chosen) // world.data_size)
        total = 0.0
        network.module.eval()
        try:
            for first in range(0, most, self.micro_samples):
                progress()
                wanted = self.chosen[share.start : share.stop][first : first + self.micro_samples]
                filled = np.resize(wanted if len(wanted) else self.chosen, self.micro_samples)
                tokens_BS1 = to_device(self.windows.gather(filled), world.device)
                total += network.passes.evaluation_loss(tokens_BS1, len(wanted)) * len(wanted)
                if world.sum([float(notice.is_set())])[0]:
                    return None
        finally:
            network.module.train()
            network.reshard()
        return world.sum([total * world.counts])[0] / len(self.chosen)


def to_device(rows: object, device: torch.device) -> torch.Tensor:
    """Copy token rows to a device as int64."""
    return torch.as_tensor(rows).to(device, torch.int64, non_blocking=True)
