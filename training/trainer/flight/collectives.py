"""Collectives of this rank, as torch knows them: how many were issued, and which are not complete.

torch keeps a flight recorder of its own for gloo and NCCL (the last 2,000 collectives; TORCH_FR_BUFFER_SIZE).
It is in the memory of the process, and is read only when something is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
import torch.distributed as dist

_BACKENDS: Final = ("gloo", "nccl2", "nccl")
"""Recorders of torch that may exist in a process."""
_SHOWN: Final = 4
_CONTEXT: Final = 3
"""Collectives by which the place of the next one is recognized."""
_COMPARED: Final = 64
"""Collectives of which two ranks compare the kinds."""
_TIMES: Final = 3
"""As often that place must have been seen."""
_counters: list[Callable[[], int]] = []


@dataclass(frozen=True)
class Collective:
    """One entry of torch's recorder."""

    number: int
    """In its process group, from 1."""
    group: str
    """Its description, which several process groups may share."""
    group_name: str
    """No other process group has it."""
    name: str
    """Such as `gloo:all_reduce`."""
    sizes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    complete: bool

    @property
    def kind(self) -> str:
        """Operation, sizes and types."""
        shapes = " ".join(str(list(size)) for size in self.sizes)
        kinds = " ".join(sorted(set(self.dtypes)))
        return f"{self.name} {shapes} {kinds}"

    @property
    def place(self) -> str:
        """Where it belongs: all ranks of the process group issue the same kind there."""
        return f"collective {self.number} of process group {self.group_name}"

    @property
    def text(self) -> str:
        """The collective in words."""
        return f"{self.kind} (number {self.number} of group {self.group})"


def count_all() -> None:
    """Count the collectives of all process groups that exist now."""
    _counters[:] = _find_counters() if dist.is_initialized() else []


def forget_all() -> None:
    """Let go of the process groups, before they are destroyed: torch aborts if they outlive the interpreter."""
    _counters.clear()


def issued() -> int:
    """Return how many collectives this rank has issued in the groups of `count_all`."""
    return sum(counter() for counter in _counters)


def _find_counters() -> list[Callable[[], int]]:
    """Return one counter per backend of each group: a group has one for CPU and one for GPU tensors."""
    found: dict[int, Callable[[], int]] = {}
    groups: Any = dist.distributed_c10d._world.pg_map
    for group in groups:
        backends = [group._get_backend(torch.device(kind)) for kind in group._device_types]
        counted = [one for one in backends if hasattr(one, "_get_sequence_number_for_group")]
        for one in counted or [group]:
            found[id(one)] = one._get_sequence_number_for_group
    return list(found.values())


def recorded() -> list[Collective]:
    """Return the collectives that torch has recorded of this rank, the newest last."""
    entries = [entry for backend in _BACKENDS for entry in _dump(backend)]
    return [one for entry in entries if (one := parse(entry))]


def last_of(found: Sequence[Collective]) -> Sequence[Collective]:
    """Return the last collectives: those that are not complete, else the newest ones."""
    waiting = [one for one in found if not one.complete]
    return (waiting or found)[-_SHOWN:]


def kinds(found: Sequence[Collective]) -> dict[str, str]:
    """Return what was issued last, by its place."""
    return {one.place: one.kind for one in found[-_COMPARED:]}


def departs(found: Sequence[Collective]) -> bool:
    """Return whether the newest collective never came after the same ones before.

    Each step issues the same ones: if so, one was left out or added.
    """
    issued = [(one.group_name, one.kind) for one in found]
    places = range(len(issued) - 1 - _CONTEXT)
    context = issued[-1 - _CONTEXT : -1]
    after = [issued[n + _CONTEXT] for n in places if issued[n : n + _CONTEXT] == context]
    return len(after) >= _TIMES and issued[-1] not in after


def parse(entry: Mapping[str, Any]) -> Collective | None:
    """Return an entry of torch's recorder; None if it has another form than expected."""
    try:
        return Collective(
            number=int(entry["collective_seq_id"] or entry["p2p_seq_id"]),
            group=str(entry["process_group"][1] or entry["process_group"][0]),
            group_name=str(entry["process_group"][0]),
            name=str(entry["profiling_name"]),
            sizes=tuple(tuple(int(n) for n in size) for size in entry["input_sizes"]),
            dtypes=tuple(str(kind) for kind in entry["input_dtypes"]),
            complete=bool(entry["retired"]) or entry["state"] == "completed",
        )
    except (KeyError, IndexError, TypeError, ValueError):
        return None


def _dump(backend: str) -> list[dict[str, Any]]:
    """Return the entries of one of torch's recorders; empty where it does not exist."""
    dump: Any = getattr(torch._C._distributed_c10d, "_dump_fr_trace_json", None)
    try:
        values = json.loads(dump(True, False, backend=backend)) if dump else {}
    except (RuntimeError, ValueError, TypeError):
        return []
    entries = values.get("entries")
    return list(entries) if isinstance(entries, list) else []
