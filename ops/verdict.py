"""What is said about a run: one headline, the objects that prove it, and what helps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ops.snapshot import Snapshot


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The answer of one symptom."""

    symptom: str
    """A name for scripts; it never changes."""
    headline: str
    """One sentence without the run's name."""
    evidence: tuple[str, ...] = ()
    """`OBJECT: what it says`, most telling first."""
    remedy: tuple[str, ...] = ()
    """What to do, one step a line; empty if there is nothing to do."""


Symptom = Callable[[Snapshot], Verdict | None]
"""Looks for one thing; None: it is not that. Pure."""

Note = Callable[[Snapshot], list[str]]
"""Lines on what happened to the run before."""
