"""Ways to read the same tokens: `python -m bench.trainer.loader_arms ARM FOLDER LENGTH BATCH SEED`.

FOLDER/tokens.bin holds little-endian uint16 tokens; samples are LENGTH + 1 of them, in a shuffled
order, BATCH at a time. Each line on standard input is JSON: ["speed", SECONDS] is answered with
tokens and the CPU seconds that they took, ["resume", PART] with the seconds from a state saved after
that part of the epoch to the next batch in hand, and the state's bytes. No arm uses worker processes:
they cost 5 to 8 times as much CPU per token. No arm converts the tokens, but nanoGPT's, whose code it is.
"""

from __future__ import annotations

import gc
import json
import os
import pickle
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from training.trainer.config.data import GPU_PREFETCH_STEPS
from training.trainer.data.dataset import open_version
from training.trainer.data.prefetch import PrefetchLoader, PrefetchPlan
from training.trainer.data.sampler import Sampler
from training.trainer.data.windows import TokenWindows


@dataclass(frozen=True, kw_only=True)
class ReadTask:
    """What is read."""

    folder: Path
    length: int
    batch: int
    seed: int

    def tokens(self) -> Any:
        """All of them, mapped."""
        return np.memmap(self.folder / "tokens.bin", dtype="<u2", mode="r").view(np.ndarray)


class Gather:
    """The limit: one numpy gather per batch, by a permutation that is there already."""

    def __init__(self, task: ReadTask) -> None:
        tokens = task.tokens()
        windows = np.lib.stride_tricks.sliding_window_view(tokens, task.length + 1)
        count = (len(tokens) - 1) // task.length
        self._rows = windows[:: task.length][:count]
        self._order = np.random.default_rng(task.seed).permutation(count)
        self._task = task

    def batches(self) -> Iterator[int]:
        """Rows by number."""
        size = self._task.batch
        while True:
            for start in range(0, len(self._order) - size, size):
                yield len(self._rows[self._order[start : start + size]]) * self._task.length


class TrainyardLoader:
    """What the trainer does."""

    def __init__(self, task: ReadTask, ahead: int) -> None:
        self._task = task
        self._ahead = ahead
        (self._version,) = (p for p in (task.folder / "ours").iterdir() if p.is_dir())

    def order(self) -> Sampler:
        """Opened as for a run; hashes are not checked."""
        opened = open_version(self._version, full_check=False)
        return Sampler(TokenWindows([opened], "train", self._task.length), seed=self._task.seed)

    def feed(self, order: Sampler, ahead: int) -> PrefetchLoader:
        """One rank alone."""
        size = self._task.batch
        plan = PrefetchPlan(share=range(size), step_samples=size, end=1 << 60, steps_ahead=ahead)
        return PrefetchLoader(order, plan, torch.device("cpu"))

    def batches(self) -> Iterator[int]:
        """Steps, one after the other."""
        feed, size, first = self.feed(self.order(), self._ahead), self._task.batch, 0
        while True:
            yield len(feed.take(first, size)) * self._task.length
            first += size

    def resume(self, part: float) -> tuple[float, int]:
        """Reopen all files and resume."""
        samples = int(part * self.order().cursor(0).windows)
        state = json.dumps({"samples": samples, "seed": self._task.seed})
        begun = time.perf_counter()
        samples = json.loads(state)["samples"]
        feed = self.feed(self.order(), 0)
        assert len(feed.take(samples, self._task.batch)) == self._task.batch
        return time.perf_counter() - begun, len(state)


class NanoGpt:
    """As nanoGPT's train.py reads: random places, a new memory map for each batch."""

    def __init__(self, task: ReadTask) -> None:
        self._task = task
        self._chance = torch.Generator().manual_seed(task.seed)

    def batches(self) -> Iterator[int]:
        """Inputs and targets, as int64 each."""
        length, size = self._task.length, self._task.batch
        while True:
            data = np.memmap(self._task.folder / "tokens.bin", dtype=np.uint16, mode="r")
            places = torch.randint(len(data) - length, (size,), generator=self._chance)
            inputs = [torch.from_numpy(data[i : i + length].astype(np.int64)) for i in places]
            wanted = [
                torch.from_numpy(data[i + 1 : i + 1 + length].astype(np.int64)) for i in places
            ]
            assert torch.stack(wanted).shape[0] == size
            yield torch.stack(inputs).numel()


class Samples(torch.utils.data.Dataset[torch.Tensor]):
    """A plain map-style dataset for a DataLoader."""

    def __init__(self, task: ReadTask) -> None:
        self._tokens = task.tokens()
        self._length = task.length

    def __len__(self) -> int:
        return (len(self._tokens) - 1) // self._length

    def __getitem__(self, number: int) -> torch.Tensor:
        start = number * self._length
        return torch.tensor(self._tokens[start : start + self._length + 1])


class StatefulLoader:
    """Resumes from the state of a loader after a part of an epoch."""

    def __init__(self, task: ReadTask) -> None:
        self._task = task
        self._states: dict[float, bytes] = {}

    def loader(self) -> Any:
        """A new one."""
        raise NotImplementedError

    def batches(self) -> Iterator[int]:
        """Epoch after epoch."""
        loader = self.loader()
        while True:
            for rows in loader:
                yield rows[:, :-1].numel()

    def resume(self, part: float) -> tuple[float, int]:
        """The first time, the epoch is read that far to get the state."""
        if part not in self._states:
            loader = self.loader()
            batches = iter(loader)
            for _ in range(max(1, int(part * len(loader)))):
                next(batches)
            self._states[part] = pickle.dumps(loader.state_dict())
        return timed_resume(self.loader, self._states[part])


class TorchData(StatefulLoader):
    """StatefulDataLoader over a map-style dataset, shuffled."""

    def loader(self) -> Any:
        """A new one."""
        from torchdata.stateful_dataloader import StatefulDataLoader

        chance = torch.Generator().manual_seed(self._task.seed)
        return StatefulDataLoader(
            Samples(self._task), batch_size=self._task.batch, shuffle=True, generator=chance
        )


class LitData(StatefulLoader):
    """StreamingDataLoader over tokens that `optimize` wrote."""

    def loader(self) -> Any:
        """A new one."""
        from litdata import StreamingDataLoader, StreamingDataset, TokensLoader

        dataset = StreamingDataset(
            str(self._task.folder / "litdata"),
            item_loader=TokensLoader(block_size=self._task.length + 1),
            shuffle=True,
            seed=self._task.seed,
        )
        return StreamingDataLoader(dataset, batch_size=self._task.batch, num_workers=0)


class Mosaic:
    """StreamingDataLoader of mosaicml-streaming over local MDS files."""

    def __init__(self, task: ReadTask) -> None:
        self._task = task
        self._samples = (os.path.getsize(task.folder / "tokens.bin") // 2 - 1) // task.length

    def loader(self) -> Any:
        """Return a new loader, over a link: the library refuses to open a folder twice."""
        from streaming import StreamingDataLoader, StreamingDataset

        place = Path(tempfile.mkdtemp(dir=self._task.folder)) / "mds"
        place.symlink_to(self._task.folder / "mosaic")
        dataset = StreamingDataset(
            local=str(place), shuffle=True, batch_size=self._task.batch, shuffle_seed=1
        )
        return StreamingDataLoader(dataset, batch_size=self._task.batch, num_workers=0)

    def batches(self) -> Iterator[int]:
        """Epoch after epoch."""
        loader = self.loader()
        while True:
            for rows in loader:
                yield rows["tokens"][:, :-1].numel()

    def resume(self, part: float) -> tuple[float, int]:
        """Return a loader resumed from a state."""
        state = {
            "epoch": 0,
            "sample_in_epoch": int(part * self._samples),
            "num_canonical_nodes": 1,
            "shuffle_seed": 1,
            "initial_physical_nodes": 1,
        }
        return timed_resume(self.loader, pickle.dumps(state))


def timed_resume(make: Callable[[], Any], state: bytes) -> tuple[float, int]:
    """Measure a new loader from a saved state to its first batch."""
    begun = time.perf_counter()
    loader = make()
    loader.load_state_dict(pickle.loads(state))  # noqa: S301 - made above
    next(iter(loader))
    taken = time.perf_counter() - begun
    del loader
    gc.collect()
    return taken, len(state)


ARMS: Final[dict[str, Callable[[ReadTask], Any]]] = {
    "gather": Gather,
    "ours": partial(TrainyardLoader, ahead=0),
    "ours_ahead": partial(TrainyardLoader, ahead=GPU_PREFETCH_STEPS),
    "torchdata": TorchData,
    "litdata": LitData,
    "nanogpt": NanoGpt,
    "mosaic": Mosaic,
}
"""`batches()` reads for ever and yields the tokens of each batch. What can go on from a state has
`resume(part)`: seconds from the state after this part of an epoch to the next batch, and its bytes."""


def speed(batches: Iterator[int], seconds: float) -> tuple[int, float]:
    """Tokens, and the CPU seconds that they took on all threads of this process."""
    tokens = 0
    begun = time.process_time()
    while (taken := time.process_time() - begun) < seconds:
        tokens += next(batches)
    return tokens, taken


def main() -> None:
    """Serve requests until standard input ends."""
    name, folder, length, batch, seed = sys.argv[1:]
    torch.set_num_threads(1)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # keep what libraries print out of the results
    arm = ARMS[name](
        ReadTask(folder=Path(folder), length=int(length), batch=int(batch), seed=int(seed))
    )
    batches = arm.batches()
    next(batches)
    print("ready", file=answers)
    for line in sys.stdin:
        what, amount = json.loads(line)
        answer = speed(batches, amount) if what == "speed" else arm.resume(amount)
        print(json.dumps(answer), file=answers)
    answers.flush()
    os._exit(0)  # taking libraries apart is not measured


if __name__ == "__main__":
    main()
