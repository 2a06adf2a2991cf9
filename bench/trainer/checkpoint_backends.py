"""Every way of saving and loading state that is measured."""

from __future__ import annotations

import ctypes
import functools
import mmap
import multiprocessing
import os
import shutil
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, Protocol

import torch
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

from bench.trainer import SAVE_INTERVAL_S
from bench.trainer.state import State
from training.checkpoint.contents import Progress
from training.trainer.checkpointing import Checkpointer
from training.trainer.parallel.world import World
from trainyard.contract import CHECKPOINTS_DIR
from trainyard.run_logs import EventLog
from trainyard.store.factory import claim_attempt, open_store
from trainyard.store.manifest import Content, Manifest
from trainyard.tensors.writer import NICENESS

_BLOCK: Final = 8 * 1024 * 1024
_READ_BLOCK: Final = 2 * 1024 * 1024
_TIMEOUT_S: Final = 600.0


@dataclass(frozen=True, kw_only=True)
class Pending:
    """The part of a save that training need not wait for."""

    done: Callable[[], bool] = lambda: True
    wait: Callable[[], object] = lambda: None


class CheckpointBackend(Protocol):
    """One way to keep state on disk."""

    def begin(self) -> Pending:
        """Begin a save; returns when training may go on."""

    def load(self) -> None:
        """Load what was saved last into the state's own tensors."""

    def bytes(self) -> int:
        """On disk, of what was saved last."""

    def clear(self, *, but_last: bool) -> None:
        """Remove what was saved; not timed."""


class TrainyardBackend:
    """The trainer's own checkpointer, with its events, hashes, manifest, fence and rename."""

    def __init__(self, folder: Path, state: State, world: World) -> None:
        self._store = open_store(folder / CHECKPOINTS_DIR, None)
        fence = claim_attempt(folder, None)
        self._saver = Checkpointer(
            run_dir=Path(),
            world=world,
            store=self._store,
            fence=fence,
            model=state.model,
            optimizer=state.optimizer,
            describe=_manifest,
            attachments={},
            keep_latest=1_000_000,
            events=EventLog(folder / "events.jsonl", fence.attempt, enabled=True),
        )
        self._saver.allocate()
        self._step = 0

    def begin(self) -> Pending:
        """Returns once the state is staged."""
        self._step += 1
        self._saver.save_started = time.monotonic() - SAVE_INTERVAL_S
        self._saver.save(_progress(self._step), "interval", lambda _: False)
        return Pending(done=lambda: not self._saver.writing, wait=self._finish)

    def _finish(self) -> None:
        if self._saver.conclude(self._step, 0, _TIMEOUT_S) != 0:
            raise RuntimeError("the checkpoint was not written")

    def load(self) -> None:
        """The newest, verified."""
        if self._saver.load_newest(lambda _: None) is None:
            raise RuntimeError("there is no checkpoint")

    def bytes(self) -> int:
        """All files and the manifest."""
        return tree_bytes(Path(self._store.place) / f"step-{self._step:08d}")

    def clear(self, *, but_last: bool) -> None:
        """By the store."""
        for step in self._store.steps():
            if not (but_last and step == self._step):
                self._store.delete(step)


def _manifest(progress: Progress, reason: str) -> Manifest:
    return Manifest(
        step=progress.step,
        reason=reason,
        milestone=False,
        evaluation_loss=None,
        attempt=1,
        saved_at=time.time(),
        world_size=1,
        parallelism={"data": 1},
        data_cursor={},
        run={},
        trainer={},
    )


def _progress(step: int) -> Progress:
    return Progress(
        step=step,
        samples=step,
        windows=1,
        seed=0,
        evaluated_step=0,
        evaluation_loss=None,
        dataset_version="",
        model={},
        tokens={},
    )


class Dcp:
    """torch.distributed.checkpoint, unmodified; `how` is sync, thread or process."""

    def __init__(self, folder: Path, state: State, how: str) -> None:
        self._folder, self._state, self._how, self._count = folder, state, how, 0

    def _target(self) -> Path:
        return self._folder / str(self._count)

    def begin(self) -> Pending:
        """Returns when dcp does."""
        self._count += 1
        if self._how == "sync":
            state_dict_saver.save(self._state.tensors(), checkpoint_id=self._target(), no_dist=True)
            return Pending()
        kind = AsyncCheckpointerType[self._how.upper()]
        made: Any = state_dict_saver.async_save(
            self._state.tensors(), checkpoint_id=self._target(), async_checkpointer_type=kind
        )
        future: Future[Any] = made
        return Pending(done=future.done, wait=functools.partial(future.result, _TIMEOUT_S))

    def load(self) -> None:
        """In place."""
        state_dict_loader.load(self._state.tensors(), checkpoint_id=self._target(), no_dist=True)

    def bytes(self) -> int:
        """Data and metadata."""
        return tree_bytes(self._target())

    def clear(self, *, but_last: bool) -> None:
        """Folder by folder."""
        for folder in self._folder.iterdir():
            if not (but_last and folder == self._target()):
                shutil.rmtree(folder)


class TorchSave:
    """torch.save into one file, fsynced; loaded without pickle's dangers and copied in."""

    def __init__(self, folder: Path, state: State) -> None:
        self._file, self._state = folder / "state.pt", state

    def begin(self) -> Pending:
        """Returns when it is durable."""
        with self._file.open("wb") as stream:
            torch.save(self._state.tensors(), stream)
            stream.flush()
            os.fsync(stream.fileno())
        return Pending()

    @torch.no_grad()
    def load(self) -> None:
        """Read, then copy."""
        found = torch.load(self._file, weights_only=True)
        for group, tensors in self._state.tensors().items():
            for name, tensor in tensors.items():
                tensor.copy_(found[group][name])

    def bytes(self) -> int:
        """Of the file."""
        return self._file.stat().st_size

    def clear(self, *, but_last: bool) -> None:
        """The file is written over."""
        if not but_last:
            self._file.unlink(missing_ok=True)


class RawFile:
    """What the hardware allows: copy into touched memory, then one file, around the cache or not.

    `hashed`: with the store's hash of each block, before it is written and after it is read.
    """

    def __init__(self, folder: Path, state: State, *, direct: bool, hashed: bool = False) -> None:
        self._file, self._direct, self._hashed = folder / "raw", direct, hashed
        self._hash = ""
        self._sources = [t for group in state.tensors().values() for t in group.values()]
        self._memory = mmap.mmap(-1, -(-state.bytes // 4096) * 4096)
        self._view = memoryview(self._memory)
        self.copy()

    def copy(self) -> None:
        """One pass of memmove over the state, nothing else."""
        begin = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        for tensor in self._sources:
            size = tensor.numel() * tensor.element_size()
            ctypes.memmove(begin, tensor.data_ptr(), size)
            begin += size

    def begin(self) -> Pending:
        """Returns when it is durable."""
        self.copy()
        self.clear(but_last=False)
        self._hash = _write_raw(self._view, self._file, direct=self._direct, hashed=self._hashed)
        return Pending()

    def load(self) -> None:
        """Read into touched memory, then one copy into the tensors."""
        content = Content() if self._hashed else None
        with self._file.open("rb", buffering=0) as stream:
            rest = self._view
            while len(rest):
                got = stream.readinto(rest[:_READ_BLOCK])
                if content:
                    content.update(rest[:got])
                rest = rest[got:]
        if content and content.record().hash != self._hash:
            raise RuntimeError("the file differs from what was written")
        begin = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        for tensor in self._sources:
            size = tensor.numel() * tensor.element_size()
            ctypes.memmove(tensor.data_ptr(), begin, size)
            begin += size

    def bytes(self) -> int:
        """Of the file."""
        return self._file.stat().st_size

    def clear(self, *, but_last: bool) -> None:
        """Unlink."""
        if not but_last:
            self._file.unlink(missing_ok=True)


def _write_raw(view: memoryview, file: Path, *, direct: bool, hashed: bool) -> str:
    """Write a new file durably, block by block; return its hash."""
    content = Content() if hashed else None
    flags = os.O_WRONLY | os.O_CREAT | (os.O_DIRECT if direct else 0)
    descriptor = os.open(file, flags)
    for start in range(0, len(view), _BLOCK):
        block = view[start : start + _BLOCK]
        if content:
            content.update(block)
        while len(block):
            block = block[os.write(descriptor, block) :]
    os.fsync(descriptor)
    os.close(descriptor)
    return content.record().hash if content else ""


class Elsewhere:
    """Lower limit of what a save costs the training: a copy here, while another process hashes and writes.

    It has the priority of the trainer's writer, its own memory and no lock in common with training.
    """

    def __init__(self, folder: Path, state: State) -> None:
        self._copied = RawFile(folder, state, direct=True)
        self._file, self._bytes = folder / "elsewhere", -(-state.bytes // 4096) * 4096
        context = multiprocessing.get_context("spawn")
        self._process, process_end = context.Pipe()
        # A daemon is ended with the process of the measurement.
        context.Process(
            target=_write_elsewhere, args=(process_end, self._bytes), daemon=True
        ).start()
        self._wait()

    def begin(self) -> Pending:
        """Returns after the copy."""
        self.clear(but_last=False)
        self._copied.copy()
        self._process.send(self._file)
        return Pending(done=self._process.poll, wait=self._wait)

    def _wait(self) -> None:
        if not self._process.poll(_TIMEOUT_S):
            raise RuntimeError("the other process has not written")
        self._process.recv()

    def load(self) -> None:
        """Nothing: it wrote other bytes."""

    def bytes(self) -> int:
        """Of the file."""
        return self._bytes

    def clear(self, *, but_last: bool) -> None:
        """Unlink."""
        if not but_last:
            self._file.unlink(missing_ok=True)


def _write_elsewhere(asked: Connection[None, Path], size: int) -> None:
    """In the other process: write a file each time, and answer when it is durable."""
    os.nice(NICENESS)
    memory = memoryview(mmap.mmap(-1, size))
    memory[:] = bytes(size)
    while True:
        asked.send(None)
        _write_raw(memory, asked.recv(), direct=True, hashed=True)


def tree_bytes(folder: Path) -> int:
    """Size of all files below."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def create_backends(
    folder: Path, state: State, world: World, names: Mapping[str, str]
) -> dict[str, CheckpointBackend]:
    """Those that are named, each in a folder of its own."""
    makers: dict[str, Callable[[Path], CheckpointBackend]] = {
        "ours": lambda place: TrainyardBackend(place, state, world),
        "direct": lambda place: RawFile(place, state, direct=True),
        "hashed": lambda place: RawFile(place, state, direct=True, hashed=True),
        "buffered": lambda place: RawFile(place, state, direct=False),
        "elsewhere": lambda place: Elsewhere(place, state),
        "dcp": lambda place: Dcp(place, state, "sync"),
        "dcp_thread": lambda place: Dcp(place, state, "thread"),
        "dcp_process": lambda place: Dcp(place, state, "process"),
        "torch": lambda place: TorchSave(place, state),
    }
    made = {}
    for name in names:
        (folder / name).mkdir()
        made[name] = makers[name](folder / name)
    return made
