"""Samples: windows of shards and of documents, of one dataset and of several, in an order that is computed."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from tests.unit.trainer.datasets import BOUNDARY, dataset
from trainer.data.dataset import combine_datasets
from trainer.data.sampler import Mixture, Sampler, baseline_loss, evaluation_windows
from trainer.data.windows import DatasetVersion, Documents, Int64s, TokenWindows
from trainer.prepare.dataset import DatasetError

LENGTH = 4


def windows(opened: list[DatasetVersion], documents: Documents = "join") -> TokenWindows:
    return TokenWindows(opened, "train", LENGTH, documents)


def all_rows(found: TokenWindows) -> list[list[int]]:
    rows: list[list[int]] = found.gather(np.arange(len(found), dtype=np.int64)).tolist()
    return rows


def opened(root: Path, train: list[list[int]], vocab_size: int = 257) -> DatasetVersion:
    folder, index = dataset(root, train, vocab_size=vocab_size)
    return DatasetVersion(folder=folder, index=index)


def test_windows_that_join_documents_use_every_token_of_a_shard_once_as_a_target(
    tmp_path: Path,
) -> None:
    tokens = [1, 2, BOUNDARY, 3, 4, 5, BOUNDARY, 6, 7]
    assert all_rows(windows([opened(tmp_path, [tokens])])) == [tokens[:5], tokens[4:]]


def test_separate_documents_are_never_joined_and_each_keeps_its_end(tmp_path: Path) -> None:
    long = [*range(1, 11), BOUNDARY]  # 11 tokens: two windows, and one that ends with it
    exact = [*range(20, 24), BOUNDARY]
    short = [30, BOUNDARY]
    found = windows([opened(tmp_path, [long + short + exact, short * 3])], "separate")
    assert all_rows(found) == [long[0:5], long[4:9], long[6:11], exact]


def test_the_rest_of_a_document_that_was_cut_is_a_document_of_its_shard(tmp_path: Path) -> None:
    source = opened(tmp_path, [[1, 2, 3, 4, 5, 6]])
    (shard,) = source.index.shards_of("train")
    np.array([5], dtype="<u8").tofile(source.folder / shard.starts_name)
    assert all_rows(windows([source], "separate")) == [[1, 2, 3, 4, 5]]


def test_a_dataset_of_short_documents_only_cannot_be_read_separately(tmp_path: Path) -> None:
    source = opened(tmp_path, [[1, 2, BOUNDARY] * 5])
    assert len(windows([source])) == 3
    with pytest.raises(DatasetError, match="no train document holds"):
        windows([source], "separate")


@pytest.mark.parametrize("vocab_size", [65_536, 65_537, 200_000])
def test_tokens_of_large_vocabularies_are_read_as_they_are(vocab_size: int, tmp_path: Path) -> None:
    tokens = [vocab_size - 1, 0, 65_535, 1, 2]
    found = windows([opened(tmp_path, [tokens], vocab_size)])
    assert all_rows(found) == [tokens]
    assert found.gather(np.zeros(1, dtype=np.int64)).itemsize == (2 if vocab_size == 65_536 else 4)


def test_windows_of_many_files_are_one_gather_in_any_order(tmp_path: Path) -> None:
    first = opened(tmp_path / "a", [list(range(k, k + 14)) for k in (0, 20, 40)])
    second = opened(tmp_path / "b", [list(range(100, 109))])
    found = windows([first, second])
    assert found.sizes == [9, 2]
    everything = all_rows(found)
    assert [row[0] for row in everything] == [0, 4, 8, 20, 24, 28, 40, 44, 48, 100, 104]
    mixed = np.random.default_rng(3).permutation(11)
    assert found.gather(mixed).tolist() == [everything[k] for k in mixed]


@pytest.mark.parametrize("weights", [(7, 3), (1, 1, 1), (5, 1, 2), (99, 1), (1,)])
def test_shares_of_a_mixture_are_exact_in_every_round_and_near_anywhere(
    weights: tuple[int, ...],
) -> None:
    total = sum(weights)
    sources, numbers = Mixture(weights).find(np.arange(7 * total, dtype=np.int64))
    for source, weight in enumerate(weights):
        mine = sources == source
        # Each dataset's samples are counted 0, 1, 2 ... without a gap.
        assert numbers[mine].tolist() == list(range(7 * weight))
        in_prefix: Int64s = np.cumsum(mine)
        due = np.arange(1, 7 * total + 1) * weight / total
        assert np.abs(in_prefix - due).max() <= len(weights)
        assert (in_prefix[total - 1 :: total] == weight * np.arange(1, 8)).all()


def test_a_mixture_uses_each_window_of_each_dataset_once_per_epoch_of_its_own(
    tmp_path: Path,
) -> None:
    first = opened(tmp_path / "a", [list(range(0, 33))])  # 8 windows
    second = opened(tmp_path / "b", [list(range(100, 113))])  # 3 windows
    order = Sampler(windows([first, second]), 1, (2, 1))
    firsts = [row[0] for row in order.take(0, 12).tolist()]
    assert sorted(k for k in firsts if k < 100) == list(range(0, 32, 4))
    of_second = [k for k in firsts if k >= 100]
    assert sorted(of_second[:3]) == [100, 104, 108] and len(of_second) == 4


@pytest.mark.parametrize("world", [1, 2, 4])
def test_any_number_of_ranks_mixes_the_same_samples_into_a_step(world: int, tmp_path: Path) -> None:
    first = opened(tmp_path / "a", [list(range(0, 33))])
    second = opened(tmp_path / "b", [list(range(100, 113))])
    order = Sampler(windows([first, second]), 1, (2, 1))
    whole = order.take(16, 8).tolist()
    size = 8 // world
    shares = [Sampler(windows([first, second]), 1, (2, 1)) for _ in range(world)]
    rows = [s.take(16 + rank * size, size).tolist() for rank, s in enumerate(shares)]
    assert [row for part in rows for row in part] == whole


def test_the_evaluation_set_has_each_dataset_by_its_weight(tmp_path: Path) -> None:
    first = opened(tmp_path / "a", [list(range(0, 101))])  # 25 windows
    second = opened(tmp_path / "b", [list(range(100, 141))])  # 10 windows
    chosen = evaluation_windows(windows([first, second]), 12, (2, 1))
    assert (chosen < 25).sum() == 8 and (chosen >= 25).sum() == 4
    assert len(set(chosen.tolist())) == 12


@pytest.fixture
def order(tmp_path: Path) -> Sampler:
    """11 windows in three shards: 6, 0 (too short) and 5."""
    train = [list(range(0, 26)), [99, 98], list(range(100, 121))]
    return Sampler(windows([opened(tmp_path, train)]), seed=1)


def test_an_epoch_has_every_window_once_with_its_next_token(order: Sampler) -> None:
    rows = sorted(row.tolist() for row in order.take(0, 11))
    expected = [list(range(k, k + 5)) for k in (*range(0, 24, 4), *range(100, 120, 4))]
    assert rows == expected


def test_the_next_epoch_has_another_order_of_the_same(order: Sampler) -> None:
    first, second = order.take(0, 11).tolist(), order.take(11, 11).tolist()
    assert first != second
    assert sorted(first) == sorted(second)


def test_text_shorter_than_a_sample_is_refused(tmp_path: Path) -> None:
    short = [opened(tmp_path, [[1, 2, 3, 4]])]
    with pytest.raises(DatasetError, match=r"sequence_length \+ 1 = 5"):
        windows(short)


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


def test_a_dataset_alone_keeps_its_version_and_a_mixture_has_one_by_versions_and_weights(
    tmp_path: Path,
) -> None:
    one, two = (
        opened(tmp_path / "a", [list(range(20))]),
        opened(tmp_path / "b", [list(range(50, 70))]),
    )
    assert combine_datasets([one], [1], ["/a"]).version == one.index.version
    versions = {
        combine_datasets([one], [1], ["/a"]).version,
        combine_datasets([one, two], [1, 1], ["/a", "/b"]).version,
        combine_datasets([one, two], [2, 1], ["/a", "/b"]).version,
        combine_datasets([two, one], [1, 1], ["/b", "/a"]).version,
    }
    assert len(versions) == 4
    assert (
        combine_datasets([one, two], [1, 1], ["/elsewhere", "/b"]).version in versions
    )  # not where it lies


def test_datasets_with_other_tokens_are_not_mixed(tmp_path: Path) -> None:
    one, two = (
        opened(tmp_path / "a", [list(range(20))]),
        opened(tmp_path / "b", [list(range(50, 70))], 300),
    )
    with pytest.raises(DatasetError, match="/b uses another tokenizer than /a"):
        combine_datasets([one, two], [1, 1], ["/a", "/b"])
