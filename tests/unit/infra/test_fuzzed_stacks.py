"""Randomly mutated stack files (fixed seed) load or are rejected with well-formed issues."""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Iterator
from datetime import date
from typing import Any, Final

import pytest

from infra.config import ConfigError, parse, platform_record
from infra.domain.quantity import GIB
from tests.golden.example_runs import stack_values as existing
from tests.unit.infra.config_issues import codes
from tests.unit.infra.example_eks import stack_values as eks

Place = tuple[str | int, ...]

TRIES: Final = 100
"""Mutations per stack; thousands more found no further defects."""

CODE: Final = re.compile(r"(.|\n)+: [a-z0-9-]+")
LINE: Final = re.compile(r".+?: .+; .+; .+")

SPOILS: Final[tuple[Any, ...]] = (
    *(None, True, 0, -1, 2**63, 10**400, 0.5, float("nan"), float("inf"), GIB),
    *(
        "",
        " ",
        "a",
        "1",
        "x" * 63,
        "x" * 500,
        "A_b",
        "a\nb",
        "a: b",
        "\0",
        "\N{RIGHT-TO-LEFT OVERRIDE}",
    ),
    *(
        "${x}",
        "{{ .x }}",
        "$(id)",
        "';--",
        "<script>",
        "*",
        "../x",
        "%s",
        "é",
        "\N{SUPERSCRIPT TWO}",
    ),
    *("900m", "1e3", "5Ti", "9" * 20 + "Pi", "0.0.0.0/0", "10.0.0.0/33", "* * * * 7", "s3://a"),
    *([], {}, [None], [[]], ["a"], {"a": 1}, {None: 1}, {1: 2}, date(2026, 1, 1), 750),
    *("spot", "research", "us-east-1a", "p4d.24xlarge", "trainer", "kube-system"),
)


def places(value: Any, here: Place = ()) -> Iterator[Place]:
    """Paths of all keys and elements of a file."""
    if here:
        yield here
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, (*here, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from places(inner, (*here, index))


def spoilt(values: dict[str, Any], chance: random.Random) -> tuple[Any, dict[str, Any]]:
    """Return a description of one random change, removal or rename, and the changed stack."""
    values = copy.deepcopy(values)
    *path, last = chance.choice(list(places(values)))
    holder: Any = values
    for part in path:
        holder = holder[part]
    spoil = chance.choice(SPOILS)
    act = chance.choice(("put", "put", "put", "drop", "rename"))
    if act == "put":
        holder[last] = copy.deepcopy(spoil)
    else:
        held = holder.pop(last)
        if act == "rename" and isinstance(holder, dict) and isinstance(spoil, str | int | None):
            holder[spoil] = held
    return (act, (*path, last), spoil), values


@pytest.mark.parametrize("stack", ["existing", "eks"])
def test_mutated_stack_loads_or_is_rejected_with_issues(stack: str) -> None:
    chance = random.Random(stack)
    sound = existing() if stack == "existing" else eks()
    refused = 0
    for _ in range(TRIES):
        what, values = spoilt(sound, chance)
        try:
            platform_record.platform(parse(values), "example")
        except ConfigError as error:
            refused += 1
            assert error.lines, what
            assert all(CODE.fullmatch(code) for code in codes(error)), what
            assert all(LINE.fullmatch(line) and line.isprintable() for line in error.lines), what
            assert len(set(error.lines)) == len(error.lines), what
        except Exception as error:
            pytest.fail(f"{what}: {error!r}")
    assert TRIES // 2 < refused < TRIES
