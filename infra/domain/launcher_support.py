"""Which launchers a cluster can run, by the operators that it has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from infra.domain.scheduler import UNSUITED, Scheduler

NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    "job": (),
    "indexed-job": (),
    "jobset": ("jobset",),
    "trainjob": ("jobset", "kubeflowTrainer"),
    "pytorchjob": ("trainingOperator",),
    "mpijob": ("mpiOperator",),
}
"""Operators that each launcher's objects need, beside the scheduler."""


def launchers(present: frozenset[str], scheduler: Scheduler) -> frozenset[str]:
    """Launchers that a cluster with these operators can run, and this scheduler hold together."""
    unsuited = UNSUITED.get(scheduler, {})
    return frozenset(
        name for name, needs in NEEDS.items() if present.issuperset(needs) and name not in unsuited
    )
