"""Sources of text: Python's standard library, or a folder of text, parquet or jsonl files."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from training.prepare.dataset import DatasetError
from training.prepare.documents import (
    Document,
    jsonl_documents,
    parquet_documents,
    text_document,
)
from training.prepare.names import DEFAULT_COLUMN, JSONL, PARQUET, STDLIB, TEXT

_FORMAT_OF_SUFFIX = {".parquet": PARQUET, ".jsonl": JSONL}
_LEFT_OUT = {"site-packages", "dist-packages", "__pycache__", "test", "tests", "idlelib", "lib2to3"}
"""Folders excluded from the standard library: installed packages and tests."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """Files below one folder: each is a document, or holds one per row (parquet, jsonl)."""

    kind: str
    """`stdlib` or `folder`."""
    root: Path
    suffixes: tuple[str, ...]
    left_out: frozenset[str]
    column: str
    """Text column of parquet and jsonl files."""
    format: str = ""
    """parquet or jsonl: read only such files; text: read every file as one document; empty: by suffix."""

    def documents(self) -> Iterator[Document]:
        """Yield all documents in the order of `files`. Raises DatasetError."""
        for name, file in self.files():
            yield from self.documents_of(name, file)

    def documents_of(self, name: str, file: Path) -> Iterator[Document]:
        """Yield the documents of one file. Raises DatasetError."""
        found = self.format or _FORMAT_OF_SUFFIX.get(file.suffix, TEXT)
        if found == PARQUET:
            yield from parquet_documents(name, file, self.column)
        elif found == JSONL:
            yield from jsonl_documents(name, file, self.column)
        else:
            yield text_document(name, file)

    def files(self) -> Iterator[tuple[str, Path]]:
        """Yield (path relative to the root, file), sorted by the relative path."""
        found = []
        for file in self.root.rglob("*"):
            relative = file.relative_to(self.root)
            wanted = not self.suffixes or file.suffix in self.suffixes
            if self.format in (PARQUET, JSONL):
                wanted = wanted and _FORMAT_OF_SUFFIX.get(file.suffix) == self.format
            if wanted and not self.left_out.intersection(relative.parts[:-1]) and file.is_file():
                found.append((relative.as_posix(), file))
        yield from sorted(found)


def open_source(
    source: str, suffixes: tuple[str, ...], column: str = DEFAULT_COLUMN, format_: str = ""
) -> Source:
    """Return the source of the command line. Raises DatasetError if the folder does not exist.

    `suffixes` (with dots) select files of a folder; none selects every file.
    """
    if source == STDLIB:
        root = Path(sysconfig.get_path("stdlib"))
        left_out = frozenset(_LEFT_OUT)
        return Source(kind=STDLIB, root=root, suffixes=(".py",), left_out=left_out, column=column)
    root = Path(source)
    if not root.is_dir():
        raise DatasetError(
            f"--source: {source} is not a folder; must be {STDLIB}, a folder or s3://BUCKET/PREFIX"
        )
    hidden = frozenset({"__pycache__", ".git", ".venv"})
    return Source(
        kind="folder",
        root=root,
        suffixes=suffixes,
        left_out=hidden,
        column=column,
        format=format_,
    )
