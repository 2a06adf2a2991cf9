"""Agreement of all ranks on a notice and on whether to save, by one all-reduce per step (torch.distributed)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import trainyard


def notice_agreed() -> bool:
    """Return whether any rank has received a notice: the same answer on every rank.

    A collective call: all ranks call it at the same step. Without an initialized process group it is this
    process's own notice.
    """
    return _any_rank(trainyard.notice.requested())


def save(
    step: int, write: Callable[[Path], None], metadata: Mapping[str, Any] | None = None
) -> None:
    """Publish a checkpoint whose files `write` puts into the folder; a collective call."""
    with trainyard.checkpoints.save(step, metadata=dict(metadata or {})) as folder:
        write(folder)


def finish_step(step: int, save: Callable[[int], None], *, every: int, last: bool = False) -> None:
    """Save when a checkpoint is due; after a notice save once more and end with exit code 75.

    A collective call after each step. `save`: writes a checkpoint of the step. `every`: steps between
    checkpoints, 0 for none but the last; `last`: the program is complete after this step, so a notice changes
    nothing. When the time left after a notice is shorter than the last save took, nothing is saved and the
    next attempt resumes from the previous checkpoint.
    """
    notice = notice_agreed()
    due = last or (every > 0 and step % every == 0)
    if due or (notice and not too_late_to_save()):
        save(step)
    if last:
        trainyard.finished()
    elif notice:
        trainyard.exit_preempted()


def too_late_to_save() -> bool:
    """Return whether, on any rank, less time is left after a notice than its last save took; a collective call."""
    left = trainyard.notice.seconds_left()
    return _any_rank(left is not None and left < trainyard.checkpoints.last_save_s())


def _any_rank(flag: bool) -> bool:
    if not (dist.is_available() and dist.is_initialized()):
        return flag
    # NCCL reduces tensors of its own device only.
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    seen = torch.tensor(int(flag), device=device)
    dist.all_reduce(seen, op=dist.ReduceOp.MAX)
    return bool(seen.item())
