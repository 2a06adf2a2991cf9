"""What is kept of replicas that differ where no majority decides, until the same step is computed again.

With two replicas neither is known to be right. The run restarts from the last checkpoint on which they agreed,
and its steps give the same bits again; at the step of the dispute the value that is nearer to the new one was
right, if all replicas agree on the new one: a broken device may repeat its error. It need not be equal: the
gradients of the wrong replica have reached the other one.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import torch

from trainyard.culprits import FOLDER
from trainyard.tensors.local_tensors import Groups, local_data

REPEATS_MAX: Final = 3
"""Times that a step is computed again because of one dispute; if the replicas still differ, the run ends."""
_FILE: Final = "dispute.json"
_CLEARLY: Final = 1e-3
"""By how much one replica's parts of all distances must exceed the others'."""
_TIMES_USUAL: Final = 64.0
"""A value this many times larger than its tensor's usual ones is wrong where another replica has a usual one."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a rank was."""

    rank: int
    node: str
    pod: str


@dataclass(frozen=True, kw_only=True)
class Element:
    """One number on which the replicas differ."""

    group: str
    tensor: str
    index: int
    """In the rank's part of the tensor, as one row."""
    usual: float
    """Root of the mean square of the elements around it."""
    values: tuple[float, ...]
    """By replica, in the order of `Dispute.places`."""

    @property
    def name(self) -> str:
        """`TENSOR[INDEX]`."""
        return f"{self.tensor}[{self.index}]"


@dataclass(frozen=True, kw_only=True)
class Dispute:
    """Replicas that differ at a step."""

    step: int
    attempt: int
    layout: Mapping[str, int]
    """Of the ranks that hold a model together: with another one the elements are not where they were."""
    rank: int
    """A rank of that layout that has the elements."""
    places: tuple[Place, ...]
    """One rank for each of the differing values."""
    elements: tuple[Element, ...]
    repeats: int = 0
    """How often the step was computed again before, and the replicas differed again."""

    def to_json(self) -> bytes:
        """Return the content of the file."""
        return json.dumps(asdict(self)).encode()


def implausible(elements: Sequence[Element]) -> int | None:
    """Return the position of the replica whose values cannot be; None if that is not clear."""
    votes: dict[int, int] = {}
    for element in elements:
        wild = [position for position, v in enumerate(element.values) if _is_wild(v, element.usual)]
        if len(wild) == 1:
            votes[wild[0]] = votes.get(wild[0], 0) + 1
    return next(iter(votes)) if len(votes) == 1 else None


def _is_wild(value: float, usual: float) -> bool:
    return not math.isfinite(value) or abs(value) > _TIMES_USUAL * max(usual, 1e-30)


def farthest(dispute: Dispute, values: Sequence[float]) -> int | None:
    """Return the position of the replica that is farther from the values computed again; None: undecided.

    Of each number every replica gets its part of all distances, so that clear differences count more.
    """
    parts = [0.0] * len(dispute.places)
    for element, value in zip(dispute.elements, values, strict=True):
        distances = [_distance(one, value) for one in element.values]
        total = sum(distances)
        for position, distance in enumerate(distances):
            parts[position] += (
                0.0 if not total else 1.0 if math.isinf(distance) else distance / total
            )
    order = sorted(range(len(parts)), key=lambda position: parts[position])
    return order[-1] if parts[order[-1]] - parts[order[-2]] > _CLEARLY else None


def _distance(one: float, other: float) -> float:
    return abs(one - other) if math.isfinite(one) else math.inf


def read_values(groups: Groups, elements: Sequence[Element]) -> list[float] | None:
    """Return these numbers as this rank has them now; None if it has no such tensors."""
    found = []
    for element in elements:
        tensor = groups.get(element.group, {}).get(element.tensor)
        if tensor is None or element.index >= local_data(tensor).numel():
            return None
        found.append(float(local_data(tensor).reshape(-1)[element.index]))
    return found


class DisputeFile:
    """The open dispute of a run."""

    def __init__(self, run_dir: Path) -> None:
        self._file = run_dir / FOLDER / _FILE

    def write(self, dispute: Dispute) -> None:
        """Record it, in place of an older one. Raises OSError."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._file.with_name(f".{_FILE}-{os.getpid()}")
        fresh.write_bytes(dispute.to_json() + b"\n")
        fresh.replace(self._file)

    def read(self) -> Dispute | None:
        """Return the open dispute; None without one, or if it cannot be read."""
        try:
            return parse(self._file.read_bytes())
        except OSError:
            return None

    def close(self) -> None:
        """Forget the dispute."""
        with contextlib.suppress(OSError):
            self._file.unlink()


def parse(content: bytes) -> Dispute | None:
    """Return a dispute as `Dispute.to_json` gives it; None for anything else."""
    try:
        return _dispute(json.loads(content))
    except (ValueError, TypeError, KeyError):
        return None


def _dispute(values: Mapping[str, object]) -> Dispute:
    """Return a dispute. Raises KeyError, TypeError, ValueError."""
    named = dict(values)
    places, elements = named.pop("places"), named.pop("elements")
    if not all(isinstance(one, list) for one in (places, elements)):
        raise TypeError("lists")
    return Dispute(
        places=tuple(Place(**one) for one in places),  # type: ignore[attr-defined]
        elements=tuple(
            Element(**{**one, "values": tuple(one["values"])})
            for one in elements  # type: ignore[attr-defined]
        ),
        **named,  # type: ignore[arg-type]
    )


def usual_size(tensor: torch.Tensor) -> float:
    """Return the root of the mean square of the finite elements."""
    finite = tensor[torch.isfinite(tensor)].double()
    ordered = finite.abs().sort().values
    # Without the largest ones, of which a flipped one may be one.
    kept = ordered[: max(1, len(ordered) - 8)]
    return float(kept.square().mean().sqrt()) if len(kept) else 0.0
