"""Files of a model that are fetched, and the interface of the places that hold them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from trainer.weights.checksums import Checksum

CONFIG_FILE: Final = "config.json"
INDEX_FILE: Final = "model.safetensors.index.json"
MOST_FILES: Final = 10_000
_WEIGHTS: Final = re.compile(r"model(-\d+-of-\d+)?\.safetensors")
_OTHERS: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\.(json|txt|model|jinja|tiktoken)")


class WeightsError(Exception):
    """What cannot be fetched, however often it is tried; one line."""


class TransientError(Exception):
    """A request that failed and may succeed when it is tried again; one line."""


@dataclass(frozen=True, kw_only=True)
class RemoteFile:
    """One file of a model."""

    name: str
    """Its name in the model's folder."""
    bytes: int
    checksums: tuple[Checksum, ...]
    """At least one."""
    tag: str
    """Changes with the content."""


class Place(Protocol):
    """A hub or a bucket. Methods raise WeightsError and TransientError."""

    def files(self) -> list[RemoteFile]:
        """Return the files of the model for which `is_wanted` holds."""

    def append(self, file: RemoteFile, part: Path, progress: Callable[[int], None]) -> None:
        """Continue `part`, the beginning of a file. `progress` gets the bytes that are there.

        At most `file.bytes` are written; the end of the content is not checked here.
        """


def is_wanted(name: str) -> bool:
    """Return whether a file is fetched: configuration, safetensors and tokenizer, as transformers names them.

    No pickles, no copies in other formats, nothing in subfolders, no hidden file.
    """
    return bool(_WEIGHTS.fullmatch(name) or _OTHERS.fullmatch(name))


def is_weights(name: str) -> bool:
    """Return whether a file holds weights."""
    return bool(_WEIGHTS.fullmatch(name))
