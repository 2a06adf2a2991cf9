"""Sources of text: Python's standard library, or a folder of text, parquet or jsonl files."""

from __future__ import annotations

import os
import sysconfig
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trainer.prepare.dataset import DatasetError
from trainer.prepare.documents import Document, jsonl_documents, parquet_documents, text_document
from trainer.prepare.formats import detect_format, has_suffix, is_hidden
from trainer.prepare.names import DEFAULT_COLUMN, JSONL, PARQUET, STDLIB, TEXT

FAULTS: Final = 20
"""Faults of a source that are reported; reading stops after so many."""
_SUMMARIES: Final = frozenset({"_metadata", "_common_metadata"})
"""Files without rows that some writers of parquet add to a folder."""
_PAGES: Final = frozenset({"README", "LICENSE"})
"""Left out where the format of files with rows is given."""
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
    """parquet, jsonl or text: how every file is read; empty: by its content and suffix."""

    def documents(self) -> Iterator[Document]:
        """Yield all documents in the order of `files`. Raises DatasetError."""
        for name, file in self.files():
            yield from self.documents_of(name, file)

    def documents_of(self, name: str, file: Path) -> Iterator[Document]:
        """Yield the documents of one file. Raises DatasetError."""
        found = detect_format(file, self.format)
        if found == PARQUET:
            yield from parquet_documents(name, file, self.column)
        elif found == JSONL:
            yield from jsonl_documents(name, file, self.column)
        else:
            yield text_document(name, file)

    def files(self) -> Iterator[tuple[str, Path]]:
        """Yield (path relative to the root, file) of each file with content, sorted by the relative path.

        Raises DatasetError for links that are not followed and for folders that cannot be read.
        """
        found: list[tuple[str, Path]] = []
        faults: list[str] = []

        def unreadable(error: OSError) -> None:
            faults.append(f"{error.filename}: cannot be read: {error.strerror}")

        for folder, folders, names in os.walk(self.root, onerror=unreadable):
            folders[:] = [one for one in folders if not (one in self.left_out or is_hidden(one))]
            faults += [
                f"{Path(folder, one)}: is a link to a folder; must be a file or a folder; "
                "copy what it points to, or name that with --source"
                for one in folders
                if self.kind != STDLIB and Path(folder, one).is_symlink()
            ]
            for one in names:
                file = Path(folder, one)
                if is_hidden(one) or self._is_aside(one) or not has_suffix(one, self.suffixes):
                    continue
                if not file.is_file():
                    faults.append(
                        f"{file}: is a broken link or a device; must be a file; remove it"
                    )
                elif file.stat().st_size:
                    found.append((file.relative_to(self.root).as_posix(), file))
        if faults:
            raise DatasetError(*faults)
        yield from sorted(found)

    def _is_aside(self, name: str) -> bool:
        """Return whether a file describes those with rows."""
        is_page = name.split(".")[0].upper() in _PAGES
        return name in _SUMMARIES or (self.format in (JSONL, PARQUET) and is_page)

    def formats(self) -> dict[str, int]:
        """Return the number of files by format. Raises DatasetError with all that have none."""
        found: Counter[str] = Counter()
        faults: list[str] = []
        for _, file in self.files():
            try:
                found[detect_format(file, self.format)] += 1
            except DatasetError as error:
                faults += error.args
        if faults:
            raise DatasetError(*first_faults(faults))
        return found


def first_faults(faults: list[str]) -> list[str]:
    """Return the faults that are reported, and a line that counts the others."""
    left = len(faults) - FAULTS
    return [*faults[:FAULTS], *([f"and {left} more"] if left > 0 else [])]


def open_source(
    source: str, suffixes: tuple[str, ...], column: str = DEFAULT_COLUMN, format_: str = ""
) -> Source:
    """Return the source of the command line. Raises DatasetError if the folder does not exist.

    `suffixes` (with dots) select files of a folder; none selects every file.
    """
    is_stdlib = source == STDLIB
    root = Path(sysconfig.get_path("stdlib") if is_stdlib else source)
    if not root.is_dir():
        raise DatasetError(
            f"--source: {source} is not a folder; must be {STDLIB}, a folder or s3://BUCKET/PREFIX"
        )
    return Source(
        kind=STDLIB if is_stdlib else "folder",
        root=root,
        suffixes=(".py",) if is_stdlib else suffixes,
        left_out=frozenset(_LEFT_OUT if is_stdlib else {"__pycache__"}),
        column=column,
        format=TEXT if is_stdlib else format_,
    )
