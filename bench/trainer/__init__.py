"""Benchmarks of programs and of the trainer, without a cluster."""

from __future__ import annotations

from typing import Final

SAVE_INTERVAL_S: Final = 120.0
"""Time between checkpoints that a save is told: how long it may pause depends on it."""
