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
        launched = dig(resource.props, "output", KEY)
        now = dig(resource.props, "input", KEY)
        if resource.type != STASH or launched in (None, UNKNOWN, now) or now is UNKNOWN:
            continue
        yield Violation(
            "document",
            f"{str(now)[:_SHOWN]}, the hash of another one than this version was launched with",
            str(launched)[:_SHOWN],
            "raise `version` in the run file, or take the edit back: the run would be stopped,"
            " and start again from step 0 under another id",
            resource.urn,
        )


RUN_DOCUMENTS: Final = StackRule(
    name="run-documents",
    description="A run's document is edited only with a new version.",
    check=_check,
)
