"""Types of the fixture that compares printed texts with tests/unit/ops/snapshots/."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Text = Callable[[Any], None]
"""Compare a text, or a sequence of texts, with the snapshot of the running test."""
