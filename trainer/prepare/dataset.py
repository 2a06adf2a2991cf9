"""Format of a prepared dataset: index.json and its verification.

OUT/latest                      text: the newest VERSION
OUT/VERSION/index.json          the record below
OUT/VERSION/tokenizer.json      what `tokenizers` loads; not there when tokens are bytes
OUT/VERSION/shard-train-00000.bin     little-endian tokens, documents one after the other
OUT/VERSION/shard-train-00000.starts  little-endian uint64: where in the shard documents begin
OUT/VERSION/shard-eval-00000.bin      the held-out documents
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from trainer.prepare.names import BYTES
from trainyard.contract import LATEST
from trainyard.hashing import content_hash

FORMAT: Final = 2
INDEX_FILE: Final = "index.json"
LATEST_FILE: Final = LATEST
TOKENIZER_FILE: Final = "tokenizer.json"
TOKEN_BYTES: Final = {"<u2": 2, "<u4": 4}
"""By the index's dtype."""
START_DTYPE: Final = "<u8"
START_BYTES: Final = 8

BYTES_BOUNDARY: Final = 256

Split = Literal["train", "eval"]

_VERSION = re.compile(r"[0-9a-f]{16}")
_SHARD_NAME = re.compile(r"shard-(train|eval)-[0-9]{5}\.bin")


class DatasetError(Exception):
    """A dataset or a source that is missing, incomplete, damaged or of another format: a line per fault."""

    def __str__(self) -> str:
        return "\n".join(
            "".join(one if one.isprintable() else repr(one)[1:-1] for one in line)
            for line in self.args
        )


@dataclass(frozen=True, kw_only=True)
class Shard:
    """One token file and its file of document starts."""

    name: str
    split: Split
    tokens: int
    sha256: str
    documents: int
    """Documents that begin in it; long ones continue in the next shard."""
    starts_sha256: str

    @property
    def starts_name(self) -> str:
        return self.name.removesuffix(".bin") + ".starts"


@dataclass(frozen=True, kw_only=True)
class DataFile:
    """One file of a version besides index.json."""

    name: str
    bytes: int | None
    """None if the index does not record it."""
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Index:
    format: int
    dtype: str
    """`<u2` for a vocabulary of at most 65,536 tokens, else `<u4`."""
    vocab_size: int
    boundary: int
    """Token after every document; it occurs nowhere else."""
    tokenizer: Mapping[str, Any]
    """`kind`: bytes or tokenizers; for the latter, `sha256` of tokenizer.json."""
    source: Mapping[str, Any]
    """Source: kind, documents, bytes, fingerprint of the text, settings."""
    shards: tuple[Shard, ...]
    unigram_counts: tuple[int, ...] = field(repr=False)
    """Count of each token in the train shards, for the unigram baseline."""

    @property
    def version(self) -> str:
        """First 16 hexadecimal characters of the hash of all fields."""
        return content_hash(dataclasses.asdict(self))[:16]

    @property
    def token_bytes(self) -> int:
        return TOKEN_BYTES[self.dtype]

    def shards_of(self, split: Split) -> tuple[Shard, ...]:
        return tuple(shard for shard in self.shards if shard.split == split)

    def tokens(self, split: Split) -> int:
        return sum(shard.tokens for shard in self.shards_of(split))

    def files(self) -> tuple[DataFile, ...]:
        """Return all files besides index.json, token files first within each shard."""
        found = []
        for shard in self.shards:
            size, starts = shard.tokens * self.token_bytes, shard.documents * START_BYTES
            found.append(DataFile(name=shard.name, bytes=size, sha256=shard.sha256))
            found.append(DataFile(name=shard.starts_name, bytes=starts, sha256=shard.starts_sha256))
        if self.tokenizer["kind"] != BYTES:
            digest = str(self.tokenizer["sha256"])
            found.append(DataFile(name=TOKENIZER_FILE, bytes=None, sha256=digest))
        return tuple(found)

    def to_json(self) -> str:
        return json.dumps({"version": self.version, **dataclasses.asdict(self)}, indent=1) + "\n"


def token_dtype(vocab_size: int) -> str:
    """Return the narrowest unsigned type for a vocabulary."""
    return "<u2" if vocab_size <= 1 << 16 else "<u4"


def resolve_version(path: Path, version: str) -> str:
    """Resolve `latest` to a version; return other versions unchanged. Raises DatasetError."""
    if version != LATEST:
        return check_version(version)
    try:
        found = (path / LATEST_FILE).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        raise DatasetError(
            f"{path}: no dataset found (no file `{LATEST_FILE}`); "
            f"create one with `python -m trainer.prepare --source stdlib --out {path}`"
        ) from None
    return parse_latest(found, str(path / LATEST_FILE))


def check_version(version: str) -> str:
    """Return a valid version. Raises DatasetError."""
    if not _VERSION.fullmatch(version):
        raise DatasetError(
            f"data.version: got {version!r}; must be {LATEST} or 16 hexadecimal characters"
        )
    return version


def parse_latest(text: str, where: str) -> str:
    """Parse the file `latest`; `where` names it in a DatasetError."""
    found = text.strip()
    if not _VERSION.fullmatch(found):
        raise DatasetError(
            f"{where}: got {found[:40]!r}; must be a version (16 hexadecimal characters)"
        )
    return found


def read_index(folder: Path) -> Index:
    """Read and check the index of a version's folder. Raises DatasetError."""
    file = folder / INDEX_FILE
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise DatasetError(f"{folder}: dataset version not found (no {INDEX_FILE})") from None
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{file}: unreadable: {error}") from None
    return parse_index(text, folder.name, str(file))


def parse_index(text: str, version: str, where: str) -> Index:
    """Parse the text of index.json; `where` names it in a DatasetError."""
    try:
        values = json.loads(text)
        stated, format_ = values.pop("version"), values["format"]
        if format_ != FORMAT:
            raise DatasetError(
                f"{where}: format: got {format_}; this trainer reads {FORMAT}; prepare the dataset again"
            )
        shards = tuple(Shard(**shard) for shard in values.pop("shards"))
        counts = tuple(values.pop("unigram_counts"))
        index = Index(shards=shards, unigram_counts=counts, **values)
        good = index.version == stated == version and index.dtype in TOKEN_BYTES
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DatasetError(f"{where}: unreadable: {error}") from None
    if not good or any(not _SHARD_NAME.fullmatch(shard.name) for shard in index.shards):
        raise DatasetError(f"{where}: corrupt: its content does not match its version {stated}")
    return index


def verify_files(folder: Path, index: Index, *, hashes: bool) -> list[str]:
    """Return one line per file that is missing, has the wrong size or (with `hashes`) the wrong SHA-256."""
    found = (
        (folder / one.name, file_damage(folder / one.name, one, hashes=hashes))
        for one in index.files()
    )
    return [f"{file}: {damage}; prepare the dataset again" for file, damage in found if damage]


def file_damage(file: Path, wanted: DataFile, *, hashes: bool) -> str:
    """Return how a file differs from its record; empty if it does not."""
    try:
        size = file.stat().st_size
    except OSError:
        return "missing"
    if wanted.bytes is not None and size != wanted.bytes:
        return f"got {size} bytes; the index records {wanted.bytes}"
    if hashes and file_sha256(file) != wanted.sha256:
        return "corrupt (SHA-256 differs from index.json)"
    return ""


def file_sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
