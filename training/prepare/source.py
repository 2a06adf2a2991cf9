"""Sources of text: Python's standard library, or a folder."""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from training.prepare.dataset import DatasetError
from training.prepare.documents import PARQUET, Document, parquet_documents, text_document

STDLIB = "stdlib"
_LEFT_OUT = {"site-packages", "dist-packages", "__pycache__", "test", "tests", "idlelib", "lib2to3"}
"""Folders excluded from the standard library: installed packages and tests."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """Files below one folder: each is a document, or holds one per row (parquet)."""

    kind: str
    """`stdlib` or `folder`."""
    root: Path
    suffixes: tuple[str, ...]
    left_out: frozenset[str]
    column: str
    """Text column of parquet files."""

    def documents(self) -> Iterator[Document]:
        """Yield all documents in the order of `files`. Raises DatasetError."""
        for name, file in self.files():
            if file.suffix == PARQUET:
                yield from parquet_documents(name, file, self.column)
            else:
                yield text_document(name, file)

    def files(self) -> Iterator[tuple[str, Path]]:
        """Yield (path relative to the root, file), sorted by the relative path."""
        found = []
        for file in self.root.rglob("*"):
            relative = file.relative_to(self.root)
            wanted = not self.suffixes or file.suffix in self.suffixes
            if wanted and not self.left_out.intersection(relative.parts[:-1]) and file.is_file():
                found.append((relative.as_posix(), file))
        yield from sorted(found)


def open_source(source: str, suffixes: tuple[str, ...], column: str = "text") -> Source:
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
    return Source(kind="folder", root=root, suffixes=suffixes, left_out=hidden, column=column)
