"""Documents as streams of pieces, so that large texts are never held in memory."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from trainer.prepare.dataset import DatasetError
from trainer.prepare.formats import check_text, damage_reported, open_content

PIECE_BYTES: Final = 16 * 1024 * 1024
"""Longer documents are read and tokenized in pieces that end after a line if possible: a token that
spans two pieces becomes two tokens."""
_ROWS: Final = 512
_FAULTS: Final = 3
"""Bad lines of a file that are reported."""
_NAMES: Final = 1000
"""Characters of the columns' names that an error lists."""
_JSON_TYPES: Final[dict[type, str]] = {
    float: "a number",
    bool: "a boolean",
    list: "an array",
    dict: "an object",
    str: "a string",
    type(None): "null",
}


@dataclass(frozen=True, kw_only=True)
class Document:
    """One text, read lazily."""

    name: str
    pieces: Callable[[], Iterator[bytes]] = field(repr=False)
    """Yields its text from the start on each call. Raises DatasetError if it cannot be read."""


def text_document(name: str, file: Path) -> Document:
    return Document(name=name, pieces=partial(_pieces, file))


def parquet_documents(name: str, file: Path, column: str) -> Iterator[Document]:
    """Yield one document per row, without empty ones and nulls. Raises DatasetError."""
    for row, value in enumerate(_parquet_values(file, column)):
        if text := _text(value, f"{file}: row {row}: column {column!r}"):
            yield Document(name=f"{name}#{row}", pieces=partial(_cut, text))


def _parquet_values(file: Path, column: str) -> Iterator[object]:
    from pyarrow import ArrowException, parquet

    row = 0
    with damage_reported(file), file.open("rb") as stream:
        try:
            opened: Any = parquet.ParquetFile(stream, page_checksum_verification=True)
        except (ArrowException, OSError, NotImplementedError) as error:
            raise DatasetError(f"{file}: not parquet: {' '.join(str(error).split())}") from None
        columns = opened.schema_arrow.names
        if column not in columns:
            raise DatasetError(_no_column(str(file), column, columns))
        with damage_reported(file, lambda: f"column {column!r} from row {row}: "):
            try:
                for batch in opened.iter_batches(batch_size=_ROWS, columns=[column]):
                    yield from batch.column(0).to_pylist()
                    row += len(batch)
            except ArrowException as error:
                raise ValueError(str(error)) from None


def jsonl_documents(name: str, file: Path, column: str) -> Iterator[Document]:
    """Yield one document per line, without empty ones and nulls. Raises DatasetError with the first bad lines."""
    faults: list[str] = []
    with damage_reported(file), open_content(file) as stream:
        for row, line in enumerate(stream):
            try:
                text = _field(line, column, f"{file}: line {row + 1}") if line.strip() else None
            except DatasetError as error:
                faults.append(error.args[0])
                if len(faults) == _FAULTS:
                    break
                continue
            if text and not faults:
                yield Document(name=f"{name}#{row}", pieces=partial(_cut, text))
    if faults:
        raise DatasetError(*faults)


def _field(line: bytes, column: str, where: str) -> bytes | None:
    try:
        # Numbers are not text, and integers of any length are valid.
        values = json.loads(line, parse_int=float)
    except RecursionError:
        raise DatasetError(
            f"{where}: nested too deeply; must be a JSON object; flatten it"
        ) from None
    except ValueError as error:
        raise DatasetError(f"{where}: not JSON: {error}") from None
    if not isinstance(values, dict):
        raise DatasetError(f"{where}: is {_json_type(values)}; must be a JSON object")
    if column not in values:
        raise DatasetError(_no_column(where, column, list(values)))
    return _text(values[column], f"{where}: column {column!r}")


def _no_column(where: str, column: str, columns: list[str]) -> str:
    shown = textwrap.shorten(", ".join(columns), _NAMES, placeholder=" ...")
    return f"{where}: no column {column!r}; columns are {shown}; choose one with --column"


def _json_type(value: object) -> str:
    return _JSON_TYPES.get(type(value), type(value).__name__)


def _text(value: object, where: str) -> bytes | None:
    """Return the UTF-8 of a value of the text column; surrogates without their pair become U+FFFD."""
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError:
            return (
                value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()
            )
    if value is not None and not isinstance(value, bytes):
        raise DatasetError(
            f"{where} holds {_json_type(value)}; must be text; choose one with --column"
        )
    if value:
        check_text(value, where)
    return value


def _pieces(file: Path) -> Iterator[bytes]:
    with damage_reported(file), open_content(file) as stream:
        rest = b""
        while piece := rest + stream.read(PIECE_BYTES - len(rest)):
            end = piece.rfind(b"\n") + 1 if len(piece) == PIECE_BYTES else 0
            piece, rest = (piece[:end], piece[end:]) if end else (piece, b"")
            check_text(piece, str(file))
            yield piece


def _cut(text: bytes) -> Iterator[bytes]:
    start = 0
    while start < len(text):
        end = start + PIECE_BYTES
        if end < len(text):
            end = text.rfind(b"\n", start, end) + 1 or end
        yield text[start:end]
        start = end
