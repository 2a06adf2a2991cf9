"""Which format a source file has, and its content without compression.

`--format` decides; without it the content does, then the suffix. What is neither text, JSON lines nor parquet is
refused by name: as text it would become tokens of noise.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Final, cast

from trainer.prepare.dataset import DatasetError
from trainer.prepare.names import JSONL, PARQUET, TEXT

_COMPRESSIONS: Final = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bz2",
    b"\xfd7zXZ\0": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
}
"""Compression by the first bytes of a file. A bz2 file goes on with its block size and _BZ2_BLOCK."""
_OPENED: Final[Mapping[str, Callable[[Path], object]]] = {
    "gzip": gzip.open,
    "bz2": bz2.open,
    "xz": lzma.open,
}
_BZ2_BLOCK: Final = (b"1AY&SY", b"\x17rE8P\x90")
_COMPRESSED_SUFFIXES: Final = frozenset({".gz", ".bz2", ".xz", ".zst", ".zstd", ".lz4"})
_SUFFIXES: Final = {
    JSONL: frozenset({".jsonl", ".ndjson", ".jsonlines", ".jl", ".json"}),
    PARQUET: frozenset({".parquet", ".parq", ".pq"}),
}
_PARQUET_MAGIC: Final = b"PAR1"
_REFUSED: Final = (
    (0, b"PK\x03\x04", "is a zip archive", "unpack it"),
    (257, b"ustar", "is a tar archive", "unpack it"),
    (0, b"7z\xbc\xaf\x27\x1c", "is a 7z archive", "unpack it"),
    (0, b"Rar!", "is a rar archive", "unpack it"),
    (0, b"%PDF-", "is a PDF", "extract its text"),
    (0, b"WARC/", "is a web archive", "extract its text"),
    (0, b"version https://git-lfs", "is a pointer of Git LFS", "fetch it with `git lfs pull`"),
    (0, b"{\\rtf", "is RTF", "extract its text"),
    (0, b"ARROW1", "is an Arrow file", "write it as parquet"),
    (0, b"\xff\xfe", "is UTF-16 or UTF-32", "convert it with iconv"),
    (0, b"\xfe\xff", "is UTF-16", "convert it with iconv"),
    (0, b"\0\0\xfe\xff", "is UTF-32", "convert it with iconv"),
)
"""Offset, bytes there, what the file is, and what to do."""
_TOKENIZER_FILES: Final = re.compile(
    r"(added_tokens|special_tokens_map|tokenizer|tokenizer_config|vocab)\.json|(merges|vocab)\.txt"
)
_TABLES: Final = frozenset({".csv", ".tsv"})
_HEAD_BYTES: Final = 64 * 1024
"""Bytes of a file or a piece whose characters are counted."""
_TEXT_CONTROLS: Final = b"\x08\t\n\x0b\f\r\x1b"
_CONTROLS: Final = bytes(sorted({*range(1, 32), 127} - set(_TEXT_CONTROLS)))
_MOST_CONTROLS: Final = 1 / 32
"""Share of control characters in text at most; random bytes have more than a tenth."""
_MOST_INVALID: Final = 1 / 8
"""Share of characters that are not UTF-8 at most: Latin-1 has fewer, other encodings and noise more."""
_FEW: Final = 8
"""So many damaged characters are replaced in a short text, too."""
_ONLY: Final = "must be UTF-8 text, JSON lines or parquet"


def has_suffix(name: str, suffixes: tuple[str, ...]) -> bool:
    """Return whether a file is selected by `--suffix`, in any case, with or without that of a compression."""
    path = PurePosixPath(name.lower())
    found = {path.suffix, _plain_suffix(name)}
    return not suffixes or any(f".{one.lower().lstrip('.')}" in found for one in suffixes)


def is_hidden(name: str) -> bool:
    """Return whether a path relative to the source has a hidden part; those are not read."""
    return any(part.startswith(".") for part in PurePosixPath(name).parts)


def detect_format(file: Path, chosen: str) -> str:
    """Return parquet, jsonl or text; `chosen` is that of the command line. Raises DatasetError."""
    with damage_reported(file):
        with file.open("rb") as stream:
            head = stream.read(_HEAD_BYTES)
        compressed = _compression(head)
        if compressed:
            with open_content(file) as stream:
                head = stream.read(_HEAD_BYTES)
    if compressed and _compression(head):
        raise DatasetError(f"{file}: is compressed twice; {_ONLY}; decompress it once")
    for offset, magic, what, action in _REFUSED:
        if head[offset:].startswith(magic):
            raise DatasetError(f"{file}: {what}; {_ONLY}; {action}, or leave it out with --suffix")
    found = chosen or _detect(file, head)
    if found == PARQUET and compressed:
        raise DatasetError(f"{file}: is parquet in {compressed}; {_ONLY}; decompress it")
    if found != PARQUET:
        check_text(head, str(file))
    return found


def _detect(file: Path, head: bytes) -> str:
    suffix = _plain_suffix(file.name)
    if head.startswith(_PARQUET_MAGIC) or suffix in _SUFFIXES[PARQUET]:
        return PARQUET
    as_text = "or read it with --format text"
    if _TOKENIZER_FILES.fullmatch(file.name.lower()):
        raise DatasetError(f"{file}: belongs to a tokenizer; {_ONLY}; move it, {as_text}")
    if suffix in _TABLES:
        raise DatasetError(f"{file}: is a table; {_ONLY}; write it as parquet, {as_text}")
    if suffix in _SUFFIXES[JSONL]:
        is_array = head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"[")
        if is_array or (suffix == ".json" and not _begins_with_object(head)):
            convert = "jq -c '.[]'" if is_array else "jq -c ."
            raise DatasetError(
                f"{file}: is not JSON lines; must have an object on each line; "
                f"convert it with `{convert}`, {as_text}"
            )
        return JSONL
    return JSONL if head.startswith(b"{") and _begins_with_object(head) else TEXT


def _begins_with_object(head: bytes) -> bool:
    """Return whether the first line is a JSON object, as far as it is known."""
    first, *others = head.removeprefix(b"\xef\xbb\xbf").lstrip().split(b"\n", 1)
    if not others and len(head) == _HEAD_BYTES:
        return first.startswith(b"{")
    try:
        return isinstance(json.loads(first, parse_int=float), dict)
    except RecursionError:
        return True
    except ValueError:
        return False


def _plain_suffix(name: str) -> str:
    """Return the suffix in lower case, without that of a compression."""
    path = PurePosixPath(name.lower())
    return PurePosixPath(path.stem).suffix if path.suffix in _COMPRESSED_SUFFIXES else path.suffix


def check_text(content: bytes, where: str) -> None:
    """Raise DatasetError, which begins with `where`, if a piece of text is binary or not UTF-8."""
    action = f"{_ONLY}; leave it out with --suffix, or convert it"
    if (zero := content.find(0)) >= 0:
        raise DatasetError(f"{where}: is binary or UTF-16 (zero byte at {zero}); {action}")
    head = content[:_HEAD_BYTES]
    controls = len(head) - len(head.translate(None, delete=_CONTROLS))
    if controls > len(head) * _MOST_CONTROLS:
        raise DatasetError(f"{where}: is binary ({controls} control characters); {action}")
    text = head.decode("utf-8", "replace")
    invalid = text.count("\ufffd") - head.count(b"\xef\xbf\xbd")
    if invalid > max(_FEW, len(text) * _MOST_INVALID):
        raise DatasetError(f"{where}: is not UTF-8 ({invalid} of {len(text)} characters); {action}")


def _compression(head: bytes) -> str:
    """Return the compression of a file that begins like this; empty without one."""
    found = next((name for magic, name in _COMPRESSIONS.items() if head.startswith(magic)), "")
    return "" if found == "bz2" and not head[4:].startswith(_BZ2_BLOCK) else found


def open_content(file: Path) -> BinaryIO:
    with file.open("rb") as raw:
        found = _compression(raw.read(16))
    if found in _OPENED:
        return cast(BinaryIO, _OPENED[found](file))
    if found:
        import pyarrow

        stream: Any = pyarrow.CompressedInputStream(file.open("rb"), found)
        return io.BufferedReader(stream)
    return file.open("rb")


@contextmanager
def damage_reported(file: Path, where: Callable[[], str] = str) -> Iterator[None]:
    """Turn errors of the file system and of decompressors into a DatasetError with the file and `where`."""
    try:
        yield
    except (EOFError, OSError, zlib.error, lzma.LZMAError, ValueError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise DatasetError(f"{file}: cannot be read: {error.strerror}") from None
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DatasetError(
            f"{file}: {where()}is damaged: {reason}; fetch or write it again"
        ) from None
