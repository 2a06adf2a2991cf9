"""What a source may hold: files of every kind are read as what they are, or refused by name with 78."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import random
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from trainer.prepare.dataset import DatasetError, read_index
from trainer.prepare.formats import has_suffix
from trainer.prepare.source import open_source
from trainer.prepare.writer import Settings, prepare

SETTINGS = Settings(eval_fraction=0.3)
TEXTS = [f"document {number}\nwith ümlauts" for number in range(40)]
LINES = "".join(json.dumps({"id": n, "text": text}) + "\n" for n, text in enumerate(TEXTS)).encode()


def compressed(content: bytes) -> bytes:
    """Gzip without the time, so that the same content has the same bytes."""
    return gzip.compress(content, mtime=0)


def arrow_compressed(content: bytes, codec: str) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(content)
    return bytes(sink.getvalue().to_pybytes())


def parquet_bytes(texts: list[str] | list[bytes] = TEXTS, **options: object) -> bytes:
    sink = io.BytesIO()
    parquet.write_table(pa.table({"text": texts}), sink, **options)
    return sink.getvalue()


def assert_refused(name: str, content: bytes, said: str, folder: Path) -> None:
    """Assert that one line with the file's path says why it is refused."""
    with pytest.raises(DatasetError) as caught:
        documents(folder, {"good.txt": b"good", name: content})
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"{folder / 'source' / name}: ") and said in line


def zip_bytes() -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        archive.writestr("a.txt", "text")
    return sink.getvalue()


def tar_bytes() -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as archive:
        entry = tarfile.TarInfo("a.txt")
        entry.size = 4
        archive.addfile(entry, io.BytesIO(b"text"))
    return sink.getvalue()


def source_of(root: Path, files: dict[str, bytes]) -> Path:
    folder = root / "source"
    for name, content in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return folder


def documents(root: Path, files: dict[str, bytes], format_: str = "") -> int:
    source = open_source(str(source_of(root, files)), (), format_=format_)
    source.formats()
    folder, _ = prepare(source, root / "out", SETTINGS)
    return int(read_index(folder).source["documents"])


@pytest.mark.parametrize(
    "name",
    ["a.jsonl", "a.ndjson", "a.jsonlines", "a.json", "A.JSONL", "part-00000", "a.txt", "a.data.1"],
)
def test_json_lines_are_rows_whatever_the_name(name: str, tmp_path: Path) -> None:
    assert documents(tmp_path, {name: LINES}) == len(TEXTS)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl.gz", compressed(LINES)),
        ("a.jsonl.gz", compressed(LINES[: LINES.index(b"\n") + 1]) + compressed(LINES)),
        ("a.gz", compressed(LINES)),
        ("part-0", compressed(LINES)),
        ("A.JSONL.GZ", compressed(LINES)),
        ("a.jsonl.gz", LINES),  # a browser has decompressed it
        ("a.json.bz2", bz2.compress(LINES)),
        ("a.jsonl.xz", lzma.compress(LINES)),
        ("a.jsonl.zst", arrow_compressed(LINES, "zstd")),
        ("a.jsonl.lz4", arrow_compressed(LINES, "lz4")),
        ("a.PARQUET", parquet_bytes()),
        ("part-00000", parquet_bytes()),
        ("bom.jsonl", b"\xef\xbb\xbf" + LINES.replace(b"\n", b"\r\n")),
    ],
)
def test_compressed_files_and_rows_without_a_suffix_are_read(
    name: str, content: bytes, tmp_path: Path
) -> None:
    assert documents(tmp_path, {name: content}) == len(TEXTS)


def test_compressed_text_is_the_same_dataset_as_plain_text(tmp_path: Path) -> None:
    texts = {f"{n}.txt": text.encode() for n, text in enumerate(TEXTS)}
    packed = {name: arrow_compressed(text, "zstd") for name, text in texts.items()}
    found = []
    for place, files in (("plain", texts), ("packed", packed)):
        source = open_source(str(source_of(tmp_path / place, files)), ())
        found.append(prepare(source, tmp_path / place / "out", SETTINGS)[0].name)
    assert found[0] == found[1]


def test_the_given_format_decides_whatever_the_suffix(tmp_path: Path) -> None:
    files = {"part-00000": LINES, "b.txt": LINES.replace(b"document", b"page"), "README.md": b"x"}
    assert documents(tmp_path / "jsonl", files, "jsonl") == 2 * len(TEXTS)
    assert documents(tmp_path / "rows", {"a.txt": parquet_bytes()}, "parquet") == len(TEXTS)
    texts = {f"{n}.jsonl": b"text %d" % n for n in range(20)} | {"vocab.json": b"[1]"}
    assert documents(tmp_path / "text", texts, "text") == 21
    with pytest.raises(DatasetError, match=r"a\.txt: not parquet"):
        documents(tmp_path / "bad", {"a.txt": b"text"}, "parquet")


def test_hidden_and_empty_files_and_those_that_describe_rows_are_left_out(tmp_path: Path) -> None:
    noise = random.Random(3).randbytes(300)
    files = {
        "a.jsonl": LINES,
        "._a.jsonl": noise,
        ".DS_Store": noise,
        ".git/objects/1": noise,
        "deep/.ipynb_checkpoints/a.jsonl": b'{"text": "old"}\n',
        "_SUCCESS": b"",
        "_metadata": parquet_bytes(),
        "deep/__pycache__/a.pyc": noise,
    }
    assert documents(tmp_path, files) == len(TEXTS)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("noise", random.Random(1).randbytes(3000), "binary"),
        ("noise.txt", random.Random(1).randbytes(90).replace(b"\0", b""), "binary"),
        ("late.txt", b"text " * 40_000 + b"\0", "zero byte at 200000"),
        ("a.zip", zip_bytes(), "zip archive"),
        ("a.npz", zip_bytes(), "zip archive"),
        ("a.tar", tar_bytes(), "tar archive"),
        ("a.tar.gz", compressed(tar_bytes()), "tar archive"),
        ("a.bin.gz", compressed(bytes(range(256))), "binary"),
        ("a.gz.gz", compressed(compressed(LINES)), "compressed twice"),
        ("a.parquet.gz", compressed(parquet_bytes()), "parquet in gzip"),
        ("a.pdf", b"%PDF-1.7\n1 0 obj", "PDF"),
        ("a.txt", "text".encode("utf-16"), "UTF-16"),
        ("a.txt", "some text".encode("utf-16-le"), "UTF-16"),
        ("a.txt", ("привет " * 20).encode("cp1251"), "not UTF-8"),
        ("a.txt", ("日本語" * 20).encode("shift-jis"), "not UTF-8"),
        ("a.json", json.dumps([{"text": "x"}]).encode(), "is not JSON lines"),
        ("a.json", json.dumps({"text": "x"}, indent=1).encode(), "is not JSON lines"),
        ("tokenizer.json", b'{"version": "1.0"}', "belongs to a tokenizer"),
        ("merges.txt", b"#version: 0.2\na b\n", "belongs to a tokenizer"),
        ("tokenizer.model", b"\n\x0e\n\x05<unk>\x15\0\0\0\0\x18\x02", "binary"),
        ("a.txt", b"version https://git-lfs.github.com/spec/v1\noid sha256:1", "Git LFS"),
        ("a.warc.gz", compressed(b"WARC/1.0\r\nWARC-Type: response\r\n"), "web archive"),
        ("a.csv", b"text\nhello\n", "is a table"),
        ("a.jsonl.gz", compressed(LINES)[:-40], "is damaged"),
        ("a.jsonl.gz", compressed(LINES)[:200] + b"xxxx", "is damaged"),
        ("a.jsonl.bz2", bz2.compress(LINES)[:-40], "is damaged"),
        ("a.jsonl.xz", lzma.compress(LINES)[:-40], "is damaged"),
        ("a.jsonl.zst", arrow_compressed(LINES, "zstd")[:-40], "is damaged"),
    ],
)
def test_what_is_no_text_is_refused_by_name(
    name: str, content: bytes, said: str, tmp_path: Path
) -> None:
    assert_refused(name, content, said, tmp_path)


def damaged_page() -> bytes:
    content = bytearray(parquet_bytes(compression="snappy", use_dictionary=False))
    content[40:300] = random.Random(2).randbytes(260)
    return bytes(content)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.jsonl", b'{"text": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n", "line 1: nested too"),
        ("a.jsonl", b'{"text": "x"}\n{"text": NaN}\n', "line 2: column 'text' holds a number"),
        ("a.jsonl", b'{"text": "x"}\n"text"\n', "line 2: is a string"),
        ("a.jsonl", b'{"text": ["x"]}\n', "line 1: column 'text' holds an array"),
        ("a.jsonl", b'{"text": "\xff"}\n', "line 1: not JSON: 'utf-8' codec"),
        ("a.jsonl", b'{"text": "x"}\n{"text": "cut', "line 2: not JSON"),
        ("a.jsonl", b'{"text": "x"}{"text": "y"}\n', "line 1: not JSON: Extra data"),
        ("a.parquet", damaged_page(), "column 'text' from row 0: is damaged"),
        ("a.parquet", parquet_bytes()[:-8], "not parquet"),
        ("a.parquet", parquet_bytes([b"\0\1\2\3"] * 3), "row 0: column 'text': is binary"),
    ],
)
def test_a_row_that_cannot_be_read_is_one_line_with_file_and_row(
    name: str, content: bytes, said: str, tmp_path: Path
) -> None:
    assert_refused(name, content, said, tmp_path)


def test_text_that_is_not_utf8_inside_a_parquet_string_is_damage(tmp_path: Path) -> None:
    good = parquet_bytes(compression="none", use_dictionary=False)
    with pytest.raises(DatasetError, match=r"a\.parquet: column 'text' from row 0: is damaged"):
        documents(tmp_path, {"a.parquet": good.replace("ü".encode(), b"\xff\xfe")})


def test_odd_values_are_read(tmp_path: Path) -> None:
    rows = [
        b'{"text": "one", "n": ' + b"9" * 5000 + b"}",
        b'{"text": "two", "n": NaN, "deep": {"text": 1}}',
        b'{"text": "a lone \\ud800 surrogate"}',
        b'{"text": null}',
        b'{"text": "says \\"text\\" twice: \\"text\\""}',
    ]
    files = {"a.jsonl": b"\n".join(rows), "more.jsonl": LINES}
    assert documents(tmp_path, files) == len(TEXTS) + 4
    tokens = b"".join(
        bytes(t for t in memoryview(f.read_bytes()).cast("H") if t < 256)
        for f in (tmp_path / "out").glob("*/shard-*.bin")
    )
    assert "a lone \ufffd surrogate".encode() in tokens


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "trainer.prepare", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_all_faults_of_all_files_are_reported_at_once_and_end_with_78(tmp_path: Path) -> None:
    files = {f"{n}.txt": random.Random(n).randbytes(900) for n in range(30)}
    done = run("--source", source_of(tmp_path, files), "--out", tmp_path / "out")
    lines = done.stderr.splitlines()
    assert (done.returncode, len(lines), lines[-1]) == (78, 21, "prepare: and 10 more")
    rows = {"a.jsonl": b'{"text": 1}\n' * 9 + LINES, "b.jsonl": LINES + b"{\n", "c.jsonl": LINES}
    done = run("--source", source_of(tmp_path / "rows", rows), "--out", tmp_path / "out")
    assert done.returncode == 78 and "Traceback" not in done.stderr
    assert [line.split(": ")[2] for line in done.stderr.splitlines()] == [
        "line 1",
        "line 2",
        "line 3",
        f"line {len(TEXTS) + 1}",
    ]


ODD_NAMES = [b"with space.txt", b"new\nline.txt", b"caf\xe9.txt", b"n" * 251 + b".txt", b"-x.txt"]


def test_odd_names_are_read_and_named_on_one_line(tmp_path: Path) -> None:
    folder = source_of(tmp_path, {"a.jsonl": LINES})
    for name in ODD_NAMES:
        Path(os.fsdecode(os.fsencode(folder) + b"/" + name)).write_bytes(b"text " + name[-9:-4])
    done = run("--source", folder, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert done.stderr == f"prepare: {folder}: reads files 1 as jsonl, {len(ODD_NAMES)} as text\n"
    for name in ODD_NAMES:
        Path(os.fsdecode(os.fsencode(folder) + b"/" + name)).write_bytes(b"\0")
    done = run("--source", folder, "--out", tmp_path / "out")
    lines = done.stderr.splitlines()
    assert (done.returncode, len(lines)) == (78, len(ODD_NAMES))
    assert any("new\\nline.txt: is binary" in line for line in lines)


def word_level(vocabulary: dict[str, int]) -> str:
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "absent"}
    return json.dumps({"version": "1.0", "added_tokens": [], "model": model})


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (word_level({"a": 0, "</s>": 1}), "cannot encode the text: WordLevel error"),
        (word_level({"a": 0, "</s>": 1 << 31}), "its largest token is 2147483648"),
        (word_level({}), "no boundary token"),
        ("[" * 1000, "not a tokenizer"),
    ],
)
def test_a_tokenizer_that_cannot_be_used_ends_with_78(
    content: str, said: str, tmp_path: Path
) -> None:
    folder = source_of(tmp_path, {"a.jsonl": LINES})
    (tmp_path / "t.json").write_text(content)
    done = run("--source", folder, "--tokenizer", tmp_path / "t.json", "--out", tmp_path / "out")
    assert (done.returncode, len(done.stderr.splitlines())) == (78, 1), done.stderr
    assert said in done.stderr


def test_a_dataset_inside_its_source_is_refused(tmp_path: Path) -> None:
    folder = source_of(tmp_path, {"a.jsonl": LINES})
    done = run("--source", folder, "--out", folder / "out")
    assert done.returncode == 78 and "lies in --source" in done.stderr


def test_links_that_lead_nowhere_or_to_folders_are_named(tmp_path: Path) -> None:
    folder = source_of(tmp_path, {"a.jsonl": LINES, "deep/b.txt": b"text"})
    (folder / "file").symlink_to("a.jsonl")
    assert len(list(open_source(str(folder), ()).files())) == 3
    (folder / "lost").symlink_to("nothing")
    (folder / "link").symlink_to("deep")
    with pytest.raises(DatasetError, match="is a link to a folder") as caught:
        list(open_source(str(folder), ()).files())
    assert "lost: is a broken link" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "suffixes", "chosen"),
    [
        ("a/b.TXT", (".txt",), True),
        ("a.jsonl.gz", (".jsonl",), True),
        ("a.jsonl.gz", (".gz",), True),
        ("a.txt", ("txt",), True),
        ("a.txt", (), True),
        ("a.jsonl.gz", (".txt",), False),
        ("txt", (".txt",), False),
    ],
)
def test_suffixes_select_in_any_case_with_and_without_compression(
    name: str, suffixes: tuple[str, ...], chosen: bool
) -> None:
    assert has_suffix(name, suffixes) == chosen
