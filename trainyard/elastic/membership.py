"""Which groups take part, as one group sees it: it watches the others, and agrees with them on the next view."""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Final

from trainyard import notice
from trainyard.contract import EXIT_BAD_CONFIG, EXIT_FAILED, POD_IP_ENV
from trainyard.elastic.links import Address, Links
from trainyard.elastic.ranks import Ranks, end
from trainyard.elastic.same import differences
from trainyard.elastic.views import Member, View, Views

_LOOPBACK: Final = "127.0.0.1"
_POLL_S: Final = 0.02
_ASK_S: Final = 0.1
_GRACE_S: Final = 0.15
"""What a member that has ended or gone on sent before may still arrive for so long."""
_CAUSE_S: Final = 0.4
"""After a broken connection its cause shows within this time."""
_OWN_S: Final = 0.1
_ENDED_S: Final = 2.0
_SILENT_S: Final = 3.0
"""For how long the lease is not renewed when a run is lost, in the latter case beside twice the silence."""
_UNREACHABLE_S: Final = 10.0
_LOOK_S: Final = 0.5
"""Between two looks into the folder, which others share."""


class Membership:
    """This group's place in the views of a run.

    `minimum`: groups that the run needs to begin; `most`: that compute at most, 0 for any number;
    `newest_attempt`: returns the highest attempt number that is claimed.
    """

    def __init__(
        self,
        ranks: Ranks,
        run_dir: Path,
        settings: Mapping[str, str],
        *,
        minimum: int,
        most: int,
        newest_attempt: Callable[[], int],
        silent_after_s: float,
        timeout_s: float,
    ) -> None:
        self.host = os.environ.get(POD_IP_ENV) or _LOOPBACK
        """Address of this rank."""
        self.id = ""
        self.view: View | None = None
        self.run_dir = run_dir
        self._ranks, self._settings, self._minimum = ranks, settings, minimum
        self._most, self._newest_attempt = most, newest_attempt
        self._seen_alive = self._closed = False
        self._lease, self._unreachable = ("", 0.0), time.monotonic()
        self._silent_after_s = silent_after_s
        self._views = Views(run_dir, timeout_s)
        self.token = bytes.fromhex(ranks.share(lambda: self._views.token().hex()))
        self.links = Links(self.host, self.token, silent_after_s)
        self._member: Member | None = None
        self._newcomers_at = self._replaced_at = 0.0
        """When it is time to look for newcomers, and for a view without this group."""
        ranks.why_alone = self._why_alone
        if ranks.rank == 0:
            threading.Thread(target=self._renew_lease, name="elastic-lease", daemon=True).start()
        if ranks.count > 1:
            threading.Thread(target=self._watch_own, name="elastic-own", daemon=True).start()

    @property
    def current(self) -> View:
        assert self.view is not None, "this group is in no view"
        return self.view

    @property
    def position(self) -> int:
        """Index of this group in its view; -1 in none."""
        found = self.view.position(self.id) if self.view else None
        return -1 if found is None else found

    # ---- Begin to take part -------------------------------------------------------------------------------------

    def begin(self, store: Address) -> None:
        """Be a newcomer from now on. A call of all ranks. `store`: where others meet this rank."""
        self.give_up()
        self.view = None
        self.id = self._ranks.share(lambda: secrets.token_hex(7))
        addresses = self._ranks.gather([*self.links.address, *store])
        self._member = Member(
            self.id,
            socket.gethostname(),
            tuple((host, port) for host, port, _, _ in addresses),
            tuple((host, port) for _, _, host, port in addresses),
        )

    def ask(self) -> View | None:
        """Return a view of this group alone if nobody is alive, or without members if the run has ended meanwhile.

        None once a member brings the state. A call of all ranks.
        """
        return _view(self._ranks.share(lambda: _json(self._ask())))

    def _ask(self) -> View | None:
        assert self._member is not None
        again = 0.0
        while self.links.feeds.empty():
            newest = self._views.newest()
            if newest is not None:
                self._compare(newest)
                self.links.watch({f"{m.id}/0": m.links[0] for m in newest.members})
            if newest is not None and not newest.members and self._seen_alive:
                self._views.answer(self.id)
                return newest
            if newest is None or self._is_lost(newest):
                reason = "the run began" if newest is None else "all groups were lost"
                alone = self._create(newest, [self._member], reason, formed=False)
                if alone.position(self.id) is not None:
                    self._views.answer(self.id)
                    return alone
                continue
            self._seen_alive = True
            if notice.requested():
                break
            if time.monotonic() > again:
                again = time.monotonic() + 2 * self._silent_after_s
                self._views.ask(self._member)
            time.sleep(_ASK_S)
        self._views.answer(self.id)
        return None

    def _is_lost(self, newest: View) -> bool:
        """Return whether all members are lost, and none has renewed the lease: it may be just out of reach."""
        whys = [self.why_lost(member) for member in newest.members]
        now, lease = time.monotonic(), f"{newest.number} {self._views.lease()}"
        if lease != self._lease[0] or not all(whys):
            self._lease = lease, now
        if all(whys) and now - self._unreachable > _UNREACHABLE_S:
            self._unreachable = math.inf
            host, port = newest.members[0].links[0]
            print(
                f"elastic: the run is alive, but its groups cannot be reached, the first one at {host}:{port}; "
                f"{POD_IP_ENV} must be an address at which groups reach each other; set it for every group",
                file=sys.stderr,
                flush=True,
            )
        ended = all(why.endswith("ended") for why in whys)
        patience_s = _ENDED_S if ended else 2 * self._silent_after_s + _SILENT_S
        return all(whys) and (not whys or now - self._lease[1] > patience_s)

    def _compare(self, view: View) -> None:
        """End with 78 if this group cannot take part in the view."""
        lines = differences(self._settings, view.settings)
        for member in view.members:
            elsewhere = member.node != socket.gethostname()
            if elsewhere and _LOOPBACK in (self.host, member.links[0][0]):
                lines.append(
                    f"{POD_IP_ENV}: not set here or on {member.node}; must be the address at which groups on "
                    "other hosts reach this one; set it for every group"
                )
        if lines:
            for line in sorted(set(lines)):
                print(f"elastic: {line}", file=sys.stderr)
            end(EXIT_BAD_CONFIG)

    def newcomer(self, known: Collection[str]) -> Member | None:
        """Return a group that asks to take part, but none of `known` (rank 0 of the last member)."""
        if time.monotonic() < self._newcomers_at:
            return None
        self._newcomers_at = time.monotonic() + _LOOK_S / 2
        asking = [one for one in self._views.asking() if one.id not in known]
        if asking:
            self._views.answer(asking[0].id)
        return asking[0] if asking else None

    # ---- Views --------------------------------------------------------------------------------------------------

    def next_view(
        self,
        reason: str,
        leaving: Collection[int] = (),
        newcomers: Collection[Member] = (),
        *,
        wait: bool,
        late: bool,
    ) -> View:
        """Return the view after this one, by whichever group creates it. A call of all ranks.

        `wait`: until a loss shows, or the view of another group, whose proposal is the better one. `late`: without
        groups that still are where this one has given up after the timeout.
        """
        found = self._ranks.share(
            lambda: _json(self._next_view(reason, leaving, newcomers, wait=wait, late=late))
        )
        return View.from_json(found)

    def _next_view(
        self,
        reason: str,
        leaving: Collection[int],
        newcomers: Collection[Member],
        *,
        wait: bool,
        late: bool,
    ) -> View:
        view = self.current
        limit = time.monotonic() + (_CAUSE_S if wait else 0.0)
        kept = [member for i, member in enumerate(view.members) if i not in leaving]
        while True:
            newest = self._views.newest()
            if newest is not None and newest.number > view.number:
                return newest
            lost = [member for member in kept if self.why_lost(member)]
            if lost or time.monotonic() > limit:
                break
            time.sleep(_POLL_S)
        lost += [one for one in kept if late and not lost and self._is_late(one)]
        kept = [member for member in kept if member not in lost]
        return self._create(view, [*kept, *newcomers], reason, formed=view.formed)

    def _is_late(self, member: Member) -> bool:
        number = self.links.view_of(f"{member.id}/0")
        return member.id != self.id and -self.current.number < number <= self.current.number

    def _create(
        self, last: View | None, members: list[Member], reason: str, *, formed: bool
    ) -> View:
        attempt = last.attempt if last else 0
        if last is None or [one.id for one in members[:1]] != [one.id for one in last.members[:1]]:
            claimed = self._newest_attempt() if last is None or members == [self._member] else 0
            attempt = max(attempt, claimed) + 1
        return self._views.create(
            View(
                number=last.number + 1 if last else 1,
                members=tuple(members),
                reason=reason,
                settings=self._settings,
                formed=formed or len(members) >= self._minimum,
                attempt=attempt,
                active=self._most,
            )
        )

    def end_run(self, reason: str) -> None:
        """Record that the run has ended, for groups that wait."""
        if self._ranks.rank == 0:
            self._create(self.current, [], reason, formed=True)

    def view_of(self, number: int | None = None) -> View | None:
        """Return a view, by default the newest, if this group is in it. A call of all ranks."""

        def read() -> View | None:
            return self._views.newest() if number is None else self._views.read(number)

        found = _view(self._ranks.share(lambda: _json(read())))
        return found if found and found.position(self.id) is not None else None

    def adopt(self, view: View) -> None:
        """Be in this view, and watch its members: rank 0 every rank, others their counterparts and their group."""
        self.view, self._seen_alive = view, True
        self.links.announce(view.number)
        own = self._ranks.rank
        self.links.watch(
            {
                f"{member.id}/{rank}": address
                for member in view.members
                for rank, address in enumerate(member.links)
                if (rank != own if member.id == self.id else own in (0, rank))
            }
        )

    def give_up(self) -> None:
        """Tell all who watch that this rank takes part in its view no more."""
        if self.view:
            self.links.announce(-self.view.number)

    def replaced(self) -> bool:
        """Return whether others took over from the leading group, while it was stopped or cut off. On rank 0."""
        if self.position or time.monotonic() < self._replaced_at:
            return False
        self._replaced_at = time.monotonic() + _LOOK_S
        newest = self._views.newest()
        return newest is not None and newest.number > self.current.number

    def release(self) -> None:
        """Miss no rank of this group any more: this one ends."""
        self._closed = True

    def close(self) -> None:
        """Miss no rank of this group any more: all of them end. A call of all ranks."""
        self.release()
        self._ranks.any(False)

    # ---- Losses -------------------------------------------------------------------------------------------------

    def why_lost(self, member: Member) -> str:
        """Return which rank of another group counts as lost, of those that this rank watches."""
        for rank in range(self._ranks.count):
            why = "" if member.id == self.id else self.links.why_lost(f"{member.id}/{rank}")
            if why:
                return f"rank {rank} of group {member.id} {why}"
        return ""

    def why_not_wait(self) -> tuple[str, float]:
        """Return why it is in vain to wait for the other groups, and after which grace."""
        view = self.current
        for rank in range(self._ranks.count):
            if self.links.view_of(f"{self.id}/{rank}") == -view.number:
                return f"rank {rank} of this group has lost its counterpart", 0.0
        for member in view.members:
            if why := self.why_lost(member):
                return why, 0.0 if "silent" in why else _GRACE_S
            other = self.links.view_of(f"{member.id}/{self._ranks.rank}")
            if abs(other) > view.number or other == -view.number:
                return f"group {member.id} has gone on", _GRACE_S
        return self._why_alone()

    def _renew_lease(self) -> None:
        while not self._closed:
            if self.position == 0:
                with contextlib.suppress(OSError):  # the fence of checkpoints is what protects
                    self._views.renew_lease()
            time.sleep(_LOOK_S)

    def _watch_own(self) -> None:
        """End this rank if another one of its group is lost: it may wait for it in a collective."""
        since = None
        while not self._closed:
            why, grace_s = self._why_alone() if self.view else ("", 0.0)
            since = (since or time.monotonic()) if why else None
            if since and time.monotonic() - since > grace_s and not self._closed:
                print(f"elastic: {why}; this group ends", file=sys.stderr, flush=True)
                end(EXIT_FAILED)
            time.sleep(_OWN_S)

    def _why_alone(self) -> tuple[str, float]:
        """Return which other rank of this group has ended."""
        for rank in range(self._ranks.count):
            if why := self.links.why_lost(f"{self.id}/{rank}"):
                return f"rank {rank} of this group {why}", _GRACE_S
        return "", 0.0


def _json(view: View | None) -> dict[str, object] | None:
    return asdict(view) if view else None


def _view(values: Mapping[str, object] | None) -> View | None:
    return View.from_json(values) if values else None
