"""Contents of a checkpoint; saving and loading both follow this list.

| file | what |
|---|---|
| model*.safetensors | every parameter and persistent buffer, by its name in the whole model |
| optimizer*.safetensors | the optimizer's state of every parameter, `PARAMETER/PART` |
| random-00000.json ... | one per rank: random generators of Python, numpy, torch, CUDA |
| state.json, layout.json | which tensors there are, and which box of each is where in which file |
| config.json, tokenizer.json ... | the model's configuration and the tokenizer, as transformers reads them |
| manifest.json | sizes, hashes, metadata: `Progress`, configuration, data, parallelism |

There is no scheduler state: the learning rate is a function of the step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch

from trainyard.tensors.local_tensors import Groups

MODEL: Final = "model"
OPTIMIZER: Final = "optimizer"


@dataclass(frozen=True, kw_only=True)
class Progress:
    """State of a run besides its tensors."""

    step: int
    """Optimizer steps completed."""
    samples: int
    """Samples used over all ranks: the whole state of the data order, with seed and windows."""
    windows: int
    """Samples per epoch; a different number means different data."""
    seed: int
    evaluated_step: int
    """The last step that was evaluated; 0 for none."""
    evaluation_loss: float | None
    """Its loss, nats per token."""
    dataset_version: str
    model: dict[str, Any]
    """The model's configuration."""
    tokens: dict[str, Any]
    """Token format of the dataset."""
    loss_scale: float | None = None
    """Of the next step, with float16; None: the first one, or none."""
    steps_at_scale: int = 0
    """Steps without an overflow since the loss scale changed."""


def progress_of(metadata: Mapping[str, Any]) -> Progress | None:
    """Return the progress in a checkpoint's metadata; None if another program has written it."""
    try:
        return Progress(**metadata["progress"])
    except (KeyError, TypeError):
        return None


def tensors(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Groups:
    return {MODEL: model_tensors(model), OPTIMIZER: optimizer_tensors(model, optimizer)}


def model_tensors(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return parameters and persistent buffers; tied ones once, by their first name."""
    again: set[str] = set()
    for named in (model.named_parameters, model.named_buffers):
        names = [name for name, _ in named(remove_duplicate=False)]
        again |= set(names) - {name for name, _ in named()}
    return {name: tensor for name, tensor in model.state_dict().items() if name not in again}


def optimizer_tensors(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer
) -> dict[str, torch.Tensor]:
    return {
        f"{name}/{part}": tensor
        for name, parameter in model.named_parameters()
        for part, tensor in optimizer.state[parameter].items()
    }
