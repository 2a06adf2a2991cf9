"""`--sample`: some of what takes long runs, the same in each worker; over many seeds, all does."""

from __future__ import annotations

from tests.conftest import SAMPLE_S, sample

SECONDS = {f"test_{name}.py": SAMPLE_S / 10 for name in "abcdefghijklmnopqrstuvwxyz"}


def test_drawn_until_the_time_is_filled_whatever_the_order() -> None:
    assert len(sample(SECONDS, 1)) == 10
    assert sample(SECONDS, 1) == sample(dict(reversed(SECONDS.items())), 1)
    assert sample({}, 1) == set()


def test_each_is_drawn_by_some_seed_also_what_takes_longer_than_the_time() -> None:
    seconds = SECONDS | {"test_longest.py": 2 * SAMPLE_S}
    assert set().union(*(sample(seconds, seed) for seed in range(300))) == set(seconds)


def test_what_is_drawn_takes_no_longer_than_the_time_unless_it_is_one() -> None:
    seconds = SECONDS | {"test_long.py": 0.9 * SAMPLE_S, "test_longest.py": 2 * SAMPLE_S}
    for seed in range(100):
        drawn = sample(seconds, seed)
        assert len(drawn) == 1 or sum(seconds[name] for name in drawn) <= SAMPLE_S
