"""Text becomes the same dataset every time, all at once or not at all."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from trainer.prepare import shards as shards_module
from trainer.prepare import writer as writer_module
from trainer.prepare.dataset import (
    BYTES_BOUNDARY,
    DatasetError,
    read_index,
    resolve_version,
    verify_files,
)
from trainer.prepare.source import open_source
from trainer.prepare.writer import Settings, prepare

SETTINGS = Settings(eval_fraction=0.3, shard_tokens=2000)


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    folder = tmp_path / "texts"
    folder.mkdir()
    generator = random.Random(5)
    for number in range(30):
        content = random_text(generator, generator.randint(1, 700))
        (folder / f"t{number:02d}.txt").write_bytes(content)
    return folder


def prepared(texts: Path, out: Path) -> Path:
    return prepare(open_source(str(texts), ()), out, SETTINGS)[0]


def random_text(generator: random.Random, length: int) -> bytes:
    return bytes(generator.choices(range(32, 127), k=length))


def tokens_of(folder: Path, split: str) -> list[int]:
    parts = [np.fromfile(file, dtype="<u2") for file in sorted(folder.glob(f"shard-{split}-*.bin"))]
    return [int(token) for token in np.concatenate(parts)]


def documents_in(tokens: list[int]) -> list[bytes]:
    documents, current = [], bytearray()
    for token in tokens:
        if token == BYTES_BOUNDARY:
            documents.append(bytes(current))
            current.clear()
        else:
            current.append(token)
    assert not current
    return documents


def test_every_byte_of_every_file_is_there_once_and_documents_are_apart(
    texts: Path, tmp_path: Path
) -> None:
    folder = prepared(texts, tmp_path / "out")
    documents = documents_in(tokens_of(folder, "train")) + documents_in(tokens_of(folder, "eval"))
    assert sorted(documents) == sorted(file.read_bytes() for file in texts.iterdir())


def test_the_index_describes_what_is_there(texts: Path, tmp_path: Path) -> None:
    folder = prepared(texts, tmp_path / "out")
    index = read_index(folder)
    assert folder.name == index.version == resolve_version(tmp_path / "out", "latest")
    assert verify_files(folder, index, hashes=True) == []
    train = tokens_of(folder, "train")
    assert index.tokens("train") == len(train)
    assert list(index.unigram_counts) == np.bincount(train, minlength=257).tolist()
    assert all(shard.tokens <= SETTINGS.shard_tokens for shard in index.shards)
    assert len(index.shards_of("train")) > 1


def test_the_same_text_elsewhere_is_the_same_version(texts: Path, tmp_path: Path) -> None:
    first = prepared(texts, tmp_path / "one")
    moved = texts.rename(tmp_path / "moved")
    second = prepared(moved, tmp_path / "two")
    assert first.name == second.name


def test_another_byte_is_another_version_and_the_old_one_stays(texts: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = prepared(texts, out)
    (texts / "t00.txt").write_bytes(b"changed")
    second = prepared(texts, out)
    assert first.name != second.name == resolve_version(out, "latest")
    assert verify_files(first, read_index(first), hashes=True) == []


def test_again_is_a_no_op(texts: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    folder, written = prepare(open_source(str(texts), ()), out, SETTINGS)
    before = {file: file.stat().st_mtime_ns for file in folder.iterdir()}
    again, rewritten = prepare(open_source(str(texts), ()), out, SETTINGS)
    assert (again, written, rewritten) == (folder, True, False)
    assert {file: file.stat().st_mtime_ns for file in folder.iterdir()} == before


def test_a_damaged_version_is_made_anew(texts: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    folder = prepared(texts, out)
    (folder / "shard-train-00000.bin").write_bytes(b"oops")
    _, written = prepare(open_source(str(texts), ()), out, SETTINGS)
    assert written
    assert verify_files(folder, read_index(folder), hashes=True) == []


def test_copies_of_a_held_out_file_are_not_trained_on(texts: Path, tmp_path: Path) -> None:
    for file in list(texts.iterdir()):
        (texts / f"copy-of-{file.name}").write_bytes(file.read_bytes())
    folder = prepared(texts, tmp_path / "out")
    train = documents_in(tokens_of(folder, "train"))
    held_out = documents_in(tokens_of(folder, "eval"))
    assert not set(train) & set(held_out)
    assert len(train) + len(held_out) == 30


def test_a_document_longer_than_a_shard_is_cut_and_loses_nothing(tmp_path: Path) -> None:
    texts = tmp_path / "texts"
    texts.mkdir()
    for number in range(12):
        (texts / f"{number}.txt").write_bytes(b"%d" % (10 + number) * 2500)
    folder = prepared(texts, tmp_path / "out")
    documents = documents_in(tokens_of(folder, "train")) + documents_in(tokens_of(folder, "eval"))
    assert sorted(documents) == [b"%d" % (10 + number) * 2500 for number in range(12)]


@pytest.mark.parametrize("damage", ["missing", "short", "flipped"])
def test_a_bad_shard_is_one_clear_line(damage: str, texts: Path, tmp_path: Path) -> None:
    folder = prepared(texts, tmp_path / "out")
    shard = folder / "shard-train-00000.bin"
    content = bytearray(shard.read_bytes())
    content[5] ^= 1
    if damage == "missing":
        shard.unlink()
    else:
        shard.write_bytes(content[:-2] if damage == "short" else content)
    (mistake,) = verify_files(folder, read_index(folder), hashes=True)
    assert mistake.startswith(str(shard))
    assert {"missing": "missing", "short": "bytes", "flipped": "corrupt"}[damage] in mistake


def test_an_edited_index_is_refused(texts: Path, tmp_path: Path) -> None:
    folder = prepared(texts, tmp_path / "out")
    file = folder / "index.json"
    values = json.loads(file.read_text())
    values["unigram_counts"][0] += 1
    file.write_text(json.dumps(values))
    with pytest.raises(DatasetError, match="corrupt"):
        read_index(folder)


@pytest.mark.parametrize("version", ["../../etc", "LATEST", "0123", "0" * 17, ""])
def test_a_version_is_sixteen_digits_and_nothing_else(version: str, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="16 hexadecimal"):
        resolve_version(tmp_path, version)


def test_a_folder_without_a_dataset_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"python -m trainer\.prepare"):
        resolve_version(tmp_path, "latest")


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"a.txt": "alone"}, "no text for the eval split in 1 distinct documents of 1 files"),
        ({}, "has no file to read; the dataset would be empty"),
        ({"a.jsonl": '{"text": ""}'}, "has 1 file without text; the dataset would be empty"),
    ],
)
def test_a_source_with_too_little_text_is_refused_in_one_line(
    tmp_path: Path, files: dict[str, str], expected: str
) -> None:
    (tmp_path / "texts").mkdir()
    for name, text in files.items():
        (tmp_path / "texts" / name).write_text(text)
    command = [sys.executable, "-m", "trainer.prepare", "--source", str(tmp_path / "texts")]
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "out")],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 78
    [line] = done.stderr.splitlines()
    assert expected in line
    assert not list((tmp_path / "out").glob("*"))


def test_a_crash_leaves_nothing_that_looks_like_a_dataset(
    texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"

    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("trainyard.disk.os.fsync", fails)
    with pytest.raises(OSError, match="No space"):
        prepare(open_source(str(texts), ()), out, SETTINGS)
    assert [path for path in out.iterdir() if not path.name.startswith(".")] == []


def test_a_killed_preparation_continues_after_its_last_shard(
    texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every shard of the version, and with documents that are longer than a shard."""
    (texts / "long.txt").write_bytes(random_text(random.Random(1), 9000))
    source = open_source(str(texts), ())
    whole, _ = prepare(source, tmp_path / "whole", SETTINGS)
    shards = len(read_index(whole).shards)
    record = shards_module._record
    for fatal in range(1, shards):
        out = tmp_path / f"killed-{fatal}"
        seen: list[str] = []

        def dies(
            writer: shards_module.ShardWriter, fatal: int = fatal, seen: list[str] = seen
        ) -> None:
            record(writer)
            seen.append(writer.shards[-1].name)
            if len(seen) == fatal:
                raise OSError(5, "killed")

        monkeypatch.setattr(shards_module, "_record", dies)
        with pytest.raises(OSError, match="killed"):
            prepare(source, out, SETTINGS)
        before = list(seen)
        folder, _ = prepare(source, out, SETTINGS)
        assert folder.name == whole.name
        assert verify_files(folder, read_index(folder), hashes=True) == []
        assert len(seen) == shards and not set(seen[fatal:]) & set(before)
        assert sorted(path.name for path in out.iterdir()) == sorted([folder.name, "latest"])


def test_a_damaged_shard_of_a_killed_preparation_is_written_again(
    texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = open_source(str(texts), ()), tmp_path / "out"
    monkeypatch.setattr(writer_module, "fsync_folder", failing_fsync)
    with pytest.raises(OSError, match="killed"):
        prepare(source, out, SETTINGS)
    monkeypatch.undo()
    [staging] = [path for path in out.iterdir() if path.name.startswith(".preparing-")]
    (staging / "shard-train-00000.bin").write_bytes(b"torn")
    folder, _ = prepare(source, out, SETTINGS)
    assert verify_files(folder, read_index(folder), hashes=True) == []
    assert sorted(documents_in(tokens_of(folder, "train"))) == sorted(
        {file.read_bytes() for file in texts.iterdir()}
        - set(documents_in(tokens_of(folder, "eval")))
    )


def failing_fsync(_folder: Path) -> None:
    raise OSError(5, "killed")


def test_too_small_a_volume_is_one_line_before_it_is_full(
    texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (texts / "more.txt").write_bytes(b"a" * 10_000_000)
    (texts / "most.txt").write_bytes(bytes(range(32, 127)) * 100_000)
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr("trainer.prepare.writer.shutil.disk_usage", lambda _: usage)
    with pytest.raises(DatasetError, match=r"GB to write, 0\.0 GB free"):
        prepare(open_source(str(texts), ()), tmp_path / "out", SETTINGS)
