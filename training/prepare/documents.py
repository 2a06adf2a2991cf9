"""Documents as streams of pieces, so that large texts are never held in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from training.prepare.dataset import DatasetError

PIECE_BYTES: Final = 16 * 1024 * 1024
"""Longer documents are read and tokenized in pieces that end after a line if possible: a token that
spans two pieces becomes two tokens."""
PARQUET: Final = ".parquet"
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
                text = value.encode("utf-8", "replace") if isinstance(value, str) else value
                if text is not None and not isinstance(text, bytes):
                    raise DatasetError(
                        f"{file}: column {column!r} holds {type(value).__name__}; must be text"
                    )
                if text:
                    yield Document(name=f"{name}#{row}", pieces=partial(_cut, text))
                row += 1


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
