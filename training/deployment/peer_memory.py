"""Runs with peer memory: what they need of the platform, and the process that their pods run besides the ranks.

The trainer's configuration decides (`peer_memory.every_steps`); docs/peer-memory.md explains the use.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping
from typing import Final

from infra.config.errors import ConfigIssue
from infra.domain import quantity
from training.spec import RunSpec
from training.trainer.config import ModelConfig
from training.trainer.config.peer_memory import SLOTS, STATE_BYTES

JOB_KIND: Final = "indexed-job"
"""The job kind whose pods stay when one is lost."""
_DIVIDING: Final = ("pipeline", "shard", "tensor")
"""Dimensions over whose ranks the state is divided."""
_PATH: Final = "config: peer_memory.every_steps"


def is_enabled(run: RunSpec) -> bool:
    """Return whether the run keeps snapshots in the memory of its nodes."""
    section = run.config.get("peer_memory")
    return isinstance(section, Mapping) and bool(section.get("every_steps"))


def companion(run: RunSpec) -> str:
    """Return the command of the keeper, which runs as long as the pod."""
    words = ["python", "-m", "training.peer_memory.keeper", "--run-dir", run.run_dir]
    words += ["--nodes", str(run.nodes), "--grace-seconds", str(run.grace.termination_grace_s)]
    store = run.config.get("checkpoint", {}).get("store")
    return shlex.join([*words, *(["--store", store] if store else [])])


def node_bytes(run: RunSpec) -> int | None:
    """Return the memory of one node for snapshots and the staging of checkpoints; None for a model of a folder.

    A node holds its own part of the state and its neighbour's, twice each while the next snapshot is written.
    """
    parameters = ModelConfig(**run.config.get("model", {})).parameters()
    if parameters is None:
        return None
    divided = math.prod(n for name, n in run.parallelism.items() if name in _DIVIDING)
    parts = min(run.processes_per_node, divided)
    own = STATE_BYTES * parameters * parts // divided
    return 2 * SLOTS * own + own


def check(run: RunSpec, memory: str) -> Iterator[ConfigIssue]:
    """Yield why the run cannot have peer memory. `memory`: of its pods."""
    if not is_enabled(run):
        return
    if run.job_kind != JOB_KIND:
        yield ConfigIssue(
            path=_PATH,
            code="unsupported-job-kind",
            problem=f"jobKind {run.job_kind} replaces all pods of a gang that loses one, and their memory",
            valid=f"requires jobKind {JOB_KIND}",
            action=f"set jobKind: {JOB_KIND}, or peer_memory.every_steps: 0",
        )
    if run.nodes < 2:
        yield ConfigIssue(
            path=_PATH,
            code="single-node",
            problem="a run of one node has no other node",
            valid="requires at least 2 nodes",
            action="set peer_memory.every_steps: 0, or more nodes",
        )
    needed = node_bytes(run)
    if needed is not None and quantity.bytes_(memory) < needed:
        yield ConfigIssue(
            path="resources.memory",
            code="too-little-memory",
            problem=f"{memory} per node",
            valid=f"must be at least {quantity.memory(_whole_gib(needed))} for the snapshots of peer memory alone",
            action="raise it, use more nodes, or set peer_memory.every_steps: 0",
        )


def _whole_gib(size: int) -> int:
    return -(-size // quantity.GIB) * quantity.GIB
