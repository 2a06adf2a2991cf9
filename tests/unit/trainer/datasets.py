"""Datasets with exactly the tokens that a test wants."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trainer.prepare.dataset import FORMAT, INDEX_FILE, LATEST_FILE, Index, Split, token_dtype
from trainer.prepare.shards import ShardWriter

BOUNDARY = 256
Parts = Sequence[Sequence[int]]


def dataset(
    root: Path, train: Parts, held_out: Parts | None = None, *, vocab_size: int = 257
) -> tuple[Path, Index]:
    """A prepared dataset with exactly these shards; a document begins after each boundary."""
    staging = root / "staging"
    staging.mkdir(parents=True)
    writers = [
        _written(staging, "train", train, vocab_size),
        _written(staging, "eval", held_out or [[0] * 9], vocab_size),
    ]
    index = Index(
        format=FORMAT,
        dtype=token_dtype(vocab_size),
        vocab_size=vocab_size,
        boundary=BOUNDARY,
        tokenizer={"kind": "bytes"},
        source={},
        shards=tuple(shard for writer in writers for shard in writer.shards),
        unigram_counts=tuple(int(count) for count in writers[0].counts),
    )
    (staging / INDEX_FILE).write_text(index.to_json())
    (root / LATEST_FILE).write_text(index.version + "\n")
    return staging.rename(root / index.version), index


def _written(folder: Path, split: Split, parts: Parts, vocab_size: int) -> ShardWriter:
    dtype: Any = token_dtype(vocab_size)
    writer = ShardWriter(folder=folder, split=split, limit=1 << 20, vocab_size=vocab_size)
    for part in parts:
        document: list[int] = []
        for token in part:
            document.append(token)
            if token == BOUNDARY:
                writer.add(np.array(document, dtype=dtype), begins=True)
                document = []
        if document:
            writer.add(np.array(document, dtype=dtype), begins=True)
        writer.close()
    return writer
