"""Kubernetes quantities."""

from __future__ import annotations

from decimal import Decimal

import pytest

from sandbox.quantity import divide, parse


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


@pytest.mark.parametrize("text", ["", "Gi", "4GiB", "four", "1 Gi x", "NaN", "1..2", "1e"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        parse(text)


def test_division_rounds_up_and_zero_divides_by_one() -> None:
    assert divide("1500m", "1") == 2
    assert divide("1500m", "0") == 2
    assert divide("1Gi", "1Mi") == 1024
