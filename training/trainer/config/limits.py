"""Limits of single settings, as lines for the user."""

from __future__ import annotations

from collections.abc import Iterator

Mistakes = Iterator[str]
"""One line each: path, got, allowed, remedy."""


def positive(path: str, value: float | None) -> Mistakes:
    """`value` > 0, or null where a setting may be switched off."""
    if value is not None and not value > 0:
        off = "; use null to switch it off" if path.count("every_") and value == 0 else ""
        yield f"{path}: got {value}; allowed > 0{off}"


def not_negative(path: str, value: float) -> Mistakes:
    """`value` >= 0."""
    if value < 0:
        yield f"{path}: got {value}; allowed >= 0"


def fraction(path: str, value: float) -> Mistakes:
    """0 <= `value` < 1."""
    if not 0 <= value < 1:
        yield f"{path}: got {value}; allowed 0 up to, not including, 1"
