"""The tokenizer selected on the command line."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from trainer.prepare.dataset import DatasetError
from trainer.prepare.names import BYTES_VOCAB_SIZE, MOST_VOCABULARY, TRAIN
from trainer.prepare.scan import ScanResult
from trainer.prepare.source import Source
from trainer.prepare.tokens import BOUNDARY_TOKENS, Encoder, read_tokenizer, train_tokenizer
from trainer.prepare.writer import BYTES_TOKENIZER, TokenizerSpec, iter_pieces

TRAINING_BYTES: Final = 256 * 1024 * 1024
"""Approximate amount of training text for a tokenizer: whole documents chosen by digest."""


def parse_tokenizer_choice(asked: str, boundary_token: str | None) -> TokenizerSpec:
    """Parse `bytes`, `train:VOCAB` or the path of a tokenizer.json. Raises DatasetError."""
    if asked == BYTES_TOKENIZER.identity:
        return BYTES_TOKENIZER
    if asked.startswith(TRAIN):
        size = _vocabulary(asked)
        return TokenizerSpec(
            identity=f"{TRAIN}{size}", make=partial(_trained, size), boundary=BOUNDARY_TOKENS[0]
        )
    encoder = read_tokenizer(Path(asked), boundary_token)
    content = encoder.file or b""
    identity = f"{hashlib.sha256(content).hexdigest()} {encoder.record['boundary_token']}"
    return TokenizerSpec(identity=identity, make=lambda _source, _survey: encoder)


def _vocabulary(asked: str) -> int:
    text = asked.removeprefix(TRAIN)
    if not text.isdecimal() or not BYTES_VOCAB_SIZE <= int(text) <= MOST_VOCABULARY:
        raise DatasetError(
            f"--tokenizer: got {asked!r}; must be {TRAIN}VOCAB with VOCAB from {BYTES_VOCAB_SIZE}"
            f" to {MOST_VOCABULARY}"
        )
    return int(text)


def _trained(vocab_size: int, source: Source, found: ScanResult) -> Encoder:
    return train_tokenizer(_sample(source, found), vocab_size)


def _sample(source: Source, found: ScanResult) -> Iterator[str]:
    """Yield documents of the train split, about TRAINING_BYTES of them."""
    part = min(1.0, TRAINING_BYTES / max(1, found.bytes))
    for piece in iter_pieces(source, found, part):
        if piece.split == "train":
            yield piece.text.decode("utf-8", "replace")
