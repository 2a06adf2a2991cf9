"""A version of a run keeps the document with which it was launched."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from .model import UNKNOWN, Config, Resource, StackRule, Violation, dig

STASH: Final = "pulumi:index:Stash"
"""A value in the state: `output` is what `input` was when it was created."""
KEY: Final = "runDocument"
_SHOWN: Final = 8


def _check(resources: Sequence[Resource], _: Config) -> Iterable[Violation]:
    for resource in resources:
        if resource.type != STASH:
            continue
        launched = dig(resource.props, "output", KEY)
        now = dig(resource.props, "input", KEY)
        if launched is None or UNKNOWN in (launched, now) or launched == now:
            continue
        yield Violation(
            path="document",
            got=f"{str(now)[:_SHOWN]}, the hash of another one than this version was launched with",
            expected=str(launched)[:_SHOWN],
            remedy="raise `version` in the run file, or take the edit back: the run would be stopped,"
            " and start again from step 0 under another id",
            urn=resource.urn,
        )


RUN_DOCUMENTS: Final = StackRule(
    name="run-documents",
    description="A run's document is edited only with a new version.",
    check=_check,
)
