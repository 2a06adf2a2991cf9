"""Samples that are read ahead are those that are asked for, and no more than there is room for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.unit.trainer.datasets import dataset
from trainer.data.prefetch import PrefetchLoader, PrefetchPlan
from trainer.data.sampler import Sampler
from trainer.data.windows import DatasetVersion, Int64s, Tokens, TokenWindows

BATCH = 4
STEPS = 40
PATIENCE_S = 60.0


class Watched(Sampler):
    """Counts the rows that were gathered, and can be made to fail."""

    gathered = 0
    broken = False

    def __init__(self, windows: TokenWindows) -> None:
        super().__init__(windows, seed=1)
        self.changed = threading.Condition()
        self.gate = threading.Event()
        self.gate.set()

    def gather(self, places_B: Int64s) -> Tokens:
        if self.broken:
            raise OSError(5, "Input/output error")
        if threading.current_thread().name.startswith("feed"):
            assert self.gate.wait(PATIENCE_S)
        with self.changed:
            self.gathered += len(places_B)
            self.changed.notify_all()
        return super().gather(places_B)

    def wait_until_gathered(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.gathered >= count, PATIENCE_S)


@pytest.fixture
def order(tmp_path: Path) -> Watched:
    folder, index = dataset(tmp_path, [list(range(101))])
    return Watched(TokenWindows([DatasetVersion(folder=folder, index=index)], "train", 4))


def plan(ahead: int, rank: int = 0, world: int = 1) -> PrefetchPlan:
    share = range(BATCH * rank // world, BATCH * (rank + 1) // world)
    return PrefetchPlan(share=share, step_samples=BATCH, end=BATCH * STEPS, steps_ahead=ahead)


@pytest.fixture
def feeds() -> Iterator[list[PrefetchLoader]]:
    made: list[PrefetchLoader] = []
    yield made
    for feed in made:
        feed.close()


def feed(order: Sampler, feeds: list[PrefetchLoader], wanted: PrefetchPlan) -> PrefetchLoader:
    feeds.append(PrefetchLoader(order, wanted, torch.device("cpu")))
    return feeds[-1]


@pytest.mark.parametrize("ahead", [0, 1, 2, 3, 8, 100])
@pytest.mark.parametrize(("rank", "world"), [(0, 1), (1, 2), (3, 4)])
def test_every_step_gets_its_own_samples_however_many_are_read_ahead(
    ahead: int, rank: int, world: int, order: Watched, feeds: list[PrefetchLoader]
) -> None:
    wanted = plan(ahead, rank, world)
    reading = feed(order, feeds, wanted)
    for step in range(5, STEPS):  # more than one epoch of 25 windows
        first, count = step * BATCH + wanted.share.start, len(wanted.share)
        expected = order.take(first, count).tolist()
        assert reading.take(first, count).tolist() == expected


def test_a_step_out_of_turn_gets_its_own_samples_and_so_do_those_after_it(
    order: Watched, feeds: list[PrefetchLoader]
) -> None:
    reading = feed(order, feeds, plan(4))
    for step in (0, 1, 2, 20, 21, 3, 4, 39, 0):
        expected = order.take(step * BATCH, BATCH).tolist()
        assert reading.take(step * BATCH, BATCH).tolist() == expected
    assert reading.take(8, 2).tolist() == order.take(8, 2).tolist()  # no step's share
    assert reading.take(BATCH, BATCH).tolist() == order.take(BATCH, BATCH).tolist()


def test_what_was_being_read_for_another_place_is_dropped(
    order: Watched, feeds: list[PrefetchLoader]
) -> None:
    reading = feed(order, feeds, plan(4))
    order.gate.clear()  # the thread hangs in the steps after the first
    reading.take(0, BATCH)
    reading.take(20 * BATCH, BATCH)
    order.gate.set()
    for step in range(21, 30):
        expected = order.take(step * BATCH, BATCH).tolist()
        assert reading.take(step * BATCH, BATCH).tolist() == expected


def test_no_more_is_read_ahead_than_there_is_room_for(
    order: Watched, feeds: list[PrefetchLoader]
) -> None:
    reading = feed(order, feeds, plan(4))
    reading.take(0, BATCH)
    order.wait_until_gathered(5 * BATCH)
    for step in range(1, 4):
        reading.take(step * BATCH, BATCH)
    order.wait_until_gathered(7 * BATCH)  # read again when half was used
    assert order.gathered <= 8 * BATCH


def test_nothing_behind_the_end_of_the_run_is_read(
    order: Watched, feeds: list[PrefetchLoader]
) -> None:
    reading = feed(order, feeds, plan(8))
    for step in range(STEPS - 3, STEPS):
        reading.take(step * BATCH, BATCH)
    reading.close()
    assert order.gathered == 3 * BATCH


def test_what_fails_in_the_background_fails_the_step_that_needs_it(
    order: Watched, feeds: list[PrefetchLoader]
) -> None:
    reading = feed(order, feeds, plan(2))
    reading.take(0, BATCH)
    order.wait_until_gathered(3 * BATCH)
    order.broken = True
    with pytest.raises(OSError, match="Input/output"):
        for step in range(1, 5):
            reading.take(step * BATCH, BATCH)
