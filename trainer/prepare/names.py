"""Names and bounds of dataset preparation that run files are checked against. Imports nothing heavy."""

from __future__ import annotations

from typing import Final

STDLIB: Final = "stdlib"
"""Source: Python's standard library, as installed."""

BYTES: Final = "bytes"
"""Tokenizer kind whose tokens 0 to 255 are bytes."""
BYTES_VOCAB_SIZE: Final = 257
TRAIN: Final = "train:"
"""Prefix of a vocabulary size: a tokenizer is trained on the text."""
MOST_VOCABULARY: Final = 1 << 20

TEXT: Final = "text"
"""Format of files that are one document each."""
PARQUET: Final = "parquet"
JSONL: Final = "jsonl"
FORMATS: Final = (PARQUET, JSONL, TEXT)
"""Formats of source files."""
DEFAULT_COLUMN: Final = "text"
"""Column with the text of parquet and jsonl files."""
