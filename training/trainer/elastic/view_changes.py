"""The view that a group is in, its links with the other members, and how it goes over to the next view.

All ranks of a group do this alike: rank 0 proposes a view, the first proposal of any member is the next one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from training.trainer.elastic.computation import Computation
from training.trainer.elastic.donors import Donors
from training.trainer.elastic.exchange import Agenda, Exchange, Note
from training.trainer.elastic.links import Listener
from training.trainer.elastic.membership import (
    Excluded,
    RolledBack,
    RunEnded,
    end_view,
    is_rollback,
    next_view,
    read_members,
    rollback_view,
    unsettled,
)
from training.trainer.elastic.mesh import Mesh
from training.trainer.elastic.ranks import GroupRanks
from training.trainer.elastic.views import View, ViewLog
from training.trainer.flight.reports import Team, view_label
from training.trainer.flight.ring import Phase
from training.trainer.loop import Run
from training.trainer.replicas.comparison import ReplicasDiffer


@dataclass(kw_only=True)
class ViewChanges:
    """This rank's part in the changes of the view."""

    computation: Computation
    log: ViewLog
    listener: Listener
    ranks: GroupRanks
    donors: Donors
    changed_at: float = 0.0
    """When the last change of the view began, in monotonic seconds."""
    _view: View | None = None
    _mesh: Mesh | None = None
    _exchange: Exchange | None = None
    _ready: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Groups that have the state, by the member that feeds them, as of the last round."""
    _waiting: tuple[str, ...] = ()
    """Those of them that are no members: as of the last round, and in a new view as it says."""

    @property
    def view(self) -> View:
        """The view that this group is in."""
        assert self._view
        return self._view

    @property
    def exchange(self) -> Exchange:
        """The exchange with the members of the view, once it is connected."""
        assert self._exchange
        return self._exchange

    @property
    def own_id(self) -> str:
        """This group as a member."""
        return self.listener.member.id

    @property
    def position(self) -> int:
        """The number of this group in the view."""
        position = self.view.position(self.own_id)
        assert position is not None
        return position

    @property
    def patience_s(self) -> float:
        """How long to wait for the others."""
        return self._run.config.collective_timeout_s

    @property
    def _run(self) -> Run:
        return self.computation.run

    def begin(self, view: View) -> None:
        """Be in a first view."""
        self._view, self._waiting = view, view.ready

    def connect(self, agenda: Agenda) -> None:
        """Connect with the members of the view. Raises MemberLost on all ranks."""
        self._mesh = mesh = self.ranks.together(self._connected, self.patience_s)
        workers, length = self._run.config.groups.workers, self.computation.length
        self._exchange = Exchange(mesh, self.ranks, self.own_id, workers, length, agenda)

    def _connected(self) -> Mesh:
        links = self.listener.connect(self.view, self.patience_s, self.ranks.check)
        return Mesh(self.listener, self.view, links, self.ranks)

    def watch(self) -> None:
        """Compare from now on where the ranks of these members are, to find one that hangs."""
        size, flight = self._run.world.size, self._run.flight
        if flight:
            ranks = Team(
                label=view_label(self.view.number),
                rank=self.position * size + self._run.world.rank,
                world=len(self.view.members) * size,
                attempt=self.view.attempt,
                group=self.own_id,
            )
            flight.watch_groups(ranks)

    # Who could join

    def receive(self, notes: Mapping[str, Note]) -> None:
        """Take from the notes of a round which groups have the state."""
        self._ready = {peer: note.ready for peer, note in notes.items()}
        fed = [peer for member in self.view.members for peer in self._ready[member.id]]
        self._waiting = tuple(peer for peer in fed if self.view.position(peer) is None)

    def admit(self, gone: set[str]) -> list[str]:
        """Return the groups that every member takes into the next view; all find the same."""
        kept = [member for member in self.view.members if member.id not in gone]
        return list(self._waiting[: max(0, self._run.config.groups.max - len(kept))])

    def places(self) -> tuple[int, int]:
        """Return how many groups this one may go on to feed, and up to how many it may begin with others.

        Where members feed too many in all, the last of them have to stop.
        """
        groups, members = self._run.config.groups, self.view.members
        counts = [len(self._ready.get(member.id, ())) for member in members]
        own = self.position
        keep = groups.max - len(members) + groups.spares - sum(counts[:own])
        return keep, keep - sum(counts[own + 1 :])

    # The next view

    def replace(self, lost: set[str]) -> None:
        """Go on without members that are lost, and with groups that were ready to take their place."""
        reason = f"lost {', '.join(sorted(lost))}"
        joining = self.admit(lost) if lost else []
        if joining:
            reason += "".join(f", {peer} joined" for peer in joining)
        announce = self._name_silent()
        self.change(reason, gone=lost, joining=joining)
        announce()

    def _name_silent(self) -> Callable[[], None]:
        """Find out about the ranks of lost groups that were silent for this one; return what makes them known."""
        positions = [self.view.position(peer) for peer in self.listener.silent()]
        world, flight = self._run.world, self._run.flight
        ranks = [one * world.size + world.rank for one in positions if one is not None]
        return flight.name_silent(ranks) if flight and ranks else lambda: None

    def roll_back(self, error: ReplicasDiffer) -> None:
        """Have all groups drop the state, which differs, unless the view has changed already.

        Raises RolledBack, and `error` in a group whose state is known to be wrong, or in all if it is final.
        """
        self.changed_at = time.monotonic()
        wrong = self.position in error.wrong
        proposal = rollback_view(self.view, str(error), final=error.final)
        view = View.from_json(self.ranks.share(self._create, proposal))
        if wrong and is_rollback(view):
            raise error
        self._enter(view)

    def change(self, reason: str, *, gone: set[str], joining: Sequence[str] = ()) -> None:
        """Agree with the others on the next view. Raises Excluded when it is without this group."""
        self.changed_at = time.monotonic()
        self._enter(View.from_json(self.ranks.share(self._propose, reason, gone, joining)))

    def end(self, reason: str) -> None:
        """End the run after this view, unless another member did."""
        self.ranks.share(lambda: asdict(self.log.create(end_view(self.view, reason))))

    def is_replaced(self) -> bool:
        """Return whether the others have gone over to another view."""
        return self.ranks.share(self.log.exists, self.view.number + 1)

    def _enter(self, view: View) -> None:
        """Go over to a view.

        Raises RolledBack, RunEnded, Excluded if it is without this group, and ReplicasDiffer if its members end.
        """
        self._view, self._waiting = view, view.ready
        self.disconnect()
        if reason := unsettled(view):
            raise ReplicasDiffer(reason, final=True)
        if is_rollback(view):
            raise RolledBack(view.reason)
        if view.ended:
            raise RunEnded(view)
        if view.position(self.own_id) is None:
            raise Excluded(f"the others went on without this group: {view.reason}")
        self.donors.adopt(view)

    def _propose(self, reason: str, gone: set[str], joining: Sequence[str]) -> dict[str, Any]:
        members = read_members(self.log, joining)
        ready = [peer for peer in self._waiting if peer not in joining]
        proposal = next_view(self.view, self._run.config.groups, reason, gone, members, ready)
        return self._create(proposal)

    def _create(self, view: View) -> dict[str, Any]:
        """Create a view, or return the one that is there; a rank that waits for the file system does not hang."""
        return asdict(self.log.create(view, lambda: self._run.recorder.enter(Phase.BETWEEN)))

    def disconnect(self) -> None:
        """Close the links with the members, whose ranks are no longer compared."""
        if self._run.flight:
            self._run.flight.watch_none()
        self.close_links()

    def close_links(self) -> None:
        """Close the links with the members, so that they need not wait for this group."""
        if self._mesh:
            self._mesh.close()
            self._mesh = self._exchange = None
