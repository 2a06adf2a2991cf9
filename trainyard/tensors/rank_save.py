"""One rank's part of one save: write its files, and agree with the others; the leader then publishes.

Ranks agree through the rendezvous key-value store, not by collectives: a save runs while training does, whose
collectives must not interleave. Each rank sends the records of its files or an error; the leader broadcasts the
outcome.
"""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Final

from torch.distributed import Store  # type: ignore[attr-defined]

from trainyard.store.interface import CheckpointStore, Chunk, SaveFailed, StaleAttempt, Upload
from trainyard.store.manifest import FileRecord
from trainyard.tensors.writer import FileWork

Publish = Callable[[Upload, dict[str, FileRecord], float], None]
"""Called with the files of all ranks and the seconds of pauses; raises when publishing fails."""
_TIMEOUT: Final = timedelta(hours=1)
"""Limit for a rank whose disk hangs; training continues and its own timeouts are shorter."""
_DONE: Final = "done"
_STALE: Final = "stale: "
_FAILED: Final = "failed: "


class SaveCoordinator:
    """One rank's side. Saves are numbered from 0, equally on all ranks."""

    def __init__(self, store: Store, rank: int, size: int) -> None:
        """Clone the store: waiting on its connection must not block others."""
        self._store = store.clone()
        self._rank, self._size = rank, size

    def send(self, save: int, files: Mapping[str, FileRecord] | None, error: str = "") -> None:
        """Send this rank's file records, or None and an error, to the leader."""
        records = None if files is None else {name: asdict(files[name]) for name in files}
        self._store.set(_records(save, self._rank), json.dumps([records, error]))

    def collect(self, save: int) -> dict[str, FileRecord]:
        """Wait for the file records of all other ranks (leader only). Raises SaveFailed."""
        keys = [_records(save, rank) for rank in range(1, self._size)]
        if not keys:
            return {}
        self._store.wait(keys, _TIMEOUT)
        files: dict[str, FileRecord] = {}
        errors = []
        for rank, key in enumerate(keys, start=1):
            records, error = json.loads(self._store.get(key))
            self._store.delete_key(key)
            if records is None:
                errors.append(f"rank {rank}: {error}")
            else:
                files |= {name: FileRecord(**record) for name, record in records.items()}
        if errors:
            more = f" ({len(errors)} ranks failed)" if len(errors) > 1 else ""
            raise SaveFailed(errors[0] + more)
        return files

    def broadcast(self, save: int, error: BaseException | None) -> None:
        if self._size == 1:
            return
        stale = isinstance(error, StaleAttempt)
        outcome = _DONE if error is None else f"{_STALE if stale else _FAILED}{error}"
        self._store.set(_outcome(save), outcome)
        # No rank starts a save before it has received the previous outcome.
        self._store.delete_key(_outcome(save - 1))

    def receive(self, save: int) -> None:
        """Wait for the outcome (other ranks). Raises SaveFailed, StaleAttempt."""
        self._store.wait([_outcome(save)], _TIMEOUT)
        outcome = self._store.get(_outcome(save)).decode()
        if outcome.startswith(_STALE):
            raise StaleAttempt(outcome.removeprefix(_STALE))
        if outcome != _DONE:
            raise SaveFailed(outcome.removeprefix(_FAILED))


def _records(save: int, rank: int) -> str:
    return f"save-{save}/files-{rank}"


def _outcome(save: int) -> str:
    return f"save-{save}/outcome"


class RankSave:
    """A staged save; `lead` or `follow` runs it in any thread."""

    def __init__(
        self,
        store: CheckpointStore,
        step: int,
        attempt: int,
        files: Mapping[str, Sequence[Chunk]],
        ready: Callable[[], None],
        *,
        pauses_s: float = 0.0,
    ) -> None:
        """`ready` blocks until the chunks have their content; `pauses_s` is for `FileWork`."""
        self._begin = functools.partial(store.begin, step, attempt)
        self._ready = ready
        self._lock = threading.Lock()
        self._begun: Upload | None = None
        self.work = FileWork(
            [(name, functools.partial(self._put, name, chunks)) for name, chunks in files.items()],
            pauses_s=pauses_s,
        )

    def lead(
        self,
        coordinator: SaveCoordinator,
        save: int,
        announce: Callable[[], None],
        publish: Publish,
    ) -> None:
        """Announce, write, collect, publish and broadcast the outcome. Raises the failure."""
        failure: BaseException | None = None
        try:
            announce()
            files = self.work.finish()
            publish(self._upload(), files | coordinator.collect(save), self.work.paused_s)
        except BaseException as error:
            failure = error
            self._abort()
            raise
        finally:
            coordinator.broadcast(save, failure)

    def follow(self, coordinator: SaveCoordinator, save: int) -> None:
        """Write, send the records and receive the outcome. Raises the failure of any rank.

        Nothing is removed before the outcome: the leader may still write to the same place.
        """
        try:
            files, error = self.work.finish(), ""
        except Exception as failure:
            files, error = None, str(failure) or type(failure).__name__
        coordinator.send(save, files, error)
        try:
            coordinator.receive(save)
        except BaseException:
            self._abort()
            raise

    def _put(self, name: str, chunks: Sequence[Chunk]) -> FileRecord:
        self._ready()
        return self._upload().put(name, chunks)

    def _upload(self) -> Upload:
        with self._lock:
            if self._begun is None:
                self._begun = self._begin()
            return self._begun

    def _abort(self) -> None:
        if self._begun is not None:
            self._begun.abort()
