"""Coordinate a save between ranks through the rendezvous key-value store.

Not by collectives: a save runs concurrently with training, whose collectives must not interleave.
Each rank sends the records of its files or an error; the leader broadcasts the outcome.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import timedelta
from typing import Final

from torch.distributed import Store  # type: ignore[attr-defined]

from trainyard.store.interface import SaveFailed, StaleAttempt
from trainyard.store.manifest import FileRecord

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
