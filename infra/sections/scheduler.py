"""The scheduler of runs and what it requires of operators, cluster and teams."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from infra.addons.kueue_config import PRODUCTION_TIMEOUTS, Timeouts
from infra.sections.types import Int, StrictModel

_Seconds = Annotated[Int, Field(ge=1, le=86400)]


class GangTimeoutsConfig(StrictModel):
    """Timeouts of the Kueue that the stack installs."""

    start_seconds: _Seconds = PRODUCTION_TIMEOUTS.start
    """Seconds from a gang's admission until all of its pods are ready, new nodes and images included; then it is
    evicted and queued again."""
    recovery_seconds: _Seconds = PRODUCTION_TIMEOUTS.recovery
    """The same after the loss of a ready pod, the save of the others included."""
    backoff_seconds: _Seconds = PRODUCTION_TIMEOUTS.backoff_base
    """Seconds before an evicted gang may be admitted again; doubles with every such eviction."""
    max_backoff_seconds: _Seconds = PRODUCTION_TIMEOUTS.backoff_max
    """Most of these seconds."""

    @property
    def timeouts(self) -> Timeouts:
        """Return the timeouts for Kueue's configuration."""
        return Timeouts(
            start=self.start_seconds,
            recovery=self.recovery_seconds,
            backoff_base=self.backoff_seconds,
            backoff_max=self.max_backoff_seconds,
        )
