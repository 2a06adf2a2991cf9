"""Replica groups that may join and leave while the run trains."""

from __future__ import annotations

from dataclasses import dataclass

from trainer.config.limits import Issues, not_negative, out_of_range, positive


@dataclass(frozen=True, kw_only=True)
class GroupsConfig:
    """Elastic replica groups: processes or gangs. Every loss is the same for any number of groups."""

    min: int = 1
    """Training begins with so many groups; below it the run saves and ends with exit code 75."""
    max: int = 0
    """Groups that take part at most; further ones wait. 0: the run is not elastic."""
    spares: int = 0
    """Waiting groups that hold the state and follow every step, so that they replace a lost one at once."""
    workers: int = 8
    """Logical workers into which each step's samples are divided, a power of two. Losses are bit-identical only
    for equal numbers of them."""
    silent_after_s: float = 2.0
    """Seconds without a sign of life after which a group counts as lost."""

    @property
    def enabled(self) -> bool:
        """Whether the run is elastic."""
        return self.max > 0

    def validate(self) -> Issues:
        """Yield what cannot work."""
        yield from positive("groups.min", self.min)
        yield from positive("groups.silent_after_s", self.silent_after_s)
        yield from not_negative("groups.spares", self.spares)
        if self.spares > 0 and not self.enabled:
            yield out_of_range(
                "groups.spares", self.spares, "must be 0 while groups.max is 0", "set groups.max"
            )
        if self.max < 0:
            yield out_of_range("groups.max", self.max, "must be 0 or above", "raise it")
        if self.workers < 1 or self.workers & (self.workers - 1):
            yield out_of_range("groups.workers", self.workers, "must be a power of two")
        elif self.enabled and self.max > self.workers:
            yield out_of_range(
                "groups.max",
                self.max,
                f"must be at most groups.workers = {self.workers}",
                "lower it, or raise groups.workers",
            )
        if self.enabled and self.min > self.max:
            yield out_of_range(
                "groups.min", self.min, f"must be at most groups.max = {self.max}", "lower it"
            )
