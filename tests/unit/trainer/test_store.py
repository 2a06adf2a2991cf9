"""A checkpoint is whole or not there, whatever happens while it is written, and lies are found."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.trainer.checkpoints import draft
from trainyard.store.interface import Chunk, folder_name, parse_step
from trainyard.store.manifest import CorruptCheckpoint, Manifest
from trainyard.store.posix import PosixStore


def payloads(step: int) -> dict[str, list[Chunk]]:
    """Content that differs from step to step, one shard longer than the store's chunks."""
    word = step.to_bytes(4, "little")
    return {
        "model.safetensors": [b"head", memoryview(word * 2_500_000)],
        "progress.json": [json.dumps({"step": step}).encode()],
    }


def no_fence() -> None:
    return None


def save(store: PosixStore, step: int, fence: Callable[[], None] = no_fence) -> Manifest:
    upload = store.begin(step, 1)
    try:
        files = {name: upload.put(name, chunks) for name, chunks in payloads(step).items()}
        return upload.commit(draft(step).with_files(files), fence)
    except BaseException:
        upload.abort()
        raise


def content(step: int, name: str) -> bytes:
    return b"".join(bytes(chunk) for chunk in payloads(step)[name])


def assert_loads(store: PosixStore, step: int) -> None:
    manifest = store.manifest(step)
    assert manifest.step == step
    assert manifest.with_files({}) == draft(step)
    for name in manifest.files:
        assert store.read(step, name) == content(step, name)
    assert set(manifest.files) == {"model.safetensors", "progress.json"}


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    store = PosixStore(tmp_path / "checkpoints")
    assert store.steps() == []
    for step in (20, 10, 100_000_000):
        save(store, step)
    assert store.steps() == [10, 20, 100_000_000]
    for step in store.steps():
        assert_loads(store, step)
        assert store.verify(step) == []


@pytest.mark.parametrize("name", ["step-1", "step-00000001x", "xstep-00000001", "step-000000010"])
def test_other_names_are_no_checkpoints(name: str) -> None:
    assert parse_step(name) is None
    assert parse_step(folder_name(1)) == 1
    assert parse_step(folder_name(123_456_789)) == 123_456_789


def boundaries_of(action: Callable[[PosixStore], object], root: Path) -> list[str]:
    """The names of all boundaries that `action` crosses."""
    crossed: list[str] = []
    action(PosixStore(root, crossed.append))
    return crossed


def die_at(number: int, action: Callable[[PosixStore], object], root: Path) -> None:
    """Run `action` in a child process that kills itself at the given boundary."""
    child = os.fork()
    if child == 0:
        left = [number]

        def at_boundary(_: str) -> None:
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)

        action(PosixStore(root, at_boundary))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def test_killed_at_every_boundary_of_a_save_the_old_or_the_new_one_is_there(
    tmp_path: Path,
) -> None:
    def action(store: PosixStore) -> object:
        return save(store, 20)

    crossed = boundaries_of(action, tmp_path / "dry")
    kinds = {name.split()[0] for name in crossed}
    assert kinds == {"write", "fsync", "rename"}
    order = [crossed.index(f"fsync {name}") for name in ("model.safetensors", "manifest.json")]
    order += [crossed.index("fsync folder"), crossed.index("rename step-00000020")]
    assert order == sorted(order) and crossed[-1] == "fsync checkpoints"
    for number in range(len(crossed)):
        root = tmp_path / str(number)
        store = PosixStore(root)
        save(store, 10)
        die_at(number, action, root)
        assert store.steps() in ([10], [10, 20])
        for step in store.steps():
            assert_loads(store, step)
        store.sweep()
        assert not [entry for entry in root.iterdir() if entry.name.startswith(".")]
        save(store, 20)
        assert_loads(store, 20)


def test_killed_at_every_boundary_of_a_deletion_nothing_half_is_listed(tmp_path: Path) -> None:
    def action(store: PosixStore) -> None:
        store.delete(10)

    for number in range(2):
        root = tmp_path / str(number)
        store = PosixStore(root)
        save(store, 10)
        save(store, 20)
        die_at(number, action, root)
        assert store.steps() in ([10, 20], [20])
        for step in store.steps():
            assert_loads(store, step)


@pytest.mark.parametrize("kind", ["write", "fsync", "rename"])
def test_a_full_disk_keeps_the_last_good_one_and_leaves_no_rubbish(
    kind: str, tmp_path: Path
) -> None:
    def full_disk(boundary: str) -> None:
        if boundary.startswith(kind):
            raise OSError(28, "No space left on device")

    save(PosixStore(tmp_path), 10)
    with pytest.raises(OSError, match="No space"):
        save(PosixStore(tmp_path, full_disk), 20)
    assert os.listdir(tmp_path) == [folder_name(10)]
    assert_loads(PosixStore(tmp_path), 10)


@pytest.mark.parametrize("damage", ["truncated", "flipped", "missing", "swapped", "grown"])
@pytest.mark.parametrize("name", ["model.safetensors", "progress.json", "manifest.json"])
def test_damage_is_found(damage: str, name: str, tmp_path: Path) -> None:
    store = PosixStore(tmp_path)
    save(store, 10)
    save(store, 20)
    inflict(damage, tmp_path, name)
    mistakes = store.verify(20)
    assert mistakes and all(name in mistake or "manifest" in mistake for mistake in mistakes)
    with pytest.raises(CorruptCheckpoint):
        store.manifest(20)
        store.read(20, name)
    assert store.verify(10) == []


def inflict(damage: str, root: Path, name: str) -> None:
    """Damage one file of step 20; step 10 has the file that is swapped in."""
    file = root / folder_name(20) / name
    whole = file.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    if damage == "missing":
        file.unlink()
    else:
        other = (root / folder_name(10) / name).read_bytes()
        variants = {"truncated": whole[:-1], "grown": whole + b"x"}
        file.write_bytes({**variants, "flipped": bytes(flipped), "swapped": other}[damage])


def test_every_flipped_bit_of_a_manifest_is_found(tmp_path: Path) -> None:
    text = draft(20).to_json().encode()
    for position in range(0, len(text), 3):
        altered = bytearray(text)
        altered[position] ^= 1 << (position % 7)
        with pytest.raises(CorruptCheckpoint):
            Manifest.from_json(altered.decode(errors="replace"))


def test_a_file_that_is_shorter_than_it_was_written_is_not_published(tmp_path: Path) -> None:
    store = PosixStore(tmp_path)
    upload = store.begin(20, 1)
    files = {name: upload.put(name, chunks) for name, chunks in payloads(20).items()}
    (file,) = tmp_path.glob(".writing-*/progress.json")
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(OSError, match=r"progress\.json: size differs"):
        upload.commit(draft(20).with_files(files), no_fence)
    assert store.steps() == []


def test_a_whole_checkpoint_is_not_replaced_by_another_write(tmp_path: Path) -> None:
    store = PosixStore(tmp_path)
    save(store, 10)
    inode = (tmp_path / folder_name(10)).stat().st_ino
    save(store, 10)
    assert (tmp_path / folder_name(10)).stat().st_ino == inode


def test_a_corrupt_checkpoint_gives_way_to_a_new_one(tmp_path: Path) -> None:
    store = PosixStore(tmp_path)
    save(store, 10)
    save(store, 20)
    inflict("flipped", tmp_path, "model.safetensors")
    save(store, 20)
    assert_loads(store, 20)


def test_set_aside_is_out_of_the_list_but_kept_until_the_sweep(tmp_path: Path) -> None:
    store = PosixStore(tmp_path)
    save(store, 10)
    store.set_aside(10)
    assert store.steps() == []
    assert list(tmp_path.glob(".corrupt-step-00000010-*/model.safetensors"))
    store.sweep()
    assert os.listdir(tmp_path) == []


def test_a_leader_that_writes_already_sweeps_only_what_attempts_before_it_left(
    tmp_path: Path,
) -> None:
    store = PosixStore(tmp_path)
    for attempt in (1, 2, 3):
        store.begin(10, attempt)
    store.sweep(3)
    assert [entry.name for entry in tmp_path.iterdir()] == [
        ".writing-step-00000010-attempt-00000003"
    ]


def test_the_fence_is_asked_after_everything_is_written_and_before_it_is_published(
    tmp_path: Path,
) -> None:
    crossed: list[str] = []
    store = PosixStore(tmp_path, crossed.append)
    save(store, 10, lambda: crossed.append("fence"))
    place = crossed.index("fence")
    assert crossed[place - 1] == "fsync folder"
    assert crossed[place + 1] == "rename step-00000010"
