"""How a process becomes a member of a run, and which view follows another."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Final

from training.trainer.config.groups import GroupsConfig
from training.trainer.elastic.computation import Computation
from training.trainer.elastic.links import JOIN, Listener
from training.trainer.elastic.transfer import JoinFailed, follow, receive_state
from training.trainer.elastic.views import Member, View, ViewLog
from trainyard.notice import Notice

_RETRY_S: Final = 0.1
_LEASE_SLACK_S: Final = 3.0


class Excluded(Exception):
    """The others went on without this group, which may join again."""


class RunEnded(Exception):
    """The others ended the run."""

    def __init__(self, code: int) -> None:
        super().__init__(f"the run ended with {code}")
        self.code = code


@dataclass(frozen=True)
class Entry:
    """How a group came into the run."""

    view: View
    found: bool
    """Whether it started the run: it loads the state."""


def enter(
    log: ViewLog, listener: Listener, computation: Computation, notice: Notice
) -> Entry | None:
    """Start the run or join it; wait as a spare while it is full. None when a notice came first."""
    lease = _Lease(log, 2 * listener.silent_after_s + _LEASE_SLACK_S)
    minimum = computation.run.config.groups.min
    while not notice.is_set():
        newest = log.newest()
        if newest is None or newest.ended:
            if view := _found(log, listener, newest, minimum):
                return Entry(view, found=True)
            continue
        alive, view = _join(log, listener, newest, computation)
        if view is not None:
            return Entry(view, found=False)
        if (not alive or lease.expired()) and (view := _found(log, listener, newest, minimum)):
            return Entry(view, found=True)
        listener.renew_id()
        time.sleep(_RETRY_S)
    return None


def next_view(
    view: View,
    groups: GroupsConfig,
    reason: str,
    gone: set[str],
    joiner: Member | None,
) -> View:
    """Return the view after this one: without those that are gone, with the joining member last."""
    members = [member for member in view.members if member.id not in gone]
    members += [joiner] if joiner else []
    formed = view.formed or len(members) >= groups.min
    return View(number=view.number + 1, members=tuple(members), formed=formed, reason=reason)


def write_member(log: ViewLog, member: Member) -> None:
    """Publish how to reach a member that wants to join."""
    file = log.folder / f"member-{member.id}.json"
    temporary = file.with_suffix(".new")
    temporary.write_text(json.dumps(vars(member)) + "\n", encoding="utf-8")
    temporary.replace(file)


def read_member(log: ViewLog, member_id: str) -> Member | None:
    """Return how to reach a joining member; None if that is gone."""
    try:
        text = (log.folder / f"member-{member_id}.json").read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    return Member(**json.loads(text))


def _found(log: ViewLog, listener: Listener, before: View | None, minimum: int) -> View | None:
    """Start the run with this group alone; None if another was first."""
    number = before.number + 1 if before else 1
    mine = View(number=number, members=(listener.member,), formed=minimum <= 1, reason="started")
    recorded = log.create(mine)
    return recorded if recorded == mine else None


def _join(
    log: ViewLog, listener: Listener, newest: View, computation: Computation
) -> tuple[bool, View | None]:
    """Ask the leader for the state; return whether any member may be alive, and the joined view."""
    me, leader = listener.member, newest.members[0]
    write_member(log, me)
    try:
        try:
            connection = listener.dial(leader, 0, JOIN, listener.silent_after_s)
        except ConnectionRefusedError:
            return _any_answers(listener, newest), None
        except OSError:
            return True, None
        with connection:
            connection.settimeout(computation.run.config.collective_timeout_s)
            try:
                computation.run.progress = receive_state(connection, computation.tensors)
            except JoinFailed:
                return True, None
            number = follow(connection, computation.length, computation.apply)
        if number is not None:
            return True, log.read(number)
        latest = log.newest()  # the leader is lost; the others may have taken this group in
        joined = latest is not None and latest.position(me.id) is not None
        return True, latest if joined else None
    finally:
        (log.folder / f"member-{me.id}.json").unlink(missing_ok=True)


def _any_answers(listener: Listener, view: View) -> bool:
    """Return whether a member's host did not refuse: only a refusal shows that a process is gone."""
    for member in view.members[1:]:
        try:
            listener.dial(member, 0, b"?", listener.silent_after_s).close()
        except ConnectionRefusedError:
            continue
        except OSError:
            return True
        return True
    return False


class _Lease:
    """Whether the run shows signs of life in its folder."""

    def __init__(self, log: ViewLog, patience_s: float) -> None:
        self._log, self._patience_s = log, patience_s
        self._seen, self._since = log.lease(), time.monotonic()

    def expired(self) -> bool:
        """Return whether the lease has not been renewed for the whole patience."""
        now, text = time.monotonic(), self._log.lease()
        if text != self._seen:
            self._seen, self._since = text, now
        return now - self._since > self._patience_s
