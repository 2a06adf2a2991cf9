"""What commands tell the user: progress, and failures."""

from __future__ import annotations

from collections.abc import Callable

Report = Callable[[str], None]
"""Receives one line or a short phrase for the current step."""


class SandboxError(Exception):
    """A failure caused by input or by the machine; the text is one line."""
