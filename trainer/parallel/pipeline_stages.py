"""Split a model into pipeline stages.

A stage is the whole model with the other stages' modules removed, so that parameters keep their
names. B samples of S tokens, H the width, V the vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Stage:
    number: int
    """0 reads tokens."""
    count: int

    @property
    def first(self) -> bool:
        """Whether it holds the embedding."""
        return self.number == 0

    @property
    def last(self) -> bool:
        """Whether it holds the output matrix, and computes the loss."""
        return self.number == self.count - 1

    def blocks(self, layers: int) -> range:
        """Return the numbers of its blocks; the first stages have one more if they do not divide."""
        most, rest = divmod(layers, self.count)
        begin = self.number * most + min(self.number, rest)
        return range(begin, begin + most + (self.number < rest))


def keep_stage(model: Any, stage: Stage) -> None:
    """Remove the other stages' modules from a Llama-like model and adapt its forward pass.

    It takes tokens [B, S] on the first stage, else hidden states [B, S, H]; it returns logits
    [B, S, V] on the last stage, else hidden states.
    """
    inner = model.model
    mine = stage.blocks(len(inner.layers))
    for number in range(len(inner.layers)):
        if number not in mine:
            inner.layers[number] = _OtherStage()
    if not stage.first:
        inner.embed_tokens = None
    if not stage.last:
        inner.norm = _OtherStage()
        model.lm_head = None

    def forward(given: torch.Tensor) -> torch.Tensor:
        name = "input_ids" if stage.first else "inputs_embeds"
        found = inner(**{name: given})
        hidden_BSH = found if isinstance(found, torch.Tensor) else found.last_hidden_state
        result: torch.Tensor = model.lm_head(hidden_BSH) if stage.last else hidden_BSH
        return result

    model.forward = forward


class _OtherStage(torch.nn.Module):
    """Identity in place of a module of another stage."""

    def forward(self, hidden_BSH: torch.Tensor, **_: Any) -> torch.Tensor:
        return hidden_BSH
