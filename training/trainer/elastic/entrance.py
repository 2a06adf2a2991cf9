"""How a group comes into a run: it starts the run, or gets the state of a member and follows until it is one."""

from __future__ import annotations

import contextlib
import math
import random
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from training.config_errors import ConfigError, ConfigIssue
from training.trainer.elastic import readiness
from training.trainer.elastic.computation import Computation
from training.trainer.elastic.lease import LeaseWatch
from training.trainer.elastic.links import JOIN, Listener, MemberLost, new_id
from training.trainer.elastic.membership import (
    RunEnded,
    is_rollback,
    remove_member,
    rolled_back,
    write_member,
)
from training.trainer.elastic.ranks import GroupRanks
from training.trainer.elastic.transfer import AppliedStep, Stream, TransferLost
from training.trainer.elastic.views import Member, View, ViewLog
from training.trainer.resume import check_same_run
from trainyard.contract import POD_IP_ENV
from trainyard.notice import Notice
from trainyard.store.factory import newest_attempt

_RETRY_S: Final = 0.1
_LOOK_S: Final = 0.02
_REFUSALS_S: Final = 10.0
"""After as many seconds of refused connections while the lease is renewed, the addresses must be wrong."""
_CONNECTED, _REFUSED, _NO_ANSWER = "connected", "refused", "no answer"

Report = dict[str, Any]


@dataclass(frozen=True)
class Entry:
    """How a group came into the run."""

    view: View
    started: bool
    """Whether it started the run: it may have to load the state."""


class _Adopted(Exception):
    """This group is a member of a view."""

    def __init__(self, number: int) -> None:
        self.number = number


class _Notice(Exception):
    """This rank was asked to stop."""


@dataclass(kw_only=True)
class Entrance:
    """This rank's part; rank 0 decides for all ranks of the group."""

    log: ViewLog
    listener: Listener
    ranks: GroupRanks
    computation: Computation
    notice: Notice
    about: Mapping[str, Any]
    """What must be equal in all groups."""
    addresses: tuple[tuple[str, int], ...]
    """Of all ranks of this group."""
    _known: int = 0
    """The newest view that does not have this group."""
    _planned: int = 0
    """The newest view when this group last looked whom to join: older than any state that it has got since."""
    _sender: str = ""
    """Id of the member that feeds this group."""
    _fed_until: float = math.inf
    """When this group gives up its transfer, in monotonic seconds; set by what it waits for."""
    _met: bool = False
    """Whether members of the run have answered."""
    _warm: bool = False
    """Whether this group has computed gradients."""
    _refused_since: float | None = None
    """When the members began to refuse connections, in monotonic seconds."""

    def __post_init__(self) -> None:
        self._initial = self.computation.run.progress
        self._lease = LeaseWatch(self.log, self.listener.silent_after_s)

    def enter(self) -> Entry | None:
        """Start the run or join it; wait while it is full. None when a notice came first.

        Raises RunEnded, ConfigError for a group that is unlike the others, RankLost.
        """
        while True:
            readiness.report(False)
            self.listener.member = Member(self.ranks.share(new_id), self.addresses)
            plan = self.ranks.agree(self.notice.is_set(), self._plan)
            if plan["leave"]:
                return None
            view = View.from_json(plan["view"])
            if plan["rolled_back"]:
                self._drop_state()
            if view.ended and self._met and not is_rollback(view):
                raise RunEnded(view)
            found = self._join(view, plan["donor"]) if view.members else {"alive": False}
            if found.get("leave"):
                return None
            if "view" in found:
                joined = self.ranks.share(self._read, found["view"])
                return Entry(View.from_json(joined), started=False)
            if self.computation.run.config.blocks.compile:
                self._warm_up()  # groups that join later wait for no compilation
            if started := self.ranks.share(self._start, found["alive"], view):
                return Entry(View.from_json(started), started=True)
            if view.members:
                time.sleep(_RETRY_S)

    def _plan(self, notices: list[bool]) -> dict[str, Any]:
        newest = self.log.newest() or View(number=0, members=(), formed=False, reason="")
        dropped = self.computation.holds_state and rolled_back(
            self.log, self._planned, newest.number
        )
        self._known = self._planned = newest.number
        donor = random.SystemRandom().randrange(max(1, len(newest.members)))
        return {
            "leave": any(notices),
            "view": asdict(newest),
            "donor": donor,
            "rolled_back": dropped,
        }

    def _drop_state(self) -> None:
        self.computation.holds_state, self.computation.run.progress = False, self._initial

    def _read(self, number: int) -> dict[str, Any]:
        return asdict(self.log.read(number))

    def _start(self, alive: bool, before: View) -> dict[str, Any] | None:
        """Start the run with this group alone, if no members are left; None if some are, or another was first.

        A refusal alone does not show that a process is gone: an address may be of another host.
        """
        if before.members and not self._lease.expired(before.number, refused=not alive):
            self._report_refusals(alive, before)
            return None
        config, run_dir = self.computation.run.config, self.log.folder.parent
        newest = newest_attempt(run_dir, config.checkpoint.store)
        mine = View(
            number=before.number + 1,
            members=(self.listener.member,),
            formed=config.groups.min <= 1,
            reason="started",
            attempt=max(newest, before.attempt) + 1,
        )
        if self.log.create(mine) != mine:
            return None
        self.listener.adopt(mine)  # the lease is held while the state is loaded
        return asdict(mine)

    def _report_refusals(self, alive: bool, view: View) -> None:
        """Print once where members refuse connections, though one of them renews the lease."""
        now = time.monotonic()
        self._refused_since = None if alive else self._refused_since or now
        if self._refused_since and now - self._refused_since > _REFUSALS_S:
            self._refused_since = math.inf
            host, port = view.members[0].addresses[0]
            print(
                f"{self.log.folder}: the run is alive, but {host}:{port} refuses connections; groups must "
                f"reach each other's addresses; set {POD_IP_ENV} on each node",
                file=sys.stderr,
                flush=True,
            )

    def _join(self, view: View, donor: int) -> dict[str, Any]:
        """Get the state from a member, and follow; return what became of it."""
        if len(view.members[donor].addresses) != len(self.addresses):
            raise ConfigError([self._other_ranks(view.members[donor])])
        self._warm_up()  # here it delays no member
        if self.ranks.rank == 0:
            write_member(self.log, self.listener.member)
        connection: socket.socket | None = None
        try:
            answer = _NO_ANSWER
            try:
                connection = self.listener.dial(
                    view.members[donor], 0, JOIN, self.listener.silent_after_s
                )
                answer = _CONNECTED
            except ConnectionRefusedError:
                answer = _REFUSED
            except OSError:
                pass
            answers = self.ranks.agree(answer, list)
            if connection is None or any(other != _CONNECTED for other in answers):
                return self.ranks.share(self._unanswered, view, answers)
            self._met = True
            self._sender, self._fed_until = view.members[donor].id, math.inf
            return self._receive(connection)
        finally:
            if connection:
                connection.close()
            if self.ranks.rank == 0:
                remove_member(self.log, self.listener.member)

    def _warm_up(self) -> None:
        if not (self._warm or self.computation.holds_state):
            self._warm = True
            self.computation.warm_up()

    def _other_ranks(self, member: Member) -> ConfigIssue:
        return ConfigIssue(
            path="groups",
            problem=f"{len(self.addresses)} ranks in this group, {len(member.addresses)} in the others",
            valid="must be as many in all groups of a run",
            action="start this group like the others, or use another --run-dir",
            code="conflict",
        )

    def _unanswered(self, view: View, answers: list[str]) -> dict[str, Any]:
        """A process that is gone refuses connections; one that does not answer may come back."""
        return {"alive": _REFUSED not in answers or self._any_answers(view)}

    def _receive(self, connection: socket.socket) -> dict[str, Any]:
        computation = self.computation
        watched = [self.listener.wake, *self.ranks.sockets]
        stream = Stream(
            connection, watched, self._look, computation.run.config.collective_timeout_s
        )
        self._drop_state()
        report: Report = {"lost": True}
        progress = None
        with self._reporting(report):
            progress = stream.receive_state(computation.tensors, self.about)
            check_same_run(progress, self._initial)
            stream.acknowledge(progress.step)
            report.clear()
        verdict = self.ranks.agree(report, self._judge_state, failed=bool(report))
        if verdict or progress is None:
            return verdict
        computation.run.progress, computation.holds_state = progress, True
        return self._follow(stream)

    def _follow(self, stream: Stream) -> dict[str, Any]:
        """Apply the updates of the members until this group is one."""
        computation = self.computation
        readiness.report(True)
        while True:
            step = computation.run.progress.step + 1
            report: Report = {"lost": True}
            update: AppliedStep | None = None
            with self._reporting(report):
                received = stream.receive_step(computation.length, step)
                if isinstance(received, int):
                    raise _Adopted(received)
                update = received
                report.clear()
            # However long no rank receives an update: once one has it, all should.
            verdict = self.ranks.agree(
                report,
                self._judge_step,
                failed=bool(report),
                timeout_s=computation.run.config.collective_timeout_s,
            )
            if verdict.get("lost"):
                return self._await_adoption()
            if verdict or update is None:
                return verdict
            computation.apply(update)
            with contextlib.suppress(TransferLost):  # the next step will not come either
                stream.acknowledge(step)

    @contextlib.contextmanager
    def _reporting(self, report: Report) -> Any:
        """Turn what ends a transfer into the report of this rank."""
        try:
            yield
        except _Adopted as adopted:
            report["view"] = adopted.number
        except _Notice:
            report["leave"] = True
        except (TransferLost, MemberLost):
            pass

    def _look(self) -> None:
        """Look around while nothing comes. Raises what `_reporting` expects."""
        self.ranks.check()
        self.listener.clear_wake()
        if self.notice.is_set():
            raise _Notice
        if self.ranks.rank:
            return
        if self._lease.expired(self._known):
            raise TransferLost("the run shows no sign of life")
        if self.log.exists(self._known + 1):
            newest = self.log.newest()
            assert newest
            self._known = newest.number
            if newest.position(self.listener.member.id) is not None:
                raise _Adopted(newest.number)
            if newest.position(self._sender) is None:
                self._give_up_in(2 * self.listener.silent_after_s)
        if time.monotonic() > self._fed_until:
            raise TransferLost("the sender is not a member any more")

    def _give_up_in(self, seconds: float) -> None:
        """Wait no longer than that for updates or for a view, unless less is left already."""
        self._fed_until = min(self._fed_until, time.monotonic() + seconds)

    def _judge_state(self, reports: list[Report]) -> dict[str, Any]:
        """Return nothing if all ranks have the state, else what to do."""
        if any(report.get("leave") for report in reports):
            return {"leave": True}
        return {"alive": True} if any(reports) else {}

    def _judge_step(self, reports: list[Report]) -> dict[str, Any]:
        """Return nothing if all ranks have the update, else what to do."""
        if any(report.get("leave") for report in reports):
            return {"leave": True}
        if not any(reports):
            return {}
        views = [report["view"] for report in reports if "view" in report]
        return {"view": views[0]} if views else {"lost": True}

    def _await_adoption(self) -> dict[str, Any]:
        """Wait after the sender's loss for a view that has this group; return what became of it.

        A view may take in another group first, and name this one for the next loss.
        """
        self._give_up_in(self.computation.run.config.collective_timeout_s)
        while not (verdict := self.ranks.agree(self.notice.is_set(), self._judge_adoption)):
            time.sleep(_LOOK_S)
        return verdict

    def _judge_adoption(self, notices: list[bool]) -> dict[str, Any]:
        """Return nothing while a view may yet have this group, else what to do."""
        if any(notices):
            return {"leave": True}
        newest = self.log.newest()
        assert newest
        own = self.listener.member.id
        if newest.position(own) is not None:
            return {"view": newest.number}
        if time.monotonic() > self._fed_until or newest.ended or not self._any_answers(newest):
            return {"alive": True}
        if newest.number > self._known or newest.position(self._sender) is None:
            if own not in newest.ready:
                return {"alive": True}
            self._give_up_in(2 * self.listener.silent_after_s)
        return {}

    def _any_answers(self, view: View) -> bool:
        """Return whether any member's host did not refuse a connection."""
        for member in view.members:
            try:
                self.listener.dial(member, 0, b"?", self.listener.silent_after_s).close()
            except ConnectionRefusedError:
                continue
            except OSError:
                return True
            return True
        return False
