"""Readiness of an object: ready, waiting or failed, with reasons."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sandbox.provider.cluster import Cluster
from sandbox.provider.objects import Object, at


@dataclass(frozen=True)
class Progress:
    """`reasons`: what is missing. `failed`: waiting cannot help."""

    ready: bool
    reasons: tuple[str, ...] = ()
    failed: bool = False


READY = Progress(ready=True)

Check = Callable[[Cluster, Object], Progress]
"""Checks a live object and related objects in the cluster once."""


def waiting(*reasons: str) -> Progress:
    return Progress(ready=False, reasons=reasons)


def failed(*reasons: str) -> Progress:
    return Progress(ready=False, reasons=reasons, failed=True)


def condition(obj: Object, kind: str) -> Object:
    """A status condition by type; empty when it is not there."""
    for found in at(obj, ("status", "conditions"), []) or []:
        if found.get("type") == kind:
            result: Object = found
            return result
    return {}


def is_true(obj: Object, kind: str) -> bool:
    return condition(obj, kind).get("status") == "True"


def explain(found: Object) -> str:
    """Return a condition's message, else its reason."""
    return str(found.get("message") or found.get("reason") or found.get("type") or "")


def is_observed(obj: Object) -> bool:
    """Whether the controller has observed the newest generation."""
    seen = at(obj, ("status", "observedGeneration"))
    wanted = at(obj, ("metadata", "generation"))
    return seen is not None and (wanted is None or seen >= wanted)
