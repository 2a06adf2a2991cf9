"""Each step's samples are the same for any number of ranks, and can be found at any depth."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.unit.trainer.datasets import dataset
from trainer.data.dataset import open_version
from trainer.data.sampler import Sampler, baseline_loss, evaluation_windows
from trainer.data.windows import DatasetVersion, TokenWindows
from trainer.prepare.dataset import DatasetError

LENGTH = 4


@pytest.fixture
def order(tmp_path: Path) -> Sampler:
    """11 windows in three shards: 6, 0 (too short) and 5."""
    train = [list(range(0, 26)), [99, 98], list(range(100, 121))]
    folder, index = dataset(tmp_path, train)
    return Sampler(
        TokenWindows([DatasetVersion(folder=folder, index=index)], "train", LENGTH), seed=1
    )


def test_an_epoch_has_every_window_once_with_its_next_token(order: Sampler) -> None:
    rows = sorted(row.tolist() for row in order.take(0, 11))
    expected = [list(range(k, k + 5)) for k in (*range(0, 24, 4), *range(100, 120, 4))]
    assert rows == expected


def test_the_next_epoch_has_another_order_of_the_same(order: Sampler) -> None:
    first, second = order.take(0, 11).tolist(), order.take(11, 11).tolist()
    assert first != second
    assert sorted(first) == sorted(second)


@pytest.mark.parametrize("world", [1, 2, 3, 4, 6])
def test_any_number_of_ranks_reads_the_same_samples_for_a_step(world: int, order: Sampler) -> None:
    batch, step = 12, 3
    whole = order.take(step * batch, batch).tolist()
    size = batch // world
    shares = [order.take(step * batch + rank * size, size).tolist() for rank in range(world)]
    assert [row for share in shares for row in share] == whole


def test_changing_ranks_in_the_middle_uses_each_sample_once(order: Sampler) -> None:
    used: Counter[tuple[int, ...]] = Counter()
    samples = 0
    for ranks in (2, 1, 4, 1, 2):
        for rank in range(ranks):
            size = 4 // ranks
            used.update(map(tuple, order.take(samples + rank * size, size).tolist()))
        samples += 4
    # 20 samples over 11 windows: nothing a third time, everything at least once
    assert len(used) == 11 and set(used.values()) <= {1, 2} and used.total() == 20


def test_the_cursor_is_a_few_integers(order: Sampler) -> None:
    cursor = order.cursor(25)
    assert (cursor.samples, cursor.windows, cursor.seed) == (25, 11, 1)


def test_text_shorter_than_a_sample_is_refused(tmp_path: Path) -> None:
    folder, index = dataset(tmp_path, [[1, 2, 3, 4]])
    with pytest.raises(DatasetError, match=r"sequence_length \+ 1 = 5"):
        TokenWindows([DatasetVersion(folder=folder, index=index)], "train", LENGTH)


@pytest.mark.parametrize(("wanted", "got"), [(3, 3), (6, 6), (100, 6)])
def test_the_evaluation_set_is_spread_evenly(wanted: int, got: int, tmp_path: Path) -> None:
    folder, index = dataset(tmp_path, [[0] * 9], [list(range(25))])
    chosen = evaluation_windows(
        TokenWindows([DatasetVersion(folder=folder, index=index)], "eval", LENGTH), wanted
    ).tolist()
    assert len(chosen) == len(set(chosen)) == got
    assert chosen == sorted(chosen) and chosen[0] == 0 and chosen[-1] >= 6 - 6 // got


def test_the_baseline_is_the_cross_entropy_of_token_frequencies(tmp_path: Path) -> None:
    _, index = dataset(tmp_path, [[7] * 600 + [8] * 200])
    targets = np.array([[7, 7, 8]], dtype=np.uint16)
    total = 800 + 257
    expected = -(2 * math.log(601 / total) + math.log(201 / total)) / 3
    assert baseline_loss([index.unigram_counts], targets) == pytest.approx(expected, rel=1e-12)


def test_all_bad_shards_are_named_before_the_first_step(tmp_path: Path) -> None:
    folder, _ = dataset(tmp_path, [list(range(9)), list(range(9)), list(range(9))])
    (folder / "shard-train-00001.bin").unlink()
    np.zeros(9, dtype="<u2").tofile(folder / "shard-train-00002.bin")
    with pytest.raises(DatasetError) as caught:
        open_version(folder, full_check=True)
    lines = str(caught.value).splitlines()
    assert [line.partition(": ")[2].split()[0].strip(";") for line in lines] == [
        "missing",
        "corrupt",
    ]
    with pytest.raises(DatasetError) as caught:
        open_version(folder, full_check=False)
    assert len(str(caught.value).splitlines()) == 1  # sizes alone do not tell
