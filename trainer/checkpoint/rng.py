"""Random states of a process as tensors, to be stored without pickle."""

from __future__ import annotations

import math
import random

import numpy as np
import torch

from trainyard.store.manifest import CorruptCheckpoint


def capture() -> dict[str, torch.Tensor]:
    """Return the states of Python, numpy, torch on the CPU and on this rank's GPU, if any."""
    version, words, gauss = random.getstate()
    kind, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    if kind != "MT19937":
        raise RuntimeError(f"numpy's global generator is {kind}; only MT19937 can be saved")
    states = {
        "python": torch.tensor([version, *words], dtype=torch.int64),
        "python_gauss": torch.tensor([math.nan if gauss is None else gauss], dtype=torch.float64),
        "numpy": torch.from_numpy(np.asarray(keys, dtype=np.int64)),
        "numpy_position": torch.tensor([position, has_gauss], dtype=torch.int64),
        "numpy_gauss": torch.tensor([cached], dtype=torch.float64),
        "torch_cpu": torch.get_rng_state(),
    }
    if torch.cuda.is_available():
        states["torch_cuda"] = torch.cuda.get_rng_state()
    return states


def restore(states: dict[str, torch.Tensor]) -> None:
    """Restore captured states. Raises CorruptCheckpoint for invalid ones."""
    try:
        version, *words = states["python"].tolist()
        gauss = states["python_gauss"].item()
        random.setstate((version, tuple(words), None if math.isnan(gauss) else gauss))
        position, has_gauss = states["numpy_position"].tolist()
        keys = states["numpy"].numpy().astype(np.uint32)
        cached = states["numpy_gauss"].item()
        np.random.set_state(("MT19937", keys, position, has_gauss, cached))
        torch.set_rng_state(states["torch_cpu"])
        if torch.cuda.is_available() and "torch_cuda" in states:
            torch.cuda.set_rng_state(states["torch_cuda"])
    except (KeyError, ValueError, TypeError, RuntimeError) as error:
        raise CorruptCheckpoint(f"random states are unusable: {error}") from None


def seed_all(seed: int) -> None:
    """Seed every generator of this process."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
