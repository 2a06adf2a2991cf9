"""Checkpoints name their hash: BLAKE3, SHA-256 without the package, and what cannot be verified."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.trainer.checkpoints import draft, written_with
from trainer.checkpoint import __main__ as command
from trainyard.hashing import content_hash
from trainyard.store import manifest
from trainyard.store.interface import folder_name
from trainyard.store.manifest import (
    Content,
    CorruptCheckpoint,
    FileRecord,
    Manifest,
    UnknownFormat,
    record_of,
)
from trainyard.store.policy import apply_retention
from trainyard.store.posix import PosixStore

FILES = {"model.safetensors": b"weights of step 10", "progress.json": b'{"step": 10}'}
needs_blake3 = pytest.mark.skipif(manifest.preferred() != manifest.BLAKE3, reason="without blake3")


@pytest.fixture
def without_blake3(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """An installation without the package, until undone."""
    with monkeypatch.context() as patch:
        patch.setattr(manifest, "_blake3", lambda: None)
        yield patch


def save(store: PosixStore, step: int) -> Manifest:
    upload = store.begin(step, 1)
    files = {name: upload.put(name, [content]) for name, content in FILES.items()}
    return upload.commit(draft(step).with_files(files), lambda: None)


def algorithms(store: PosixStore, step: int) -> set[str]:
    return {record.algorithm for record in store.manifest(step).files.values()}


@needs_blake3
def test_hashes_are_those_of_the_published_algorithms() -> None:
    # Test vectors of github.com/BLAKE3-team/BLAKE3: bytes 0 to 250, repeated.
    content = bytes(number % 251 for number in range(1024))
    blake3 = "42214739f095a406f3fc83deb889744ac00df831c10daa55189b5d121c855af7"
    assert record_of(content) == FileRecord(bytes=1024, hash=f"blake3:{blake3}")
    sha256 = hashlib.sha256(content).hexdigest()
    assert record_of(content, "sha256") == FileRecord(bytes=1024, hash=f"sha256:{sha256}")
    whole, parts = record_of(content), Content()
    for start in range(0, 1024, 7):
        parts.update(memoryview(content)[start : start + 7])
    assert parts.record() == whole


@needs_blake3
@pytest.mark.parametrize("damaged", [None, *FILES])
def test_a_checkpoint_may_mix_hashes(damaged: str | None, tmp_path: Path) -> None:
    store = PosixStore(tmp_path)
    upload = store.begin(10, 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifest, "preferred", lambda: "sha256")
        files = {"progress.json": upload.put("progress.json", [FILES["progress.json"]])}
    files["model.safetensors"] = upload.put("model.safetensors", [FILES["model.safetensors"]])
    upload.commit(draft(10).with_files(files), lambda: None)
    assert algorithms(store, 10) == {"blake3", "sha256"}
    if damaged:
        (tmp_path / folder_name(10) / damaged).write_bytes(FILES[damaged][::-1])
    wrong = [f"{damaged}: content differs from the manifest's hash"] if damaged else []
    assert store.verify(10) == wrong


def test_without_the_package_new_files_have_sha256(
    without_blake3: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store = PosixStore(tmp_path)
    save(store, 10)
    assert algorithms(store, 10) == {"sha256"}
    assert store.verify(10) == []


@needs_blake3
def test_what_cannot_be_verified_is_neither_good_nor_corrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = PosixStore(tmp_path / "checkpoints")
    save(store, 10)
    monkeypatch.setattr(manifest, "_blake3", lambda: None)
    for read in (lambda: store.verify(10), lambda: store.read(10, "progress.json")):
        with pytest.raises(UnknownFormat, match="needs the Python package blake3"):
            read()
    assert store.manifest(10).bytes == sum(map(len, FILES.values()))
    for words, code in ((["list"], 0), (["explain", "--json"], 0), (["verify"], 2)):
        monkeypatch.setattr("sys.argv", ["checkpoint", *words, str(tmp_path)])
        assert command.main() == code
    error = capsys.readouterr().err
    assert (
        error == f"{tmp_path}: hash blake3: needs the Python package blake3; install it to verify\n"
    )


def test_an_unknown_hash_is_named(tmp_path: Path) -> None:
    store = PosixStore(tmp_path)
    upload = store.begin(10, 1)
    upload.put("progress.json", [FILES["progress.json"]])
    record = FileRecord(bytes=12, hash="md5:00")
    upload.commit(draft(10).with_files({"progress.json": record}), lambda: None)
    with pytest.raises(UnknownFormat, match="hash 'md5': not known; must be one of blake3, sha256"):
        store.verify(10)


def test_a_record_without_an_algorithm_is_corrupt(tmp_path: Path) -> None:
    text = draft(10).with_files({"f": FileRecord(bytes=1, hash="sha256:00")}).to_json()
    values = json.loads(text)
    values["files"]["f"]["hash"] = "00"
    values.pop("checksum")
    with pytest.raises(CorruptCheckpoint, match="must be ALGORITHM:HEX"):
        Manifest.from_json(json.dumps({**values, "checksum": content_hash(values)}))


def test_retention_counts_what_cannot_be_read_neither_as_old_nor_as_new(tmp_path: Path) -> None:
    store = PosixStore(tmp_path)
    for step in (10, 20, 30):
        save(store, step)
    with written_with(9):
        save(store, 40)
    apply_retention(store, keep_latest=2)
    assert store.steps() == [20, 30, 40]
