"""Which view follows another, and the views and members that all groups read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Final

from training.spec import EXIT_DONE, EXIT_PREEMPTED
from training.trainer.config.groups import GroupsConfig
from training.trainer.elastic.views import Member, View, ViewLog

DONE = "done"
"""Reason of the view that ends a run whose last step is taken."""
_ROLLBACK: Final = "states differ: "
"""Beginning of the reason of a view after which the run goes on from its newest checkpoint."""
_UNSETTLED: Final = f"{_ROLLBACK}again: "
"""Beginning of the reason of such a view if its members end: they differ each time that they compute a step."""


class Excluded(Exception):
    """The others went on without this group, which may join again."""


class RolledBack(Excluded):
    """The states of the groups differ: all of them are dropped, and the run goes on from a checkpoint."""


class RunEnded(Exception):
    """The others ended the run."""

    def __init__(self, view: View) -> None:
        self.code = EXIT_DONE if view.reason == DONE else EXIT_PREEMPTED
        super().__init__(f"the run ended with {self.code}")


def next_view(
    view: View,
    groups: GroupsConfig,
    reason: str,
    gone: set[str],
    joining: Sequence[Member],
    ready: Sequence[str] = (),
) -> View:
    """Return the view after this one: without those that are gone, with the joining members last.

    `ready`: groups that could join, too.
    """
    members = [member for member in view.members if member.id not in gone]
    members += joining
    formed = view.formed or len(members) >= groups.min
    return View(
        number=view.number + 1,
        members=tuple(members),
        formed=formed,
        reason=reason,
        attempt=view.attempt + (members[:1] != list(view.members[:1])),
        ready=tuple(ready),
    )


def end_view(view: View, reason: str) -> View:
    """Return the view that ends the run after this one."""
    return View(
        number=view.number + 1, members=(), formed=False, reason=reason, attempt=view.attempt
    )


def rollback_view(view: View, text: str, *, final: bool) -> View:
    """Return the view after which the run goes on from its newest checkpoint, on which all groups agreed.

    `final`: only new processes go on, those of the members end.
    """
    return end_view(view, f"{_UNSETTLED if final else _ROLLBACK}{text}")


def is_rollback(view: View) -> bool:
    """Return whether the state that groups had in the views before is not to be used."""
    return view.ended and view.reason.startswith(_ROLLBACK)


def unsettled(view: View) -> str:
    """Return why the members of the view before have to end; empty if they go on."""
    found = is_rollback(view) and view.reason.startswith(_UNSETTLED)
    return view.reason.removeprefix(_UNSETTLED) if found else ""


def rolled_back(log: ViewLog, after: int, last: int) -> bool:
    """Return whether the run was rolled back in a view after `after`, up to `last`."""
    return any(is_rollback(log.read(number)) for number in range(after + 1, last + 1))


def write_member(log: ViewLog, member: Member) -> None:
    """Publish how to reach a member that wants to join."""
    file = log.folder / f"member-{member.id}.json"
    temporary = file.with_suffix(".new")
    temporary.write_text(json.dumps(asdict(member)) + "\n", encoding="utf-8")
    temporary.replace(file)


def remove_member(log: ViewLog, member: Member) -> None:
    """Take back what `write_member` published."""
    (log.folder / f"member-{member.id}.json").unlink(missing_ok=True)


def read_members(log: ViewLog, ids: Sequence[str]) -> list[Member]:
    """Return how to reach joining members; without those that are gone, or cannot be read."""
    found = []
    for member_id in ids:
        try:
            text = (log.folder / f"member-{member_id}.json").read_text(encoding="utf-8")
        except OSError:
            continue
        found.append(Member.from_json(json.loads(text)))
    return found
