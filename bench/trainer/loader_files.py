"""Writes the tokens that loaders are measured on, in each peer's own format.

`python -m bench.trainer.loader_files FOLDER LENGTH` writes FOLDER/litdata and FOLDER/mosaic from
FOLDER/tokens.bin, with the peers' interpreter.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from training.prepare.dataset import (
    FORMAT,
    INDEX_FILE,
    TOKEN_BYTES,
    Index,
    Shard,
    Split,
    token_dtype,
)
from training.prepare.shards import ShardWriter

VOCABULARY: Final = 50_304
SHARD_TOKENS: Final = 4 * 1024 * 1024
SPARSE_SHARD_TOKENS: Final = 1 << 28
PARTS: Final = 4
SAMPLES_PER_CHUNK: Final = 2048


def write_tokens(folder: Path, tokens: int, seed: int) -> None:
    """Write tokens.bin, and the same tokens as the trainer's dataset in default shards."""
    generator = np.random.default_rng(seed)
    found = generator.integers(0, VOCABULARY, size=tokens, dtype=np.uint16)
    found.tofile(folder / "tokens.bin")
    place = folder / "ours" / "new"
    place.mkdir(parents=True)
    shards = []
    splits: tuple[tuple[Split, Any], ...] = (("train", found), ("eval", found[:SHARD_TOKENS]))
    for split, part in splits:
        writer = ShardWriter(folder=place, split=split, limit=SHARD_TOKENS, vocab_size=VOCABULARY)
        writer.add(part, begins=True)
        writer.close()
        shards += writer.shards
    _publish(place, shards)


def write_sparse(folder: Path, tokens: int) -> None:
    """Write a dataset of `tokens` tokens as sparse files, which occupy almost no disk."""
    place = folder / "sparse" / "ours" / "new"
    place.mkdir(parents=True)
    shards = []
    for number in range(-(-tokens // SPARSE_SHARD_TOKENS)):
        name, size = f"shard-train-{number:05d}.bin", TOKEN_BYTES["<u2"]
        shard = Shard(
            name=name,
            split="train",
            tokens=SPARSE_SHARD_TOKENS,
            sha256="",
            documents=1,
            starts_sha256="",
        )
        with (place / name).open("wb") as stream:
            stream.truncate(shard.tokens * size)
        np.zeros(1, dtype="<u8").tofile(place / shard.starts_name)
        shards.append(shard)
    _publish(place, shards)


def _publish(place: Path, shards: list[Shard]) -> None:
    index = Index(
        format=FORMAT,
        dtype=token_dtype(VOCABULARY),
        vocab_size=VOCABULARY,
        boundary=0,
        tokenizer={"kind": "bytes"},
        source={},
        shards=tuple(shards),
        unigram_counts=(),
    )
    (place / INDEX_FILE).write_text(index.to_json())
    place.rename(place.parent / index.version)


def write_mosaic(folder: Path, length: int) -> None:
    """MDS files: a sample is an array."""
    from streaming import MDSWriter

    tokens: Any = np.memmap(folder / "tokens.bin", dtype=np.uint16, mode="r")
    columns = {"tokens": f"ndarray:uint16:{length + 1}"}
    with MDSWriter(out=str(folder / "mosaic"), columns=columns) as writer:
        for start in range(0, len(tokens) - length, length):
            writer.write({"tokens": tokens[start : start + length + 1]})


def litdata_part(folder: str, part: int) -> Iterator[Any]:
    """A quarter of the tokens."""
    import torch

    tokens: Any = np.memmap(Path(folder) / "tokens.bin", dtype=np.uint16, mode="r")
    size = len(tokens) // PARTS
    yield torch.from_numpy(tokens[part * size : (part + 1) * size].astype(np.int32))


def write_litdata(folder: Path, length: int) -> None:
    """Yield chunks of tokens as the library's documentation does for language models."""
    from litdata import TokensLoader, optimize

    optimize(
        fn=partial(litdata_part, str(folder)),
        inputs=list(range(PARTS)),
        output_dir=str(folder / "litdata"),
        chunk_size=(length + 1) * SAMPLES_PER_CHUNK,
        item_loader=TokensLoader(),
        num_workers=1,
    )


if __name__ == "__main__":
    write_mosaic(Path(sys.argv[1]), int(sys.argv[2]))
    write_litdata(Path(sys.argv[1]), int(sys.argv[2]))
