"""Find an object by its id or name; a name that several teams have given is ambiguous."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from ops.cluster import ClusterError

T = TypeVar("T")


class AmbiguousNameError(ClusterError):
    """Objects of several teams have the name; the text lists them."""


class Named(NamedTuple):
    """How an object can be called."""

    id: str
    name: str
    namespace: str


def find(what: str, known: Sequence[T], wanted: str, named: Callable[[T], Named]) -> T | None:
    """Return the first object with this id, else the first with this name; None if none has it.

    `what`: its kind, for the message. Raises AmbiguousNameError if objects of several namespaces have it.
    """
    ids = [one for one in known if named(one).id == wanted]
    found = ids or [one for one in known if named(one).name == wanted]
    if len({named(one).namespace for one in found}) > 1:
        places = ", ".join(f"{named(one).id} in {named(one).namespace}" for one in found)
        remedy = "pass --team" if ids else "pass --team, or the whole id"
        raise AmbiguousNameError(
            f"{what} {wanted!r}: several teams have one: {places}; expected the name of one; {remedy}"
        )
    return found[0] if found else None
