"""A save of several ranks is one: it is published whole, or it failed for all of them, in words."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from torch.distributed import HashStore  # type: ignore[attr-defined]  # public, yet not in its types

from tests.trainer.ranks import Hook, RunFiles
from tests.trainer.runs import STEPS, Trainer, assert_same
from trainyard.store.interface import SaveFailed
from trainyard.store.manifest import FileRecord
from trainyard.store.posix import PosixStore
from trainyard.tensors.rank_save import RankSave, SaveCoordinator

RECORD = FileRecord(bytes=3, hash="sha256:abc")


def full_disk_of(number: int, save: int) -> Hook:
    """A hook: on this rank, the disk is full for one save."""

    def hook(rank: int) -> None:
        if rank != number:
            return
        from trainyard.store import factory

        def at(_: str) -> None:
            if saves[0] == save:
                raise OSError(28, "No space left on device")

        saves = [0]
        plain = PosixStore.begin

        def begin(store: PosixStore, step: int, attempt: int) -> object:
            saves[0] += 1
            return plain(store, step, attempt)

        patch = pytest.MonkeyPatch()
        patch.setattr(PosixStore, "begin", begin)
        patch.setattr(factory, "PosixStore", lambda root: PosixStore(root, at))

    return hook


def test_a_failed_write_fails_the_save_on_all_ranks_and_names_the_rank(
    trainer: Trainer, control: RunFiles
) -> None:
    ranks = trainer.start("run", hook=full_disk_of(1, save=2))
    assert ranks.wait() == [0, 0], ranks.output()
    files = trainer.files("run")
    (failed,) = files.events("checkpoint_failed")
    assert failed["step"] == 10
    assert failed["error"].startswith("rank 1: [Errno 28] No space left on device")
    assert ranks.output().count("checkpoint not written: step-00000010: rank 1") == 1
    assert [e["step"] for e in files.events("checkpoint_commit")] == [5, 15, 20, STEPS]
    checkpoints = files.path / "checkpoints"
    assert not [entry.name for entry in checkpoints.iterdir() if entry.name.startswith(".")]
    assert_same(files, control)


def world(size: int) -> list[SaveCoordinator]:
    store = HashStore()
    store.set_timeout(timedelta(seconds=30))
    return [SaveCoordinator(store, rank, size) for rank in range(size)]


class Place:
    """An upload that notes what happens to it, and whose files may fail."""

    def __init__(self, notes: list[str], error: OSError | None = None) -> None:
        self.notes, self.error = notes, error

    def begin(self, step: int, attempt: int) -> Place:
        return self

    def put(self, name: str, chunks: object) -> FileRecord:
        if self.error:
            raise self.error
        self.notes.append(f"put {name}")
        return RECORD

    def abort(self) -> None:
        self.notes.append("abort")


def part(place: Place) -> RankSave:
    return RankSave(place, 1, 1, {"f": [b"x"]}, lambda: None)  # type: ignore[arg-type]


def test_a_failed_rank_does_not_abort_before_the_leader_reports() -> None:
    leader, other = world(2)
    notes: list[str] = []
    received: list[BaseException] = []

    def follow() -> None:
        try:
            part(Place(notes, OSError("quota"))).follow(other, 1)
        except BaseException as error:
            received.append(error)

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    with pytest.raises(SaveFailed, match=r"^rank 1: quota$") as found:
        leader.collect(1)
    assert notes == []  # the leader may still be writing there
    leader.broadcast(1, found.value)
    thread.join(30)
    assert notes == ["abort"]
    assert [str(error) for error in received] == ["rank 1: quota"]


def test_a_leader_that_cannot_publish_aborts_and_reports_the_cause_to_all_ranks() -> None:
    leader, other = world(2)
    other.send(1, {"g": RECORD})
    notes: list[str] = []

    def publish(_: object, files: dict[str, FileRecord], paused_s: float) -> None:
        assert files == {"f": RECORD, "g": RECORD}
        raise OSError("manifest")

    with pytest.raises(OSError, match="manifest"):
        part(Place(notes)).lead(leader, 1, lambda: notes.append("announced"), publish)
    assert notes == ["announced", "put f", "abort"]
    with pytest.raises(SaveFailed, match=r"^manifest$"):
        other.receive(1)
