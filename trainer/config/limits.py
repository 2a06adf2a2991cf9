"""Limits of single settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainer.config_errors import ConfigIssue

Issues = Iterator[ConfigIssue]


def out_of_range(path: str, value: Any, valid: str, action: str = "change it") -> ConfigIssue:
    """Return the issue of a value outside of its limits."""
    return ConfigIssue(
        path=path, problem=f"{value} is not valid", valid=valid, action=action, code="out-of-range"
    )


def positive(path: str, value: float | None) -> Issues:
    """`value` > 0, or null where a setting can be switched off."""
    if value is not None and not value > 0:
        switch = path.rpartition(".")[2].startswith("every_") and value == 0
        yield out_of_range(
            path, value, "must be above 0", "use null to switch it off" if switch else "raise it"
        )


def not_negative(path: str, value: float) -> Issues:
    """`value` >= 0."""
    if value < 0:
        yield out_of_range(path, value, "must be 0 or above", "raise it")


def fraction(path: str, value: float) -> Issues:
    """0 <= `value` < 1."""
    if not 0 <= value < 1:
        yield out_of_range(path, value, "must be at least 0 and below 1")
