"""The scheduler of runs and what it requires of operators, cluster and teams."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from infra.domain.scheduler import MAX_GRACE_S
from infra.sections.types import Int, StrictModel

_RESTART_S: Final = 300
"""For the pods that follow those that save, in seconds: a node's image, volumes, loading."""

_Seconds = Annotated[Int, Field(ge=1, le=86400)]


class GangTimeoutsConfig(StrictModel):
    """Timeouts of the Kueue that the stack installs."""

    start_seconds: _Seconds = 1200
    """Seconds from admission until all pods are ready, starting nodes and pulling images included; then the gang
    is evicted and queued again."""
    recovery_seconds: _Seconds = MAX_GRACE_S + _RESTART_S
    """The same after the loss of a ready pod, the others' save included."""
    backoff_seconds: _Seconds = 60
    """Seconds before an evicted gang may be admitted again; doubles each time."""
    max_backoff_seconds: _Seconds = 3600
    """Maximum of `backoffSeconds`."""
