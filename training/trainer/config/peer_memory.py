"""Copies of the state in the memory of two nodes."""

from __future__ import annotations

from dataclasses import dataclass

from training.trainer.config.limits import Issues, not_negative

SLOTS = 2
"""Snapshots of a rank's part in the memory of a node: one is written while the other is whole."""
STATE_BYTES = 12
"""Of a parameter: its value and AdamW's two moments, in float32."""


@dataclass(frozen=True, kw_only=True)
class PeerMemoryConfig:
    """Snapshots of the state in the memory of this rank's node and of the next one, for runs of several nodes."""

    every_steps: int = 0
    """Steps between snapshots. The loss of a node costs at most so many finished steps; with 1 none that is in
    metrics.jsonl. 0: no snapshots."""

    @property
    def enabled(self) -> bool:
        """Whether snapshots are taken."""
        return self.every_steps > 0

    def validate(self) -> Issues:
        """Yield what cannot work."""
        yield from not_negative("peer_memory.every_steps", self.every_steps)
