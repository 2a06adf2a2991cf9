"""What ranks tell each other about a save, through the key-value store that they met at.

Never a collective: a save runs beside training, whose collectives must not be mixed with its own.
Each rank hands over the records of its files or an error, the leader answers with the outcome.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import timedelta
from typing import Final

from torch.distributed import Store  # type: ignore[attr-defined]

from training.checkpoint.manifest import FileRecord
from training.checkpoint.store import StaleAttempt

_TIMEOUT: Final = timedelta(hours=1)
"""For a rank whose disk hangs; training itself goes on, and its own waits are shorter."""
_DONE: Final = "done"
_STALE: Final = "stale: "
_FAILED: Final = "failed: "


class SaveFailed(OSError):
    """A checkpoint was not written because of another rank; one line."""


class SaveCoordinator:
    """One rank's end. Saves are counted from 0 and every rank counts the same ones."""

    def __init__(self, store: Store, rank: int, size: int) -> None:
        """A connection of its own, so that waiting here keeps nobody else waiting."""
        self._store = store.clone()
        self._rank, self._size = rank, size

    def send(self, save: int, files: Mapping[str, FileRecord] | None, error: str = "") -> None:
        """This rank's files, or what went wrong."""
        records = None if files is None else {name: asdict(files[name]) for name in files}
        self._store.set(_records(save, self._rank), json.dumps([records, error]))

    def collect(self, save: int) -> dict[str, FileRecord]:
        """For the leader: the files of all other ranks, once all have written. Raises SaveFailed."""
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
        """For the leader: how the save ended."""
        if self._size == 1:
            return
        stale = isinstance(error, StaleAttempt)
        outcome = _DONE if error is None else f"{_STALE if stale else _FAILED}{error}"
        self._store.set(_outcome(save), outcome)
        # Nobody begins a save before all have heard of the one before.
        self._store.delete_key(_outcome(save - 1))

    def receive(self, save: int) -> None:
        """For the others: returns when it is published. Raises SaveFailed, StaleAttempt."""
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
