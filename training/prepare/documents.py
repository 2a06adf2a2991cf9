"""Documents as streams of pieces, so that large texts are never held in memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from training.prepare.dataset import DatasetError

PIECE_BYTES: Final = 16 * 1024 * 1024
"""Longer documents are read and tokenized in pieces that end after a line if possible: a token that
spans two pieces becomes two tokens."""
_ROWS: Final = 512


@dataclass(frozen=True, kw_only=True)
class Document:
    """One text, read lazily."""

    name: str
    pieces: Callable[[], Iterator[bytes]] = field(repr=False)
    """Yields its text from the start on each call. Raises DatasetError if it cannot be read."""


def text_document(name: str, file: Path) -> Document:
    """Return a text file as one document."""
    return Document(name=name, pieces=partial(_pieces, file))


def parquet_documents(name: str, file: Path, column: str) -> Iterator[Document]:
    """Yield one document per row, without empty ones and nulls. Raises DatasetError."""
    from pyarrow import ArrowInvalid, parquet

    try:
        opened: Any = parquet.ParquetFile(file)
    except (ArrowInvalid, OSError) as error:
        raise DatasetError(f"{file}: not parquet: {' '.join(str(error).split())}") from None
    with opened:
        columns = opened.schema_arrow.names
        if column not in columns:
            raise DatasetError(
                f"{file}: no column {column!r}; columns are {', '.join(columns)}; choose one with --column"
            )
        row = 0
        for batch in opened.iter_batches(batch_size=_ROWS, columns=[column]):
            for value in batch.column(0).to_pylist():
                if text := _text(value, f"{file}: column {column!r}"):
                    yield Document(name=f"{name}#{row}", pieces=partial(_cut, text))
                row += 1


def jsonl_documents(name: str, file: Path, column: str) -> Iterator[Document]:
    """Yield one document per line, without empty ones and nulls. Raises DatasetError."""
    try:
        with file.open("rb") as stream:
            for row, line in enumerate(stream):
                if line.strip() and (text := _field(line, column, f"{file}: line {row + 1}")):
                    yield Document(name=f"{name}#{row}", pieces=partial(_cut, text))
    except OSError as error:
        raise DatasetError(f"{file}: cannot be read: {error.strerror}") from None


def _field(line: bytes, column: str, where: str) -> bytes | None:
    try:
        values = json.loads(line)
    except ValueError as error:
        raise DatasetError(f"{where}: not JSON: {error}") from None
    if not isinstance(values, dict):
        raise DatasetError(f"{where}: is {type(values).__name__}; must be a JSON object")
    if column not in values:
        raise DatasetError(
            f"{where}: no column {column!r}; columns are {', '.join(map(str, values))}; "
            "choose one with --column"
        )
    return _text(values[column], f"{where}: column {column!r}")


def _text(value: object, where: str) -> bytes | None:
    text = value.encode("utf-8", "replace") if isinstance(value, str) else value
    if text is not None and not isinstance(text, bytes):
        raise DatasetError(f"{where} holds {type(value).__name__}; must be text")
    return text


def _pieces(file: Path) -> Iterator[bytes]:
    try:
        with file.open("rb") as stream:
            while piece := stream.read(PIECE_BYTES):
                if len(piece) == PIECE_BYTES:
                    end = piece.rfind(b"\n") + 1
                    if end:
                        stream.seek(end - len(piece), 1)
                        piece = piece[:end]
                yield piece
    except OSError as error:
        raise DatasetError(f"{file}: cannot be read: {error.strerror}") from None


def _cut(text: bytes) -> Iterator[bytes]:
    start = 0
    while start < len(text):
        end = start + PIECE_BYTES
        if end < len(text):
            end = text.rfind(b"\n", start, end) + 1 or end
        yield text[start:end]
        start = end
