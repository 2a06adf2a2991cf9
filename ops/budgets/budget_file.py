"""Budgets as a file: what the stack publishes for `cost enforce` in the cluster, where the stack file is not."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ops.budgets.decision import Budget, Level
from ops.cluster import ClusterError


@dataclass(frozen=True, kw_only=True)
class TeamBudget:
    """A team's budget, and which of its runs a drain stops."""

    budget: Budget
    spot_flavors: tuple[str, ...]
    """Pools whose runs are stopped."""
    usual_priority: int
    """Runs below it are stopped on every pool."""


def parse(found: Sequence[Mapping[str, Any]]) -> list[TeamBudget]:
    """Return budgets in the form of `infra.config.arguments.budgets`. Raises KeyError, TypeError, ValueError."""
    return [
        TeamBudget(
            budget=Budget(
                team=str(one["team"]),
                usd_per_month=one["usdPerMonth"],
                gpu_hours_per_month=one["gpuHoursPerMonth"],
                warn_at=float(one["warnAt"]),
                action=Level[str(one["action"]).upper()],
            ),
            spot_flavors=tuple(one["spotFlavors"]),
            usual_priority=int(one["usualPriority"]),
        )
        for one in found
    ]


def read(file: Path) -> list[TeamBudget]:
    """Return the budgets in a file; none is valid: then spending is only recorded. Raises ClusterError."""
    try:
        return parse(json.loads(file.read_text(encoding="utf-8")))
    except OSError as error:
        raise ClusterError(f"--budgets: {file}: not readable: {error.strerror}") from None
    except (ValueError, TypeError, KeyError) as error:
        raise ClusterError(
            f"--budgets: {file}: not the stack's budgets ({error!r}); run pulumi up to write it again"
        ) from None
