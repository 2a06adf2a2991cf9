"""How far an object is on its way to being ready."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sandbox.provider.cluster import Cluster
from sandbox.provider.objects import Object, at


@dataclass(frozen=True)
class Progress:
    """`reasons` say what is missing. `failed`: it will not get ready by waiting."""

    ready: bool
    reasons: tuple[str, ...] = ()
    failed: bool = False


READY = Progress(ready=True)

Check = Callable[[Cluster, Object], Progress]
"""Looks at a live object once, and at what else in the cluster tells its progress."""


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
    """A condition in words: its message, else its reason."""
    return str(found.get("message") or found.get("reason") or found.get("type") or "")


def is_observed(obj: Object) -> bool:
    """Whether the controller has seen the newest generation of the object."""
    seen = at(obj, ("status", "observedGeneration"))
    wanted = at(obj, ("metadata", "generation"))
    return seen is not None and (wanted is None or seen >= wanted)
