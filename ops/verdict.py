"""The verdict on a run: one headline, the objects that support it, and remedies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ops.snapshot import Snapshot


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Result of one symptom check."""

    symptom: str
    """Stable identifier for scripts."""
    headline: str
    """One sentence without the run's name."""
    evidence: tuple[str, ...] = ()
    """`OBJECT: observation`, strongest evidence first."""
    remedy: tuple[str, ...] = ()
    """What to do, one step per line; empty if there is nothing to do."""


Symptom = Callable[[Snapshot], Verdict | None]
"""Check for one symptom; None if it does not match. Pure."""

Note = Callable[[Snapshot], list[str]]
"""Lines about the run's past."""
