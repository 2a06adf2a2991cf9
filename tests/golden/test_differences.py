"""Differences by path lead from one value to another and back."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.golden.differences import applied, difference


@pytest.mark.parametrize(
    ("base", "value", "changes", "removed"),
    [
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 3, "c": 2}}, {"a.b": 3}, []),
        ({"a": 1, "x.y/z": 2}, {"a": 1}, {}, ['["x.y/z"]']),
        ({"a": [1, 2, 3], "k": 0}, {"a": [1, 3], "k": 0}, {"a[1:2]": []}, []),
        ({"a": ["x", "y"]}, {"a": ["x", "z"]}, {"a[1]": "z"}, []),
        ({"t": "a\nb\nc\nd\n"}, {"t": "a\nc\nd\n"}, {"t|[1:2]": []}, []),
        ({"a": 1}, {"a": 1.0}, {"a": 1.0}, []),
        (
            {"l": [{"name": "p", "v": [1, 2, 3]}, {"name": "q", "v": 1}]},
            {"l": [{"name": "n", "v": 0}, {"name": "p", "v": [1, 2, 4]}, {"name": "q", "v": 1}]},
            {"l[0:0]": [{"name": "n", "v": 0}], "l[0].v[2]": 4},
            [],
        ),
    ],
)
def test_difference_is_minimal(
    base: Any, value: Any, changes: dict[str, Any], removed: list[str]
) -> None:
    assert difference(base, value) == (changes, removed)
    assert applied(base, changes, removed) == value


def test_applying_a_random_difference_restores_the_value() -> None:
    for seed in range(500):
        chance = random.Random(seed)
        base, value = _value(chance, 4), _value(chance, 4)
        for one in (value, _changed(chance, base)):
            assert applied(base, *difference(base, one)) == one, seed


def _value(chance: random.Random, depth: int) -> Any:
    kind = chance.choice("dlst") if depth else "s"
    if kind == "d":
        keys = chance.sample(["name", "kind", "a.b", "c/d", "e", "0", 'q"'], chance.randint(0, 5))
        return {key: _value(chance, depth - 1) for key in keys}
    if kind == "l":
        return [_value(chance, depth - 1) for _ in range(chance.randint(0, 4))]
    if kind == "t":
        return "\n".join(chance.choices("abc", k=chance.randint(1, 5)))
    return chance.choice([1, 2, "x", "y", True, 1.5])


def _changed(chance: random.Random, value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _changed(chance, v) for k, v in value.items() if chance.random() > 0.1}
    if isinstance(value, list):
        return [_changed(chance, v) for v in value if chance.random() > 0.2]
    return value if chance.random() > 0.1 else chance.choice([7, "z\nw"])
