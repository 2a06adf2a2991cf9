"""Ways to save and load what a script trains, in a process of its own with one rank and one training thread."""

from __future__ import annotations

import ctypes
import functools
import importlib
import mmap
import multiprocessing
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import torch
import torch.distributed as dist
from torch.distributed import HashStore  # type: ignore[attr-defined]
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
from torch.distributed.tensor import DTensor

from trainyard import contract
from trainyard.store.interface import folder_name
from trainyard.store.manifest import Content

SCRIPTS: Final = {"ddp": "DDP script", "fsdp2": "FSDP2 script"}
"""Modules `bench.trainer.NAME_script`, which users could have written."""
SAVE_INTERVAL_S: Final = 120.0
"""Time between checkpoints that a save is told: how long it may pause depends on it."""
_BLOCK: Final = 8 * 1024 * 1024
_READ_BLOCK: Final = 2 * 1024 * 1024
_TIMEOUT_S: Final = 600.0


@dataclass(frozen=True, kw_only=True)
class Pending:
    """The part of a save that training need not wait for."""

    done: Callable[[], bool] = lambda: True
    wait: Callable[[], object] = lambda: None


class Way(Protocol):
    """One way to keep state on disk."""

    def begin(self) -> Pending:
        """Begin a save; return when training may go on."""

    def load(self) -> None:
        """Load what was saved last into the state's own tensors."""

    def bytes(self) -> int:
        """Return the size on disk of what was saved last."""

    def clear(self) -> None:
        """Remove what was saved; not timed."""


class Script:
    """What a script trains, with every byte touched."""

    def __init__(self, name: str, megabytes: int, seed: int) -> None:
        torch.manual_seed(seed)
        module = importlib.import_module(f"bench.trainer.{name}_script")
        self.model, self.optimizer = module.build(megabytes)
        self.train: Callable[[], None] = lambda: module.train(self.model, self.optimizer)
        self.train()
        self.tensors = list(_local_tensors(self.state()))
        self.bytes = sum(t.numel() * t.element_size() for t in self.tensors)

    def state(self) -> dict[str, Any]:
        """Return the state as the script gives it to trainyard.checkpoints."""
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def digest(self) -> list[int]:
        """Return numbers that differ when a bit does."""
        return [int(t.detach().reshape(-1).view(torch.int32).sum()) for t in self.tensors]

    @torch.no_grad()
    def erase(self) -> None:
        """Set all to zero: what is loaded afterwards was really loaded."""
        for tensor in self.tensors:
            tensor.zero_()


def _local_tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, DTensor):
        yield value.to_local()
    elif isinstance(value, torch.Tensor):
        yield value.detach()
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _local_tensors(one)


class Library:
    """trainyard.checkpoints, with its events, hashes, manifest, fence and rename."""

    def __init__(self, folder: Path, script: Script) -> None:
        os.environ |= {
            contract.RUN_DIR_ENV: str(folder),
            contract.CHECKPOINTS_ENV: str(folder / contract.CHECKPOINTS_DIR),
        }
        from trainyard import checkpoints

        self._folder, self._script, self._checkpoints = folder, script, checkpoints
        self._step = 0

    @property
    def _target(self) -> Path:
        return self._folder / contract.CHECKPOINTS_DIR / folder_name(self._step)

    def begin(self) -> Pending:
        """Return once the state is copied."""
        self._step += 1
        self._checkpoints._saver()._begun = time.monotonic() - SAVE_INTERVAL_S
        self._checkpoints.save_async(self._script.state(), self._step, keep_latest=1_000_000)
        return Pending(done=self._target.exists, wait=self._checkpoints.wait)

    def load(self) -> None:
        """Load the newest, verified."""
        if self._checkpoints.load(self._script.state()) is None:
            raise RuntimeError("there is no checkpoint")

    def bytes(self) -> int:
        """Return the size of all files and the manifest."""
        return _tree_bytes(self._target)

    def clear(self) -> None:
        """Remove it."""
        shutil.rmtree(self._target)


class Dcp:
    """torch.distributed.checkpoint, unmodified; `how` is sync, thread or process."""

    def __init__(self, folder: Path, script: Script, how: str) -> None:
        self._folder, self._script, self._how, self._count = folder, script, how, 0

    @property
    def _target(self) -> Path:
        return self._folder / str(self._count)

    def _state(self) -> dict[str, Any]:
        model, optimizer = get_state_dict(self._script.model, self._script.optimizer)
        return {"model": model, "optimizer": optimizer}

    def begin(self) -> Pending:
        """Return when dcp does."""
        self._count += 1
        if self._how == "sync":
            state_dict_saver.save(self._state(), checkpoint_id=self._target)
            return Pending()
        kind = AsyncCheckpointerType[self._how.upper()]
        made: Any = state_dict_saver.async_save(
            self._state(), checkpoint_id=self._target, async_checkpointer_type=kind
        )
        future: Future[Any] = made
        return Pending(done=future.done, wait=functools.partial(future.result, _TIMEOUT_S))

    def load(self) -> None:
        """Load in place."""
        state_dict_loader.load(self._state(), checkpoint_id=self._target)

    def bytes(self) -> int:
        """Return the size of data and metadata."""
        return _tree_bytes(self._target)

    def clear(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self._target)


class RawFile:
    """What the hardware allows: copy into touched memory, then hash and write one file around the page cache."""

    def __init__(self, folder: Path, script: Script) -> None:
        self._file, self._hash, self._sources = folder / "raw", "", script.tensors
        self._memory = mmap.mmap(-1, -(-script.bytes // 4096) * 4096)
        self._view = memoryview(self._memory)
        self.copy()

    def copy(self, *, back: bool = False) -> None:
        """Copy the state in one pass of memmove, or `back` into its tensors."""
        begin = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        for tensor in self._sources:
            size = tensor.numel() * tensor.element_size()
            places = (tensor.data_ptr(), begin) if back else (begin, tensor.data_ptr())
            ctypes.memmove(*places, size)
            begin += size

    def begin(self) -> Pending:
        """Return when it is durable."""
        self.copy()
        content = Content()
        descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_DIRECT)
        for start in range(0, len(self._view), _BLOCK):
            block = self._view[start : start + _BLOCK]
            content.update(block)
            while len(block):
                block = block[os.write(descriptor, block) :]
        os.fsync(descriptor)
        os.close(descriptor)
        self._hash = content.record().hash
        return Pending()

    def load(self) -> None:
        """Read into touched memory, then copy into the tensors."""
        content = Content()
        with self._file.open("rb", buffering=0) as stream:
            rest = self._view
            while len(rest):
                got = stream.readinto(rest[:_READ_BLOCK])
                content.update(rest[:got])
                rest = rest[got:]
        if content.record().hash != self._hash:
            raise RuntimeError("the file differs from what was written")
        self.copy(back=True)

    def bytes(self) -> int:
        """Return the size of the file."""
        return self._file.stat().st_size

    def clear(self) -> None:
        """Unlink the file."""
        self._file.unlink()


WAYS: Final[Mapping[str, Callable[[Path, Script], Way]]] = {
    "library": Library,
    "raw": RawFile,
    "dcp": functools.partial(Dcp, how="sync"),
    "dcp_thread": functools.partial(Dcp, how="thread"),
    "dcp_process": functools.partial(Dcp, how="process"),
}
TITLES: Final = {
    "library": "`trainyard.checkpoints`",
    "raw": "one file with O_DIRECT, with its copy and the same hash",
    "dcp_thread": "`dcp.async_save`, thread",
    "dcp_process": "`dcp.async_save`, process",
    "dcp": "`dcp.save`, `dcp.load`",
}


def _tree_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


_HERE: dict[str, Any] = {}
"""In the worker: the script and the ways to save it."""


def here() -> tuple[Script, Mapping[str, Way]]:
    """Return the script of this process and the ways to save it."""
    return _HERE["script"], _HERE["ways"]


@contextmanager
def worker(
    folder: Path, script: str, names: Sequence[str], megabytes: int, seed: int
) -> Iterator[Any]:
    """Yield a function that calls another one, with its arguments, in a process that has built the script."""
    folder.mkdir()
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        pool.submit(_set_up, folder, script, names, megabytes, seed).result()
        yield lambda function, *arguments: pool.submit(function, *arguments).result()


def _set_up(folder: Path, script: str, names: Sequence[str], megabytes: int, seed: int) -> None:
    log = os.open(folder / "worker.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 2)  # output of libraries; errors are raised as exceptions
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    _HERE["script"], _HERE["ways"] = Script(script, megabytes, seed), {}
    for name in names:
        (folder / name).mkdir()
        _HERE["ways"][name] = WAYS[name](folder / name, _HERE["script"])
