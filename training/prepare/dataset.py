"""The format of a prepared dataset: what index.json says, and how it is checked.

OUT/latest                      text: the newest VERSION
OUT/VERSION/index.json          the record below
OUT/VERSION/shard-train-00000.bin   little-endian uint16, documents one after the other
OUT/VERSION/shard-eval-00000.bin    the held-out files
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from training.spec import LATEST, content_hash

FORMAT: Final = 1
INDEX_FILE: Final = "index.json"
LATEST_FILE: Final = LATEST
DTYPE: Final = "<u2"
TOKEN_BYTES: Final = 2
BOUNDARY: Final = 256
"""The token after every document; tokens 0 to 255 are bytes."""
VOCAB_SIZE: Final = 257

Split = Literal["train", "eval"]

_VERSION = re.compile(r"[0-9a-f]{16}")
_SHARD_NAME = re.compile(r"shard-(train|eval)-[0-9]{5}\.bin")


class DatasetError(Exception):
    """A dataset that is missing, incomplete or not what its index says; one line."""


@dataclass(frozen=True, kw_only=True)
class Shard:
    """One token file."""

    name: str
    split: Split
    tokens: int
    sha256: str

    @property
    def size(self) -> int:
        """Bytes."""
        return self.tokens * TOKEN_BYTES


@dataclass(frozen=True, kw_only=True)
class Index:
    """Everything known about a prepared dataset except the tokens themselves."""

    format: int
    dtype: str
    vocab_size: int
    boundary: int
    source: dict[str, Any]
    """What was read: kind, documents, bytes, fingerprint of the text and of the settings."""
    shards: tuple[Shard, ...]
    unigram_counts: tuple[int, ...]
    """How often each token occurs in the train shards: the baseline that a model must beat."""

    @property
    def version(self) -> str:
        """First 16 hexadecimal characters of the hash of all of the above."""
        return content_hash(dataclasses.asdict(self))[:16]

    def of(self, split: Split) -> tuple[Shard, ...]:
        """The shards of one split, in order."""
        return tuple(shard for shard in self.shards if shard.split == split)

    def tokens(self, split: Split) -> int:
        """Tokens in one split."""
        return sum(shard.tokens for shard in self.of(split))

    def to_json(self) -> str:
        """The text of index.json."""
        return json.dumps({"version": self.version, **dataclasses.asdict(self)}, indent=1) + "\n"


def resolve_version(path: Path, version: str) -> str:
    """The version that `latest` means, or `version` itself. Raises DatasetError."""
    if version != LATEST:
        if not _VERSION.fullmatch(version):
            raise DatasetError(
                f"data.version: got {version!r}; allowed {LATEST} or 16 hexadecimal characters"
            )
        return version
    try:
        found = (path / LATEST_FILE).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        raise DatasetError(
            f"{path}: no dataset here (no file `{LATEST_FILE}`); "
            f"make one with `python -m training.prepare --source stdlib --out {path}`"
        ) from None
    if not _VERSION.fullmatch(found):
        raise DatasetError(f"{path / LATEST_FILE}: got {found[:40]!r}; allowed a version")
    return found


def read_index(folder: Path) -> Index:
    """The index of one version's folder, checked against its own version. Raises DatasetError."""
    file = folder / INDEX_FILE
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
        stated = values.pop("version")
        shards = tuple(Shard(**shard) for shard in values.pop("shards"))
        counts = tuple(values.pop("unigram_counts"))
        index = Index(shards=shards, unigram_counts=counts, **values)
        good = index.version == stated == folder.name and index.format == FORMAT
    except FileNotFoundError:
        raise DatasetError(f"{folder}: no such dataset version (no {INDEX_FILE})") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DatasetError(f"{file}: unreadable: {error}") from None
    if not good or any(not _SHARD_NAME.fullmatch(shard.name) for shard in index.shards):
        raise DatasetError(f"{file}: corrupt: its content does not match its version {stated}")
    return index


def shard_mistakes(folder: Path, index: Index, *, hashes: bool) -> list[str]:
    """One line per shard that is missing, has the wrong size or (with `hashes`) other content."""
    mistakes = []
    for shard in index.shards:
        file = folder / shard.name
        try:
            size = file.stat().st_size
        except OSError:
            mistakes.append(f"{file}: missing; prepare the dataset again")
            continue
        if size != shard.size:
            mistakes.append(f"{file}: got {size} bytes; allowed {shard.size}; prepare it again")
        elif hashes and file_sha256(file) != shard.sha256:
            mistakes.append(f"{file}: corrupt (SHA-256 differs from index.json); prepare it again")
    return mistakes


def file_sha256(file: Path) -> str:
    """SHA-256 of a file's content."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
