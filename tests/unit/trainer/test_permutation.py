"""The order of the data is computed: any position, any depth, the same every time."""

from __future__ import annotations

import numpy as np
import pytest

from trainer.data.sampler import Permutation


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 15, 16, 17, 1000, 4097, 65_536])
def test_every_thing_comes_exactly_once(size: int) -> None:
    order = Permutation(size, seed=7, epoch=0)(np.arange(size, dtype=np.int64))
    assert sorted(order.tolist()) == list(range(size))


def test_positions_can_be_asked_in_any_pieces() -> None:
    permutation = Permutation(1000, seed=3, epoch=2)
    whole = permutation(np.arange(1000, dtype=np.int64))
    pieces = [permutation(np.arange(k, k + 10, dtype=np.int64)) for k in range(990, -1, -10)]
    assert np.concatenate(pieces[::-1]).tolist() == whole.tolist()


def test_another_seed_or_epoch_is_another_order() -> None:
    positions = np.arange(1000, dtype=np.int64)
    orders = [Permutation(1000, s, e)(positions) for s, e in ((0, 0), (1, 0), (0, 1), (1, 1))]
    agreeing = [np.sum(a == b) for i, a in enumerate(orders) for b in orders[i + 1 :]]
    assert max(agreeing) < 20  # independent orders agree in one place on average


def test_neighbours_are_not_kept_together() -> None:
    order = Permutation(100_000, seed=0, epoch=0)(np.arange(100_000, dtype=np.int64))
    assert np.mean(np.abs(np.diff(order)) == 1) < 0.001
    assert abs(np.corrcoef(order, np.arange(100_000))[0, 1]) < 0.02


def test_the_order_never_changes_between_releases() -> None:
    order = Permutation(10, seed=42, epoch=1)(np.arange(10, dtype=np.int64))
    assert order.tolist() == [3, 5, 4, 8, 0, 6, 1, 7, 9, 2]


def test_a_position_a_trillion_deep_is_computed() -> None:
    permutation = Permutation(10**15, seed=0, epoch=0)
    (thing,) = permutation(np.array([10**12], dtype=np.int64))
    assert 0 <= thing < 10**15
