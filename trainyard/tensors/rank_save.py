"""One rank's part of one save: write its files; the leader then publishes."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping, Sequence

from trainyard.store.interface import CheckpointStore, Chunk, Upload
from trainyard.store.manifest import FileRecord
from trainyard.tensors.coordination import SaveCoordinator
from trainyard.tensors.writer import FileWork

Publish = Callable[[Upload, dict[str, FileRecord], float], None]
"""Called with the files of all ranks and the seconds of pauses; raises when publishing fails."""


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
