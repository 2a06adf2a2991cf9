"""Tensors as safetensors, through staging memory that is allocated once and reused.

The first touch of fresh memory costs far more than a copy, so the buffer of a file lives as long as
the run: staging is one copy into warm memory, and the buffer is the file's data section as it is.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError

from training.checkpoint.manifest import CorruptCheckpoint
from training.checkpoint.store import Chunk

_ALIGNMENT = 64
_DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


class StagedFile:
    """One safetensors file's worth of host memory, shaped like the tensors it was made for."""

    def __init__(self, like: Mapping[str, torch.Tensor], *, pinned: bool = False) -> None:
        header: dict[str, object] = {}
        ends = 0
        # Wide types first: then every tensor of a file is aligned to its own element size.
        for name in sorted(like, key=lambda key: (-like[key].element_size(), key)):
            tensor = like[name]
            begin, ends = ends, ends + tensor.numel() * tensor.element_size()
            header[name] = {
                "dtype": _DTYPES[tensor.dtype],
                "shape": list(tensor.shape),
                "data_offsets": [begin, ends],
            }
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-(len(text) + 8) % _ALIGNMENT)
        self._header = struct.pack("<Q", len(text)) + text
        self._buffer = torch.zeros(ends, dtype=torch.uint8, pin_memory=pinned)
        self._views = {name: self._view(header[name], like[name]) for name in header}

    @property
    def bytes(self) -> int:
        """Size of the file."""
        return len(self._header) + self._buffer.numel()

    def stage(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Copy the tensors in: the only part of a save that a training step waits for."""
        if tensors.keys() != self._views.keys():
            raise ValueError(f"tensors changed: {sorted(tensors.keys() ^ self._views.keys())}")
        for name, tensor in tensors.items():
            self._views[name].copy_(tensor.detach(), non_blocking=True)
        if self._buffer.is_pinned():
            torch.cuda.current_stream().synchronize()

    def chunks(self) -> list[Chunk]:
        """The file's content, without a copy; valid until the next `stage`."""
        raw: Any = self._buffer.numpy()
        return [self._header, memoryview(raw)]

    def _view(self, entry: object, like: torch.Tensor) -> torch.Tensor:
        assert isinstance(entry, dict)
        begin, end = entry["data_offsets"]
        return self._buffer[begin:end].view(like.dtype).view(like.shape)


def parse(name: str, content: bytes) -> dict[str, torch.Tensor]:
    """The tensors of a safetensors file. Raises CorruptCheckpoint; runs no code of the file."""
    try:
        return safetensors.torch.load(content)
    except (SafetensorError, ValueError, KeyError) as error:
        raise CorruptCheckpoint(f"{name}: not safetensors: {error}") from None
