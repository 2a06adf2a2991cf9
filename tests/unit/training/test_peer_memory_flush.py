"""Peer memory: keepers that have to leave write the newest snapshot to storage."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.unit.trainer.checkpoints import draft
from tests.waiting import until
from training.checkpoint.factory import open_store
from training.peer_memory import flush
from training.peer_memory.keeper import Keeper
from training.peer_memory.slots import RankMemory, Stamp
from trainyard.store.interface import Chunk
from trainyard.store.manifest import FileRecord
from trainyard.store.posix import PosixStore, PosixUpload

NODES = 4
RANKS = 2
"""Of a node."""
STEP = 7
GRACE_S = 300
DEADLINE_S = 30


def hold(keeper: Keeper, node: int) -> None:
    """Give a keeper the parts of a node's ranks."""
    for rank in range(node * RANKS, (node + 1) * RANKS):
        content = {f"rank-{rank}": b"part of %d" % rank}
        if rank == 0:
            content[flush.MANIFEST_BASE] = draft(STEP).to_json().encode()
        memory = RankMemory.of_size(16384)
        [slot, _] = memory.slots
        end = 0
        for name, text in content.items():
            slot.files[name] = (end, len(text))
            slot.content(name)[:] = text
            end += len(text)
        slot.stamp = Stamp(step=STEP, attempt=1, world=NODES * RANKS)
        keeper._copies[rank, NODES * RANKS] = memory


def lose(keeper: Keeper) -> None:
    """Have its address refuse connections."""
    keeper._server.shutdown(socket.SHUT_RDWR)
    keeper._server.close()


@pytest.fixture
def keepers(tmp_path: Path) -> list[Keeper]:
    """Keepers of all nodes, each with the parts of its node and of the one before."""
    made = [Keeper(tmp_path, node, NODES, "127.0.0.1") for node in range(NODES)]
    for node, keeper in enumerate(made):
        hold(keeper, node)
        hold(keeper, (node - 1) % NODES)
    return made


def assert_written(run_dir: Path) -> None:
    """The checkpoint is whole."""
    store = open_store(run_dir, None)
    assert store.steps() == [STEP] and not store.verify(STEP)
    assert store.manifest(STEP).files.keys() == {f"rank-{r}" for r in range(NODES * RANKS)}


@dataclass
class Clock:
    """Time in which each wait of a keeper takes a minute."""

    seconds: float = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, _: float) -> None:
        self.seconds += 60
        time.sleep(0.01)

    def time(self) -> float:
        return time.time()


def test_parts_are_written_at_the_same_time(
    tmp_path: Path, keepers: list[Keeper], monkeypatch: pytest.MonkeyPatch
) -> None:
    writers = threading.Barrier(NODES * RANKS)
    put = PosixUpload.put

    def put_together(upload: PosixUpload, name: str, chunks: Sequence[Chunk]) -> FileRecord:
        if name.startswith("rank-"):
            writers.wait(DEADLINE_S)
        return put(upload, name, chunks)

    for node, keeper in enumerate(keepers):  # each has its own parts only
        keeper._copies.clear()
        hold(keeper, node)
    monkeypatch.setattr(PosixUpload, "put", put_together)
    assert flush.flush(keepers[0], None, GRACE_S).startswith(f"step {STEP} written to ")
    assert_written(tmp_path)


def test_keepers_stay_until_the_last_part_is_written(
    tmp_path: Path, keepers: list[Keeper], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, writing, may_write = Clock(), threading.Event(), threading.Event()
    put = PosixUpload.put

    def put_late(upload: PosixUpload, name: str, chunks: Sequence[Chunk]) -> FileRecord:
        writing.set()
        assert may_write.wait(DEADLINE_S)
        return put(upload, name, chunks)

    monkeypatch.setattr(PosixUpload, "put", put_late)
    monkeypatch.setattr(flush, "time", clock)
    with ThreadPoolExecutor() as pool:
        waiting = [pool.submit(flush.flush, keeper, None, 1e6) for keeper in keepers[1:]]
        publishing = pool.submit(flush.flush, keepers[0], None, 1e6)
        assert writing.wait(DEADLINE_S)
        begun = clock.seconds
        until(lambda: clock.seconds > begun + 3600, "an hour", DEADLINE_S)
        left = [keeper for keeper in waiting if keeper.done()]
        may_write.set()
        assert not left
        assert publishing.result(DEADLINE_S).startswith(f"step {STEP} written to ")
        for keeper in waiting:
            assert keeper.result(DEADLINE_S) == f"step {STEP} was left to node 0"
    assert_written(tmp_path)


def test_when_the_lowest_keeper_is_gone_the_next_one_writes(
    tmp_path: Path, keepers: list[Keeper], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(flush, "time", clock)
    with ThreadPoolExecutor() as pool:
        waiting = [pool.submit(flush.flush, keeper, None, 1e6) for keeper in keepers[1:]]
        until(lambda: clock.seconds > 600, "keepers that wait for the lowest", DEADLINE_S)
        lose(keepers[0])
        texts = [keeper.result(DEADLINE_S) for keeper in waiting]
    assert texts[0].startswith(f"step {STEP} written to ")
    assert set(texts[1:]) <= {f"step {STEP} was left to node 1", ""}
    assert_written(tmp_path)


def test_a_keeper_outlasts_errors_of_storage(
    tmp_path: Path, keepers: list[Keeper], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(flush, "time", clock)
    with ThreadPoolExecutor() as pool, pytest.MonkeyPatch.context() as broken:
        broken.setattr(PosixStore, "steps", lambda _: os.listdir("/dev/null"))
        waiting = pool.submit(flush.flush, keepers[1], None, 1e6)
        until(lambda: clock.seconds > 600, "a keeper that waits for the lowest", DEADLINE_S)
        broken.undo()
        assert flush.flush(keepers[0], None, 1e6).startswith(f"step {STEP} written to ")
        assert waiting.result(DEADLINE_S) == f"step {STEP} was left to node 0"
    assert_written(tmp_path)


def test_keepers_wait_no_longer_than_the_grace_period(
    keepers: list[Keeper], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flush, "time", Clock())
    text = flush.flush(keepers[1], None, GRACE_S)
    assert text == f"step {STEP} was not written by node 0 within {GRACE_S} s"


def test_a_snapshot_that_leaves_with_its_node_is_reported(
    keepers: list[Keeper], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(flush, "time", clock)
    for keeper in keepers[2:]:
        lose(keeper)
    hold(keepers[0], 2)  # parts of all nodes are on the first and the second
    with ThreadPoolExecutor() as pool:
        waiting: Future[str] = pool.submit(flush.flush, keepers[1], None, 1e6)
        until(lambda: clock.seconds > 600, "a keeper that waits for the lowest", DEADLINE_S)
        lose(keepers[0])
        text = waiting.result(DEADLINE_S)
    assert text == f"step {STEP} was not written: node 0 is gone"
