"""The format of a prepared dataset: what index.json says, and how it is checked.

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

from training.spec import LATEST, content_hash

FORMAT: Final = 2
INDEX_FILE: Final = "index.json"
LATEST_FILE: Final = LATEST
TOKENIZER_FILE: Final = "tokenizer.json"
TOKEN_BYTES: Final = {"<u2": 2, "<u4": 4}
"""By the index's dtype."""
START_DTYPE: Final = "<u8"
START_BYTES: Final = 8

BYTES: Final = "bytes"
"""The tokenizer's kind when tokens 0 to 255 are bytes."""
BYTES_BOUNDARY: Final = 256
BYTES_VOCAB_SIZE: Final = 257

Split = Literal["train", "eval"]

_VERSION = re.compile(r"[0-9a-f]{16}")
_SHARD_NAME = re.compile(r"shard-(train|eval)-[0-9]{5}\.bin")


class DatasetError(Exception):
    """A dataset that is missing, incomplete or not what its index says; one line."""


@dataclass(frozen=True, kw_only=True)
class Shard:
    """One token file, and the file that says where its documents begin."""

    name: str
    split: Split
    tokens: int
    sha256: str
    documents: int
    """Documents that begin in it; one that is longer than a shard goes on in the next."""
    starts_sha256: str

    @property
    def starts_name(self) -> str:
        """The file of its documents' first positions."""
        return self.name.removesuffix(".bin") + ".starts"


@dataclass(frozen=True, kw_only=True)
class DataFile:
    """One file of a version besides index.json."""

    name: str
    bytes: int | None
    """None where the index does not say."""
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Index:
    """Everything known about a prepared dataset except the tokens themselves."""

    format: int
    dtype: str
    """`<u2` while the vocabulary has no more than 65,536 tokens, else `<u4`."""
    vocab_size: int
    boundary: int
    """The token after every document; nothing else gives it."""
    tokenizer: Mapping[str, Any]
    """`kind`: bytes or tokenizers; for the latter, `sha256` of tokenizer.json."""
    source: Mapping[str, Any]
    """What was read: kind, documents, bytes, fingerprint of the text and of the settings."""
    shards: tuple[Shard, ...]
    unigram_counts: tuple[int, ...] = field(repr=False)
    """How often each token occurs in the train shards: the baseline that a model must beat."""

    @property
    def version(self) -> str:
        """First 16 hexadecimal characters of the hash of all of the above."""
        return content_hash(dataclasses.asdict(self))[:16]

    @property
    def token_bytes(self) -> int:
        """Bytes of one token."""
        return TOKEN_BYTES[self.dtype]

    def shards_of(self, split: Split) -> tuple[Shard, ...]:
        """The shards of one split, in order."""
        return tuple(shard for shard in self.shards if shard.split == split)

    def tokens(self, split: Split) -> int:
        """Tokens in one split."""
        return sum(shard.tokens for shard in self.shards_of(split))

    def files(self) -> tuple[DataFile, ...]:
        """All files besides index.json, the big ones first within each shard."""
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
        """The text of index.json."""
        return json.dumps({"version": self.version, **dataclasses.asdict(self)}, indent=1) + "\n"


def token_dtype(vocab_size: int) -> str:
    """The narrowest unsigned type that holds every token."""
    return "<u2" if vocab_size <= 1 << 16 else "<u4"


def resolve_version(path: Path, version: str) -> str:
    """The version that `latest` means, or `version` itself. Raises DatasetError."""
    if version != LATEST:
        return check_version(version)
    try:
        found = (path / LATEST_FILE).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        raise DatasetError(
            f"{path}: no dataset found (no file `{LATEST_FILE}`); "
            f"create one with `python -m training.prepare --source stdlib --out {path}`"
        ) from None
    return parse_latest(found, str(path / LATEST_FILE))


def check_version(version: str) -> str:
    """A version that was named. Raises DatasetError."""
    if not _VERSION.fullmatch(version):
        raise DatasetError(
            f"data.version: got {version!r}; must be {LATEST} or 16 hexadecimal characters"
        )
    return version


def parse_latest(text: str, where: str) -> str:
    """The version that the file `latest` names; `where` names the file in a DatasetError."""
    found = text.strip()
    if not _VERSION.fullmatch(found):
        raise DatasetError(
            f"{where}: got {found[:40]!r}; must be a version (16 hexadecimal characters)"
        )
    return found


def read_index(folder: Path) -> Index:
    """The index of one version's folder, checked against its own version. Raises DatasetError."""
    file = folder / INDEX_FILE
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise DatasetError(f"{folder}: dataset version not found (no {INDEX_FILE})") from None
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{file}: unreadable: {error}") from None
    return parse_index(text, folder.name, str(file))


def parse_index(text: str, version: str, where: str) -> Index:
    """The index of this version out of index.json's text; `where` names it in a DatasetError."""
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
    """One line per file that is missing, has the wrong size or (with `hashes`) other content."""
    mistakes = []
    for wanted in index.files():
        file = folder / wanted.name
        try:
            size = file.stat().st_size
        except OSError:
            mistakes.append(f"{file}: missing; prepare the dataset again")
            continue
        if wanted.bytes is not None and size != wanted.bytes:
            mistakes.append(
                f"{file}: got {size} bytes; the index records {wanted.bytes}; prepare the dataset again"
            )
        elif hashes and file_sha256(file) != wanted.sha256:
            mistakes.append(
                f"{file}: corrupt (SHA-256 differs from index.json); prepare the dataset again"
            )
    return mistakes


def file_sha256(file: Path) -> str:
    """SHA-256 of a file's content."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
