"""Callback type for progress messages."""

from __future__ import annotations

from collections.abc import Callable

Report = Callable[[str], None]
"""Receives one line or a short phrase for the current step."""
