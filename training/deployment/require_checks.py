"""What a run requires of its place: only what can be measured there."""

from __future__ import annotations

from collections.abc import Iterator

from infra.config.errors import ConfigIssue
from training.spec import RunSpec


def collectives(run: RunSpec) -> Iterator[ConfigIssue]:
    """A bandwidth is measured by ranks that torchrun starts, and by more than one."""
    if run.collective_gbps is None:
        return
    reason = ""
    if run.launcher == "mpijob":
        reason = "with launcher mpijob, whose mpirun starts ranks its own way"
    elif run.world_size == 1:
        reason = "for a run of one GPU, which has no collectives"
    if reason:
        yield ConfigIssue(
            path="require.collectiveGBps",
            problem=f"got {run.collective_gbps:g}",
            valid=f"allowed nothing {reason}",
            action="remove it" + (", or set launcher: jobset" if "mpi" in reason else ""),
        )
