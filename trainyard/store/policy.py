"""When a checkpoint is written and which ones are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainyard.store import policy
from trainyard.store.interface import CheckpointStore
from trainyard.store.manifest import CorruptCheckpoint, Manifest, UnknownFormat

INTERVAL = "interval"
TIME = "time"
MILESTONE = "milestone"
NOTICE = "notice"
END = "end"


@dataclass(frozen=True, kw_only=True)
class SavePolicy:
    """Reasons to save, by steps and by the clock."""

    every_steps: int | None
    every_seconds: float | None
    milestone_every_steps: int | None

    def is_milestone(self, step: int) -> bool:
        return bool(self.milestone_every_steps) and step % (self.milestone_every_steps or 1) == 0

    def time_due(self, seconds_since_save: float) -> bool:
        return self.every_seconds is not None and seconds_since_save >= self.every_seconds

    def reason(self, step: int, *, time_due: bool) -> str | None:
        """Return the reason to save after this step, or None."""
        if self.is_milestone(step):
            return MILESTONE
        if self.every_steps is not None and step % self.every_steps == 0:
            return INTERVAL
        return TIME if time_due else None


def steps_to_delete(
    manifests: Sequence[Manifest], *, keep_latest: int, last_known_good: int | None
) -> list[int]:
    """Return the steps to delete, oldest first, given every readable checkpoint.

    Kept are the newest `keep_latest`, the one with the lowest evaluation loss, all milestones, and
    the last known good: the newest that a start of this run has loaded whole.
    """
    ordered = sorted(manifests, key=lambda manifest: manifest.step)
    kept = {manifest.step for manifest in ordered[-keep_latest:] if keep_latest > 0}
    kept |= {manifest.step for manifest in ordered if manifest.milestone}
    evaluated = [manifest for manifest in ordered if manifest.evaluation_loss is not None]
    if evaluated:
        kept.add(min(evaluated, key=lambda manifest: manifest.evaluation_loss or 0.0).step)
    if last_known_good is not None:
        kept.add(last_known_good)
    return [manifest.step for manifest in ordered if manifest.step not in kept]


def apply_retention(store: CheckpointStore, keep_latest: int) -> None:
    """Delete readable checkpoints that the policy does not keep, oldest first. Raises OSError."""
    manifests: list[Manifest] = []
    for step in store.steps():
        try:
            manifests.append(store.manifest(step))
        except (CorruptCheckpoint, UnknownFormat):
            continue
    good = store.last_known_good()
    for step in policy.steps_to_delete(manifests, keep_latest=keep_latest, last_known_good=good):
        store.delete(step)
