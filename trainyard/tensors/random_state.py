"""States of a rank's random generators as one JSON file per rank: torch (CPU, CUDA), Python, NumPy.

Nothing is pickled. Generators that a program creates itself are the program's to save.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import torch
import torch.distributed as dist


def save(folder: Path) -> None:
    """Write this rank's states to `random-RANK.json`."""
    rank = dist.get_rank() if dist.is_available() and dist.is_initialized() else 0
    (folder / file_name(rank)).write_bytes(capture())


def load(folder: Path) -> bool:
    """Restore this rank's states; False if the checkpoint has none, as after a change of the world size."""
    rank = dist.get_rank() if dist.is_available() and dist.is_initialized() else 0
    file = folder / file_name(rank)
    if not file.exists():
        return False
    restore(file.read_bytes())
    return True


def file_name(rank: int) -> str:
    """Return `random-RANK.json`."""
    return f"random-{rank:05d}.json"


def capture() -> bytes:
    """Return the states of this process as JSON."""
    version, words, gauss = random.getstate()
    states: dict[str, object] = {
        "torch": _hex(torch.get_rng_state()),
        "cuda": _hex(torch.cuda.get_rng_state()) if torch.cuda.is_available() else None,
        "python": [version, list(words), gauss],
    }
    if numpy := sys.modules.get("numpy"):
        name, keys, position, has_gauss, cached = numpy.random.get_state()
        states["numpy"] = [name, keys.tolist(), position, has_gauss, cached]
    return json.dumps(states).encode()


def restore(content: bytes) -> None:
    states = json.loads(content)
    torch.set_rng_state(_tensor(states["torch"]))
    if states["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state(_tensor(states["cuda"]))
    version, words, gauss = states["python"]
    random.setstate((version, tuple(words), gauss))
    if "numpy" in states:
        import numpy

        numpy.random.set_state(states["numpy"])


def seed_all(seed: int) -> None:
    random.seed(seed)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def _hex(state: torch.Tensor) -> str:
    return bytes(state.numpy()).hex()


def _tensor(state: str) -> torch.Tensor:
    return torch.tensor(list(bytes.fromhex(state)), dtype=torch.uint8)
