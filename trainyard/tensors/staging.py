"""One rank's checkpoint files as memory buffers, allocated once and reused.

The first touch of memory costs far more than a copy, so these buffers live as long as the run. A
buffer is the exact content of its file and page-aligned, for O_DIRECT.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from typing import Any, Final

import torch

from trainyard.store.interface import Chunk
from trainyard.tensors.layout import Box
from trainyard.tensors.local_tensors import Groups, LocalTensor, local_data, local_tensor
from trainyard.tensors.plan import PlannedFile, PlannedPiece

_PAGE_BYTES: Final = 4096
_PORTABLE: Final = 1
"""cudaHostRegisterPortable: pinned for all GPUs of the process."""


class Staging:
    """Buffers of all files that this rank writes: one copy of its state."""

    def __init__(
        self,
        files: Sequence[PlannedFile],
        like: Groups,
        device: torch.device,
    ) -> None:
        """Allocate and touch the buffers, in any thread; for a GPU pin them, and use a stream of their own."""
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self._copied = torch.cuda.Event() if self._stream else None  # type: ignore[no-untyped-call]
        self.files = dict(_buffers(files, allocate(files)))
        if self._stream:
            with torch.cuda.device(device):
                _pin(self, list(self.files.values()))
        self._parts: list[tuple[str, str, tuple[slice, ...] | None]] = []
        self._targets: list[torch.Tensor] = []
        for file in files:
            for piece in file.pieces:
                source = local_tensor(like[file.group][piece.name])
                own = source.share.box
                cut = None if piece.box == own else piece.box.slices_in(own)
                self._parts.append((file.group, piece.name, cut))
                self._targets.append(self._view(file, piece, source))

    @property
    def bytes(self) -> int:
        return sum(buffer.numel() for buffer in self.files.values())

    def stage(self, groups: Groups) -> None:
        """Copy the tensors in: the only part of a save that a training step waits for.

        On a GPU this only starts the copy; `before_change` orders later writes to the tensors after
        it, and `wait` blocks until it is done.
        """
        if self._stream is None:
            self._copy(groups)
            return
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            self._copy(groups)
        assert self._copied is not None
        self._copied.record(self._stream)

    def before_change(self) -> None:
        """Order GPU work queued from now on after the copy; does not block."""
        if self._copied is not None:
            torch.cuda.current_stream().wait_event(self._copied)

    def wait(self) -> None:
        if self._copied is not None:
            self._copied.synchronize()

    def chunks(self, name: str) -> list[Chunk]:
        """Return a file's content without a copy; valid until the next `stage`."""
        raw: Any = self.files[name].numpy()
        return [memoryview(raw)]

    def _view(self, file: PlannedFile, piece: PlannedPiece, like: LocalTensor) -> torch.Tensor:
        raw = self.files[file.name][piece.begin : piece.begin + piece.bytes]
        return raw.view(like.local.dtype).view(piece.box.shape)

    @torch.no_grad()
    def _copy(self, groups: Groups) -> None:
        sources = []
        for group, name, cut in self._parts:
            local = local_data(groups[group][name])
            sources.append(local if cut is None else local[cut])
        # One call: for small tensors, calls cost more than copies.
        if sources:
            torch._foreach_copy_(self._targets, sources, non_blocking=True)


def part_of(source: LocalTensor, box: Box) -> torch.Tensor:
    """Return the elements of a box that this rank holds."""
    return (
        source.local if box == source.share.box else source.local[box.slices_in(source.share.box)]
    )


def allocate(files: Sequence[PlannedFile]) -> torch.Tensor:
    """Return touched memory for the buffers of these files; in any thread."""
    room = sum(file.bytes + _PAGE_BYTES for file in files) + _PAGE_BYTES
    return torch.zeros(room, dtype=torch.uint8)


def _pin(owner: Staging, buffers: Sequence[torch.Tensor]) -> None:
    """Pin the pages of each buffer for copies from the current GPU, as long as `owner` lives.

    Not by torch's allocator, which takes a power of two: up to twice the state. Buffer by buffer, since a copy
    must not cross two pinned ranges, and one call for all would hold up the GPU for long.
    """
    cuda: Any = torch.cuda
    driver = cuda.cudart()
    for buffer in buffers:
        size = buffer.numel() + -buffer.numel() % _PAGE_BYTES
        cuda.check_error(driver.cudaHostRegister(buffer.data_ptr(), size, _PORTABLE))
        freed = weakref.finalize(owner, driver.cudaHostUnregister, buffer.data_ptr())
        freed.atexit = False


def _buffers(
    files: Sequence[PlannedFile], memory: torch.Tensor
) -> Iterator[tuple[str, torch.Tensor]]:
    """Cut one page-aligned buffer per file out of the memory, with the file's header."""
    begin = -memory.data_ptr() % _PAGE_BYTES
    for file in files:
        buffer = memory[begin : begin + file.bytes]
        buffer[: len(file.header)] = torch.frombuffer(bytearray(file.header), dtype=torch.uint8)
        yield file.name, buffer
        begin += file.bytes + -file.bytes % _PAGE_BYTES
