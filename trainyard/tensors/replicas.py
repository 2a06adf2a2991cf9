"""One checksum of the state over its replicas, before a save: where they differ, nothing is saved.

    replicas.check([model.state_dict(), optimizer.state_dict()], step)     # of trainyard.tensors, on all ranks

Ranks that hold the same part of the model must agree in every bit: they add the same sums of gradients to the same
numbers. So the newest checkpoint is always from before a difference, and its steps can be taken again.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.utils._pytree import tree_flatten, tree_leaves

from trainyard import session
from trainyard.culprits import CORRUPT, NO_RANK, Culprit, Verdicts, node_name, pod_name
from trainyard.tensors.local_tensors import is_sharded, local_data, local_tensor

_WORDS: Final = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}


class ReplicasDiffer(Exception):
    """Replicas of the state are not the same; nothing is saved of them."""


@dataclass(frozen=True)
class Replica:
    """What one rank holds, and where that rank is."""

    rank: int
    checksum: str
    node: str
    pod: str

    @classmethod
    def of(cls, state: Any, rank: int) -> Replica:
        """Return this rank's. `state`: tensors in lists and dictionaries."""
        return cls(rank, checksum(tree_leaves(state)), node_name(), pod_name())

    def to_json(self) -> bytes:
        """Return it as `from_json` reads it."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, content: bytes) -> Replica:
        return cls(**json.loads(content))


def checksum(values: Iterable[Any]) -> str:
    """Return a hash of the sums of each tensor's bits, which are computed where the tensor is.

    A sum of 64-bit numbers: no single flipped bit can leave it as it was.
    """
    sums = [_sum(value) for value in values if isinstance(value, torch.Tensor)]
    found = torch.stack([one.cpu() for one in sums]) if sums else torch.zeros(0)
    return hashlib.blake2b(found.numpy().tobytes(), digest_size=8).hexdigest()


def _sum(tensor: torch.Tensor) -> torch.Tensor:
    flat = local_data(tensor).detach().reshape(-1)
    size = flat.element_size()
    if flat.numel() * size % 8 or not flat.numel():
        return flat.view(_WORDS[size]).sum(dtype=torch.int64)
    if flat.storage_offset() * size % 8:
        flat = flat.clone()
    return flat.view(torch.int64).sum()


def check(state: Any, step: int) -> None:
    """Check that ranks of the default process group with the same part of the state agree in it. A call of all.

    Ranks have the same part if their tensors have the same names and, of DTensors, the same boxes. Raises
    ReplicasDiffer on each rank.
    """
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return
    rank, parts = dist.get_rank(), [""] * dist.get_world_size()
    dist.all_gather_object(parts, _part(state))
    if len(set(parts)) == len(parts):
        return
    found: list[Any] = [None] * len(parts)
    dist.all_gather_object(found, Replica.of(state, rank))
    current = session.current()
    for part in sorted(set(parts)):
        same = [one for one in found if parts[one.rank] == part]
        require_same(same, step, current.folder, current.fence.attempt)


def _part(state: Any) -> str:
    leaves, names = tree_flatten(state)
    tensors = [one for one in leaves if isinstance(one, torch.Tensor)]
    boxes = [local_tensor(one).share.box if is_sharded(one) else None for one in tensors]
    return hashlib.blake2b(f"{names} {boxes}".encode(), digest_size=8).hexdigest()


def require_same(found: Sequence[Replica], step: int, run_dir: Path, attempt: int) -> None:
    """Raise ReplicasDiffer, with the ranks named that differ from the majority, unless all are the same.

    Each of the ranks may call it: the first one makes it known.
    """
    (most, count), *rest = Counter(one.checksum for one in found).most_common()
    if not rest:
        return
    if 2 * count > len(found):
        wrong = [one for one in found if one.checksum != most]
        what = "its replica of the state differs from the others'"
        evidence = f"{count} of {len(found)} replicas agree after step {step}"
        text = f"{_places(wrong)} differs from {count} replicas that agree"
    else:
        wrong = [Replica(NO_RANK, "", "", "")]
        text = f"replicas differ: {_places(found)}"
        what, evidence = f"{text}; no majority shows which is wrong", _places(found)
    for one in wrong:
        culprit = Culprit(
            symptom=CORRUPT,
            rank=one.rank,
            node=one.node,
            pod=one.pod,
            step=step,
            attempt=attempt,
            time=time.time(),
            what=what,
            evidence=(evidence,),
        )
        name = f"attempt-{attempt:08d}-{CORRUPT}-step-{step}-rank-{one.rank}"
        Verdicts(run_dir).announce(name, culprit)
    raise ReplicasDiffer(
        f"step {step}: {text}; nothing is saved, and the newest checkpoint is from before it"
    )


def _places(found: Sequence[Replica]) -> str:
    return ", ".join(f"rank {one.rank} on {one.node}" for one in found)
