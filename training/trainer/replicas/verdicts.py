"""What is made known of replicas that differ: the rank that was wrong, or that none can be named."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from training.trainer.replicas.disputes import Dispute, Element, Place
from trainyard.culprits import CORRUPT, NO_RANK, Culprit

_DIFFERS: Final = "its replica of the model differs from the others'"


def wrong_rank(step: int, attempt: int, place: Place, evidence: tuple[str, ...]) -> Culprit:
    """Return the verdict on a rank whose values are wrong."""
    return Culprit(
        symptom=CORRUPT,
        rank=place.rank,
        node=place.node,
        pod=place.pod,
        step=step,
        attempt=attempt,
        time=time.time(),
        what=_DIFFERS,
        evidence=evidence,
    )


def no_rank(dispute: Dispute, what: str) -> Culprit:
    """Return the verdict on a dispute in which no rank can be named, with all candidates."""
    return Culprit(
        symptom=CORRUPT,
        rank=NO_RANK,
        node="",
        pod="",
        step=dispute.step,
        attempt=dispute.attempt,
        time=time.time(),
        what=what,
        evidence=(
            *(values_text(one, dispute.places) for one in dispute.elements[:1]),
            *(_place_text(place) for place in dispute.places),
        ),
    )


def values_text(element: Element, places: Sequence[Place]) -> str:
    """Return what a number is on each of these ranks."""
    values = ", ".join(
        f"{value:.9g} on rank {place.rank}"
        for value, place in zip(element.values, places, strict=True)
    )
    return f"{element.name} is {values}; numbers around it are {element.usual:.3g} in size"


def _place_text(place: Place) -> str:
    pod = f", pod {place.pod}" if place.pod else ""
    return f"rank {place.rank} is on {place.node}{pod}"
