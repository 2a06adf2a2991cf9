"""Text and parquet become tokens of any tokenizer, in streams, and documents stay apart."""

from __future__ import annotations

import fcntl
import json
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from tokenizers import Tokenizer, models

from trainer.prepare import documents, scan, writer
from trainer.prepare.dataset import DatasetError, Index, read_index, verify_files
from trainer.prepare.scan import ScanResult, scan_source
from trainer.prepare.source import open_source
from trainer.prepare.staging import LOCK_FILE
from trainer.prepare.tokens import TokenizerEncoder, parse_tokenizer_choice
from trainer.prepare.writer import Settings, prepare

SETTINGS = Settings(eval_fraction=0.3, shard_tokens=2000)
WORDS = ["north", "wind", "and", "the", "sun", "disputed", "which", "was", "stronger", "ein Bär 🐻"]


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    folder = tmp_path / "texts"
    folder.mkdir()
    generator = random.Random(5)
    for number in range(40):
        text = " ".join(generator.choice(WORDS) for _ in range(generator.randint(5, 90)))
        (folder / f"t{number:02d}.txt").write_text(text)
    return folder


def prepared(texts: Path, out: Path, tokenizer: str, column: str = "text") -> Path:
    source = open_source(str(texts), (), column)
    return prepare(source, out, SETTINGS, parse_tokenizer_choice(tokenizer, None))[0]


def texts_in(folder: Path, index: Index) -> list[str]:
    """All documents, decoded by the dataset's own tokenizer, found by where they begin."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    found = []
    for shard in index.shards:
        tokens = np.fromfile(folder / shard.name, dtype=index.dtype)
        starts = np.fromfile(folder / shard.starts_name, dtype="<u8").tolist()
        for begin, end in zip(starts, [*starts[1:], len(tokens)], strict=True):
            assert tokens[end - 1] == index.boundary
            assert index.boundary not in tokens[begin : end - 1]
            found.append(tokenizer.decode(tokens[begin : end - 1].tolist()))
    return found


def test_a_trained_tokenizer_gives_every_document_back(texts: Path, tmp_path: Path) -> None:
    folder = prepared(texts, tmp_path / "out", "train:300")
    index = read_index(folder)
    assert (index.vocab_size, index.dtype, index.tokenizer["kind"]) == (300, "<u2", "tokenizers")
    assert verify_files(folder, index, hashes=True) == []
    assert sorted(texts_in(folder, index)) == sorted(f.read_text() for f in texts.iterdir())
    assert index.tokens("train") == sum(index.unigram_counts)


def test_a_tokenizer_of_ones_own_is_kept_with_the_dataset(texts: Path, tmp_path: Path) -> None:
    trained = prepared(texts, tmp_path / "a", "train:300")
    file = tmp_path / "mine.json"
    file.write_bytes((trained / "tokenizer.json").read_bytes())
    folder = prepared(texts, tmp_path / "b", str(file))
    assert (folder / "tokenizer.json").read_bytes() == file.read_bytes()
    assert [s.sha256 for s in read_index(folder).shards] == [
        s.sha256 for s in read_index(trained).shards
    ]
    (folder / "tokenizer.json").write_text("{}")
    (mistake,) = verify_files(folder, read_index(folder), hashes=True)
    assert "tokenizer.json: corrupt" in mistake


def words(count: int) -> bytes:
    """A tokenizer of so many words, the last of them the end of a document."""
    vocabulary = {f"w{k}": k for k in range(count - 1)} | {"</s>": count - 1}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="w0"))
    tokenizer.add_special_tokens(["</s>"])
    return tokenizer.to_str().encode()


@pytest.mark.parametrize(("count", "dtype"), [(65_536, "<u2"), (65_537, "<u4")])
def test_large_vocabularies_take_four_bytes(count: int, dtype: str) -> None:
    encoder = TokenizerEncoder(words(count), None, "words")
    (tokens,) = encoder.encode([f"w{count - 2}".encode()])
    assert (encoder.dtype, encoder.boundary) == (dtype, count - 1)
    assert (tokens.dtype.str, tokens.tolist()) == (dtype, [count - 2])


def test_text_that_spells_the_boundary_does_not_end_a_document(texts: Path, tmp_path: Path) -> None:
    spelled = "before <|endoftext|> after"
    (texts / "spelled.txt").write_text(spelled)
    folder = prepared(texts, tmp_path / "out", "train:300")
    assert spelled in texts_in(folder, read_index(folder))


def test_an_ordinary_token_cannot_be_the_boundary() -> None:
    encoder = TokenizerEncoder(words(300), "w7", "words")
    with pytest.raises(DatasetError, match="'w7' occurs as an ordinary token"):
        encoder.encode([b"w7"])


@pytest.mark.parametrize(
    ("asked", "boundary", "told"),
    [
        ("train:256", None, "VOCAB from 257"),
        ("train:many", None, "VOCAB from 257"),
        ("nowhere.json", None, "No such file"),
        ("broken.json", None, "not a tokenizer that `tokenizers` loads"),
        ("words.json", "<end>", "no boundary token <end>"),
    ],
)
def test_a_tokenizer_that_cannot_be_used_is_one_line(
    asked: str, boundary: str | None, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("broken.json").write_text("{")
    Path("words.json").write_bytes(words(300))
    with pytest.raises(DatasetError, match=told) as caught:
        parse_tokenizer_choice(asked, boundary)
    assert len(str(caught.value).splitlines()) == 1


def test_each_row_of_a_parquet_file_is_a_document(texts: Path, tmp_path: Path) -> None:
    contents = [file.read_text() for file in sorted(texts.iterdir())]
    rows = tmp_path / "rows"
    rows.mkdir()
    for part in range(2):
        some: list[str | None] = [*contents[part::2], "", None, contents[0]]  # none of these counts
        table = pa.table({"id": list(range(len(some))), "body": some})
        parquet.write_table(table, rows / f"{part}.parquet", row_group_size=7)
    folder = prepared(rows, tmp_path / "out", "train:300", "body")
    assert sorted(texts_in(folder, read_index(folder))) == sorted(contents)


def test_a_parquet_column_that_is_not_there_or_no_text_is_told(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    parquet.write_table(pa.table({"body": ["a"], "n": [1]}), tmp_path / "rows" / "a.parquet")
    for column, told in (
        ("text", "columns are body, n; choose one with --column"),
        ("n", "holds int"),
    ):
        with pytest.raises(DatasetError, match=told):
            prepare(open_source(str(tmp_path / "rows"), (), column), tmp_path / "out", SETTINGS)
    (tmp_path / "rows" / "a.parquet").write_text("no parquet")
    with pytest.raises(DatasetError, match="not parquet"):
        prepare(open_source(str(tmp_path / "rows"), (), "n"), tmp_path / "out", SETTINGS)


def test_several_processes_write_the_same_version(
    texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "WORTH_BYTES", 0)
    monkeypatch.setattr(writer, "WORTH_BYTES", 0)
    source, choice = open_source(str(texts), ()), parse_tokenizer_choice("train:300", None)
    alone, _ = prepare(source, tmp_path / "alone", SETTINGS, choice)
    shared, _ = prepare(source, tmp_path / "shared", SETTINGS, choice, processes=2)
    assert shared.name == alone.name


def test_a_document_is_read_in_pieces_that_end_with_a_line_and_loses_nothing(
    texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = "".join(f"{number} {'x' * (number % 37)}\n" for number in range(500))
    (texts / "long.txt").write_text(lines)
    (texts / "one-line.txt").write_text("y" * 3000)
    monkeypatch.setattr(documents, "PIECE_BYTES", 256)
    monkeypatch.setattr(writer, "BATCH_TEXTS", 7)
    long = documents.text_document("long", texts / "long.txt")
    pieces = list(long.pieces())
    assert len(pieces) > 20 and max(map(len, pieces)) <= 256
    assert all(piece.endswith(b"\n") for piece in pieces) and b"".join(pieces) == lines.encode()
    folder, _ = prepare(open_source(str(texts), ()), tmp_path / "out", Settings(eval_fraction=0.3))
    index = read_index(folder)
    found = []
    for shard in index.shards:
        tokens = np.fromfile(folder / shard.name, dtype=index.dtype)
        starts = np.fromfile(folder / shard.starts_name, dtype="<u8").tolist()
        for begin, end in zip(starts, [*starts[1:], len(tokens)], strict=True):
            found.append(tokens[begin : end - 1].astype(np.uint8).tobytes())
    assert sorted(found) == sorted(file.read_bytes() for file in texts.iterdir())


def test_a_source_that_changes_while_it_is_read_is_refused(
    texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changes(*arguments: Any) -> ScanResult:
        found = scan_source(*arguments)
        (texts / "t03.txt").write_text("changed in between")
        return found

    monkeypatch.setattr(writer, "scan_source", changes)
    with pytest.raises(DatasetError, match=r"t03\.txt changed while it was read"):
        prepare(open_source(str(texts), ()), tmp_path / "out", SETTINGS)
    assert list((tmp_path / "out").iterdir()) == []


def test_what_a_killed_process_left_goes_and_what_a_living_one_writes_stays(
    texts: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    for name in ("left", "living"):
        (out / f".preparing-{name}").mkdir(parents=True)
        (out / f".preparing-{name}" / LOCK_FILE).touch()
    with (out / ".preparing-living" / LOCK_FILE).open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        folder, _ = prepare(open_source(str(texts), ()), out, SETTINGS)
    assert {path.name for path in out.iterdir()} == {".preparing-living", folder.name, "latest"}


def test_sigterm_leaves_nothing_half_done(tmp_path: Path) -> None:
    texts, out = tmp_path / "texts", tmp_path / "out"
    texts.mkdir()
    command = [sys.executable, "-c", SLOW, "--source", str(texts), "--out", str(out)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "staging\n"
        running.send_signal(signal.SIGTERM)
        _, said = running.communicate(timeout=60)
    assert running.returncode == 130
    assert said == "prepare: interrupted; run it again to continue\n"
    assert [path for path in out.iterdir() if not path.name.startswith(".")] == []


SLOW = """
import sys, threading
from trainer.prepare import __main__ as command, writer
def hang(*_):
    print("staging", flush=True)
    while not threading.Event().wait(0.05):  # a signal just before a wait without end would not end it
        pass
writer._write_shards = hang
for number in range(40):
    with open(f"{sys.argv[2]}/{number}.txt", "w") as stream:
        stream.write(str(number))
sys.exit(command.main())
"""


def test_the_index_is_json_that_anyone_can_read(texts: Path, tmp_path: Path) -> None:
    folder, _ = prepare(open_source(str(texts), ()), tmp_path / "out", SETTINGS)
    values = json.loads((folder / "index.json").read_text())
    assert values["format"] == 2 and values["tokenizer"] == {"kind": "bytes"}
    values["format"] = 1
    (folder / "index.json").write_text(json.dumps(values))
    with pytest.raises(
        DatasetError, match=r"format: got 1; this trainer reads 2; prepare the dataset again"
    ):
        read_index(folder)
