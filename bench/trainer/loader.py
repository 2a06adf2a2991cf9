"""P4 and P5: CPU cost of reading tokens, compared with a numpy gather, and time to resume at any depth."""

from __future__ import annotations

import json
import math
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import torch

from bench.request import Request, Result
from bench.statistics import interleaved, median_and_bound, ratios
from trainer.data.dataset import open_version
from trainer.data.prefetch import PrefetchLoader, PrefetchPlan
from trainer.data.sampler import Sampler
from trainer.data.windows import TokenWindows
from trainer.prepare.dataset import FORMAT, INDEX_FILE, TOKEN_BYTES, Index, Shard, token_dtype
from trainer.prepare.shards import ShardWriter

SIZES: dict[str, dict[str, Any]] = {
    "small": {"tokens": 12_000_000, "length": 2048, "batch": 64, "rounds": 2, "ms": 300},
    "full": {"tokens": 128_000_000, "length": 2048, "batch": 64, "rounds": 10, "ms": 1000},
}
"""`ms`: milliseconds of CPU time of each measurement."""
GATHER_GOAL: Final = 0.9
RESUME_GOAL_MS: Final = 2.0
STATE_GOAL: Final = 1024
EXPONENT_GOAL: Final = 0.05
DEPTHS: Final = tuple(10**power for power in range(3, 10))
"""Tokens, into a dataset of 10^9."""
VOCABULARY: Final = 50_304
SHARD_TOKENS: Final = 4 * 1024 * 1024
SPARSE_SHARD_TOKENS: Final = 1 << 28


def run(request: Request) -> Result:
    """Read by turns with both loaders, then resume at each depth."""
    sizes, seed = request.sizes, request.seed
    with tempfile.TemporaryDirectory() as place:
        request.notify("writing tokens", 0, 0)
        tokens = write_tokens(Path(place), sizes["tokens"], seed)
        version = write_dataset(Path(place), tokens)
        loaders = {"gather": gather(tokens, sizes, seed), "trainer": trainer(version, sizes, seed)}
        arms = {
            name: lambda rows=rows: _speed(rows, sizes["ms"] / 1000)
            for name, rows in loaders.items()
        }
        speeds = interleaved(arms, sizes["rounds"], request.notify)
        request.notify("resuming", 0, 0)
        depths = resume_seconds(write_sparse(Path(place)), sizes, seed)
        exact = identical_across_world_sizes(version, sizes, seed)
    return Result(
        text=section(speeds, depths, sizes, seed, exact=exact), good=exact, versions="libraries"
    )


def write_tokens(folder: Path, count: int, seed: int) -> Any:
    """Return tokens, mapped from a file."""
    found = np.random.default_rng(seed).integers(0, VOCABULARY, size=count, dtype=np.uint16)
    found.tofile(folder / "tokens.bin")
    return np.memmap(folder / "tokens.bin", dtype="<u2", mode="r").view(np.ndarray)


def write_dataset(folder: Path, tokens: Any) -> Path:
    """Return the folder of the trainer's dataset with these tokens, in default shards."""
    place = folder / "dense" / "new"
    place.mkdir(parents=True)
    shards = list[Shard]()
    parts: tuple[tuple[Literal["train", "eval"], Any], ...] = (
        ("train", tokens),
        ("eval", tokens[:SHARD_TOKENS]),
    )
    for split, part in parts:
        writer = ShardWriter(folder=place, split=split, limit=SHARD_TOKENS, vocab_size=VOCABULARY)
        writer.add(part, begins=True)
        writer.close()
        shards += writer.shards
    return _published(place, shards)


def write_sparse(folder: Path) -> Path:
    """Return the folder of a dataset of 10^9 tokens in sparse files, which occupy almost no disk."""
    place = folder / "sparse" / "new"
    place.mkdir(parents=True)
    shards = []
    for number in range(-(-2 * DEPTHS[-1] // SPARSE_SHARD_TOKENS)):
        shard = Shard(
            name=f"shard-train-{number:05d}.bin",
            split="train",
            tokens=SPARSE_SHARD_TOKENS,
            sha256="",
            documents=1,
            starts_sha256="",
        )
        with (place / shard.name).open("wb") as stream:
            stream.truncate(shard.tokens * TOKEN_BYTES["<u2"])
        np.zeros(1, dtype="<u8").tofile(place / shard.starts_name)
        shards.append(shard)
    return _published(place, shards)


def _published(place: Path, shards: list[Shard]) -> Path:
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
    return place.rename(place.parent / index.version)


def gather(tokens: Any, sizes: Mapping[str, int], seed: int) -> Iterator[int]:
    """Yield the tokens of each batch; the limit: one numpy gather, by a permutation that is there already."""
    length, size = sizes["length"], sizes["batch"]
    count = (len(tokens) - 1) // length
    rows = np.lib.stride_tricks.sliding_window_view(tokens, length + 1)[::length][:count]
    order = np.random.default_rng(seed).permutation(count)
    while True:
        for start in range(0, count - size, size):
            yield len(rows[order[start : start + size]]) * length


def trainer(version: Path, sizes: Mapping[str, int], seed: int) -> Iterator[int]:
    """Yield the tokens of each step, as the trainer reads them by default on CPUs."""
    size = sizes["batch"]
    plan = PrefetchPlan(share=range(size), step_samples=size, end=1 << 60, steps_ahead=0)
    feed = PrefetchLoader(_sampler(version, sizes, seed), plan, torch.device("cpu"))
    for first in range(0, 1 << 60, size):
        yield len(feed.take(first, size)) * sizes["length"]


def _sampler(version: Path, sizes: Mapping[str, int], seed: int) -> Sampler:
    opened = open_version(version, full_check=False)
    return Sampler(TokenWindows([opened], "train", sizes["length"]), seed)


def _speed(batches: Iterator[int], seconds: float) -> float:
    """Return million tokens per CPU-second."""
    tokens, begun = 0, time.process_time()
    while (taken := time.process_time() - begun) < seconds:
        tokens += next(batches)
    return tokens / taken / 1e6


def resume_seconds(version: Path, sizes: Mapping[str, int], seed: int) -> dict[int, list[float]]:
    """Return seconds from a number of samples to their successors in hand, by tokens into 10^9."""
    taken: dict[int, list[float]] = {depth: [] for depth in DEPTHS}
    for number in range(2 * sizes["rounds"] + 1):
        for depth in DEPTHS if number % 2 == 0 else reversed(DEPTHS):
            begun = time.perf_counter()
            rows = _sampler(version, sizes, seed).take(depth // sizes["length"], sizes["batch"])
            if number:  # the first is for the caches
                taken[depth].append(time.perf_counter() - begun)
            assert len(rows) == sizes["batch"]
    return taken


def identical_across_world_sizes(version: Path, sizes: Mapping[str, int], seed: int) -> bool:
    """Whether 1, 2 and 4 ranks read the same samples for steps deep in the run, in order."""
    order, size = _sampler(version, sizes, seed), sizes["batch"]
    found = [
        np.concatenate(
            [
                order.take(step * size + rank * (size // world), size // world)
                for step in (0, 7, 100_003)
                for rank in range(world)
            ]
        )
        for world in (1, 2, 4)
    ]
    return all(np.array_equal(found[0], other) for other in found[1:])


def depth_exponent(taken: Mapping[int, Sequence[float]]) -> float:
    """Return the exponent of depth in the time to resume: the slope of the logarithms of medians."""
    depths = [math.log(depth) for depth in taken]
    times = [math.log(statistics.median(times)) for times in taken.values()]
    return float(np.polyfit(depths, times, 1)[0])


def section(
    speeds: Mapping[str, Sequence[float]],
    depths: Mapping[int, Sequence[float]],
    sizes: Mapping[str, int],
    seed: int,
    *,
    exact: bool,
) -> str:
    """Return the section of RESULTS.md."""
    part = ratios(speeds["trainer"], speeds["gather"])
    slope, deepest = depth_exponent(depths), 1000 * statistics.median(depths[DEPTHS[-1]])
    state = len(json.dumps({"samples": 10**6, "seed": seed}))
    middle = {name: statistics.median(found) for name, found in speeds.items()}
    lines = [
        f"P4, P5: {sizes['tokens'] / 1e6:.0f} M tokens of 2 bytes, {sizes['batch']} samples of {sizes['length']} a"
        f" step; {sizes['rounds']} rounds of {sizes['ms']} ms of CPU time per loader (seed {seed}).",
        "",
        f"- Trainer's default on CPUs: {middle['trainer']:,.0f} M tokens per CPU-second; a numpy gather, the"
        f" limit, {middle['gather']:,.0f}: {part} of it; {part.goal(GATHER_GOAL, most=False)}.",
        f"- Resume after 10^9 tokens, in shards of {SPARSE_SHARD_TOKENS}: {deepest:.2f} ms"
        f" (goal <= {RESUME_GOAL_MS:g}: {_met(deepest <= RESUME_GOAL_MS)}); exponent of depth {slope:+.3f}"
        f" (goal <= {EXPONENT_GOAL}: {_met(slope <= EXPONENT_GOAL)}); state {state} bytes"
        f" (goal <= {STATE_GOAL}: {_met(state <= STATE_GOAL)}).",
        f"- 1, 2 and 4 ranks read {'the same' if exact else 'NOT the same'} samples for a step.",
        "",
        "| tokens before | resume, ms (bound) |",
        "|---|---|",
    ]
    for depth, taken in depths.items():
        lines.append(
            f"| 10^{round(math.log10(depth))} | {median_and_bound([1000 * t for t in taken])} |"
        )
    return "\n".join(lines)


def _met(good: bool) -> str:
    return "met" if good else "missed"
