"""Kubernetes quantities."""

from __future__ import annotations

import random
from decimal import Decimal

import pytest

from infra.domain.quantity import bytes_, cpu, memory, millicores, parse


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("500m", Decimal("0.5")),
        ("4Gi", Decimal(4 * 2**30)),
        ("1e3", Decimal(1000)),
        ("2E", Decimal(2 * 10**18)),
        ("2Ei", Decimal(2 * 2**60)),
        ("5n", Decimal("5e-9")),
        ("5u", Decimal("5e-6")),
        ("-12e-1", Decimal("-1.2")),
        ("1k", Decimal(1000)),
        ("0.1", Decimal("0.1")),
        ("5Ti", Decimal(5 * 2**40)),
    ],
)
def test_a_quantity_is_read_exactly(text: str, value: Decimal) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Gi",
        "5Tb",
        "1 Gi",
        "4GiB",
        "four",
        "1 Gi x",
        "NaN",
        "1..2",
        "1e",
        " 1",
        "1e9999",
        "\u0661",
    ],
)
def test_invalid_quantity_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        parse(text)


def test_formatted_quantity_parses_to_the_same_amount() -> None:
    chance = random.Random("quantity")
    for _ in range(2000):
        amount = chance.randrange(2 ** chance.randrange(1, 62))
        assert bytes_(memory(amount)) == amount
        assert millicores(cpu(amount)) == amount


def test_every_suffix_scales_any_number_by_its_factor() -> None:
    chance = random.Random("suffixes")
    powers = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
    for _ in range(500):
        number = (
            f"{chance.choice(('', '+', '-'))}{chance.randrange(10**6)}.{chance.randrange(10**6)}"
        )
        for suffix, power in powers.items():
            scaled = Decimal(number).scaleb(power)
            assert parse(number + suffix) == parse(f"{number}e{power}") == scaled
        for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1):
            assert parse(number + suffix) == Decimal(number) * 1024**power
