"""One rank of a replica group: joins the run, takes steps with the others, follows changes of the membership.

docs/elastic.md has the table of rules that this module implements. All ranks of a group run it alike: what they
cannot know alike, `GroupRanks` decides.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

import torch

from training.spec import EXIT_DONE, EXIT_PREEMPTED
from training.trainer import loop
from training.trainer.elastic import exchange as rounds
from training.trainer.elastic import readiness
from training.trainer.elastic.agreement import Agreement
from training.trainer.elastic.computation import Computation
from training.trainer.elastic.donors import Donors
from training.trainer.elastic.entrance import Entrance
from training.trainer.elastic.exchange import Exchange, Note, buffer_of
from training.trainer.elastic.leader import Leadership
from training.trainer.elastic.links import Listener, MemberLost
from training.trainer.elastic.membership import (
    DONE,
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
from training.trainer.elastic.transfer import AppliedStep
from training.trainer.elastic.views import View, ViewLog
from training.trainer.flight.reports import Team, view_label
from training.trainer.flight.ring import Phase
from training.trainer.replicas.comparison import ReplicasDiffer
from training.trainer.replicas.disputes import DisputeFile
from trainyard.store.interface import StaleAttempt

_IDLE_S: Final = 0.02
"""Pause between rounds while groups are missing at the start."""
_KEPT_STEPS: Final = 2
"""Steps that a member may be behind: each keeps as many updates."""
_RIVAL_S: Final = 30.0
"""As long as a group that computes disputed steps again waits for another one to join it."""


@dataclass(kw_only=True)
class Group:
    """This rank's part in an elastic run."""

    computation: Computation
    log: ViewLog
    listener: Listener
    ranks: GroupRanks
    entrance: Entrance
    donors: Donors
    leadership: Leadership
    view: View | None = None
    mesh: Mesh | None = None
    exchange: Exchange | None = None
    agreement: Agreement | None = None
    stop: bool = False
    """Whether the run stops before its last step: an operator's notice, or too few groups."""
    changed_at: float = 0.0
    """When the last change of the view began, in monotonic seconds."""
    _disputed_step: int = -1
    """The step after which groups differed when this one started the run again; -1: they did not."""
    _witnessed: bool = False
    """Whether this group started the run, and no step since was taken by one group alone."""
    _ready: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Groups that have the state, by the member that feeds them, as of the last round."""
    _waiting: tuple[str, ...] = ()
    """Those of them that are no members: as of the last round, and in a new view as it says."""

    @property
    def leads(self) -> bool:
        """Whether this group has the logs and the checkpoints."""
        return self.leadership.leads

    @property
    def run(self) -> loop.Run:
        """The state of the training."""
        return self.computation.run

    def take_part(self) -> int:
        """Join, train to the end of the run or of this group's part in it; return the exit code."""
        self.changed_at = time.monotonic()
        try:
            return self._take_part()
        except Excluded:
            raise
        except Exception as error:
            self._close_links()  # the others need not wait for what follows
            if self.run.flight:
                self.run.flight.fail(error)
            raise
        finally:
            self._close_mesh()

    def _take_part(self) -> int:
        try:
            entry = self.entrance.enter()
            if entry is None:
                return EXIT_PREEMPTED
            self.view, self._waiting = entry.view, entry.view.ready
            if entry.started:
                self._start(entry.view)
            self.computation.on_applied = self.donors.offer
            self.changed_at = time.monotonic()
            while True:
                try:
                    self._form()
                    code = self._train()
                    if code is not None:
                        return code
                except MemberLost as error:
                    self._replace(error.lost)
                except ReplicasDiffer as error:
                    self._roll_back(error)
        except RunEnded as ended:
            return ended.code
        except StaleAttempt as error:
            # Of the same run: it goes on without this group, which had not noticed yet.
            if self.ranks.share(self.log.exists, self._current().number + 1):
                raise Excluded(str(error)) from None
            raise

    def _start(self, view: View) -> None:
        """Load the state: this group has started the run, or started it again."""
        self.leadership.take(
            self.run, view.attempt, load=True, holds_state=self.computation.holds_state
        )
        self.computation.holds_state = self._witnessed = True
        dispute = DisputeFile(self.log.run_dir).read()
        self._disputed_step = dispute.step if dispute else -1

    def close(self) -> None:
        """End what this group has started."""
        self.donors.close()
        self.run.loader.close()

    # What the ranks decide along with each round

    def report(self) -> dict[str, Any]:
        """See Agenda."""
        return {
            "leave": self._is_asked_to_leave(),
            "replaced": self.run.checkpointer.is_replaced(),
            "donors": self.donors.report(),
        }

    def decide(self, reports: list[dict[str, Any]]) -> dict[str, Any]:
        """See Agenda."""
        run = self.run
        return {
            "leave": any(report["leave"] for report in reports),
            "replaced": any(report["replaced"] for report in reports),
            "time_due": run.save_policy.time_due(time.monotonic() - run.saved_at),
            "donors": Donors.decide([report["donors"] for report in reports], *self._places()),
            "hold": self._awaits_rival(fed=bool(reports[0]["donors"]["fed"])),
        }

    def _awaits_rival(self, *, fed: bool) -> bool:
        """Return whether to wait for a second group, which has to compute disputed steps, too; `fed`: one joins.

        Decided on rank 0.
        """
        if len(self._current().members) > 1 or not self._witnessed:
            return False
        limit = self._patience() if fed else _RIVAL_S
        waited = time.monotonic() - self.changed_at
        return self.run.progress.step < self._disputed_step and waited < limit

    def _is_asked_to_leave(self) -> bool:
        return self.run.notice.is_set() and not self.leadership.is_run_notice(self.run)

    def _places(self) -> tuple[int, int]:
        """Return how many groups this one may go on to feed, and up to how many it may begin with others.

        Where members feed too many in all, the last of them have to stop.
        """
        groups, members = self.run.config.groups, self._current().members
        counts = [len(self._ready.get(member.id, ())) for member in members]
        own = self._position()
        keep = groups.max - len(members) + groups.spares - sum(counts[:own])
        return keep, keep - sum(counts[own + 1 :])

    # The membership

    def _form(self) -> None:
        """Connect with the members of the view, and bring all to the same step."""
        view, config = self._current(), self.run.config
        patience = self._patience()
        self.mesh = self.ranks.together(lambda: self._connect(view), patience)
        self.exchange = Exchange(
            self.mesh,
            self.ranks,
            self.listener.member.id,
            config.groups.workers,
            self.computation.length,
            self,
        )
        self._synchronize()
        if view.formed and len(view.members) < config.groups.min:
            self.stop = True
        self.computation.read_share(self.exchange.leaves)
        self.run.meter.devices = len(view.members) * self.run.world.size
        self._watch(view)
        self.agreement = Agreement.in_view(
            self.run, self.log, self.exchange, self.ranks, witnessed=self._witnessed
        )
        self.agreement.reach()
        seconds = time.monotonic() - self.changed_at
        self.leadership.view_formed(view, self.run, seconds, first=self._is_first())
        readiness.report(view.formed)

    def _watch(self, view: View) -> None:
        size, flight = self.run.world.size, self.run.flight
        if flight:
            ranks = Team(
                label=view_label(view.number),
                rank=self._position() * size + self.run.world.rank,
                world=len(view.members) * size,
                attempt=view.attempt,
                group=self.listener.member.id,
            )
            flight.watch_groups(ranks)

    def _connect(self, view: View) -> Mesh:
        links = self.listener.connect(view, self._patience(), self.ranks.check)
        return Mesh(self.listener, view, links, self.ranks)

    def _synchronize(self) -> None:
        """Give the last updates to members that missed them."""
        exchange, run = self._rounds(), self.run
        found = exchange.notes(self._note(rounds.SYNC), self._patience())
        newest = max(note.step for note in found.values())
        if run.progress.step < newest - _KEPT_STEPS:
            raise Excluded("this group is several steps behind")
        donor = next(m.id for m in self._current().members if found[m.id].step == newest)
        for step in range(newest - _KEPT_STEPS + 1, newest + 1):
            behind = [peer for peer, note in found.items() if note.step < step]
            if behind:
                self._catch_up(donor, behind, step)
        self.stop = self.stop or any(note.flags & rounds.STOP for note in found.values())
        latest = max(found.values(), key=lambda note: note.evaluated_step)
        if latest.evaluated_step > run.progress.evaluated_step:
            # Of an earlier step, if this group followed as a spare.
            loop.record_evaluation(run, latest.evaluated_step, latest.evaluation_loss, 0.0)

    def _catch_up(self, donor: str, behind: list[str], step: int) -> None:
        """Send or receive an update."""
        own, swap = self.listener.member.id, self._rounds().swap
        if own == donor:
            applied = self.computation.applied.get(step)
            if applied is None:
                raise Excluded("this group cannot give the last update")
            parts = [memoryview(applied.note.pack()), buffer_of(applied.share.cpu())]
            swap({peer: list(parts) for peer in behind}, {}, self._patience())
        elif own in behind:
            content, share = bytearray(Note.SIZE), torch.empty(self.computation.length)
            swap({}, {donor: [memoryview(content), buffer_of(share)]}, self._patience())
            self.computation.apply(AppliedStep(Note.unpack(content), share))

    def _replace(self, lost: set[str]) -> None:
        """Go on without members that are lost, and with groups that were ready to take their place."""
        reason = f"lost {', '.join(sorted(lost))}"
        joining = self._admit(lost) if lost else []
        if joining:
            reason += "".join(f", {peer} joined" for peer in joining)
        announce = self._name_silent()
        self._change(reason, gone=lost, joining=joining)
        announce()

    def _name_silent(self) -> Callable[[], None]:
        """Find out about the ranks of lost groups that were silent for this one; return what makes them known."""
        positions = [self._current().position(peer) for peer in self.listener.silent()]
        world, flight = self.run.world, self.run.flight
        ranks = [one * world.size + world.rank for one in positions if one is not None]
        return flight.name_silent(ranks) if flight and ranks else lambda: None

    def _roll_back(self, error: ReplicasDiffer) -> None:
        """Have all groups drop the state, which differs, unless the view has changed already.

        Raises RolledBack, and `error` in a group whose state is known to be wrong, or in all if it is final.
        """
        self.changed_at = time.monotonic()
        wrong, proposal = (
            self._position() in error.wrong,
            rollback_view(self._current(), str(error), final=error.final),
        )
        view = View.from_json(self.ranks.share(self._create, proposal))
        if wrong and is_rollback(view):
            raise error
        self._enter(view)

    def _change(self, reason: str, *, gone: set[str], joining: Sequence[str] = ()) -> None:
        """Agree with the others on the next view. Raises Excluded when it is without this group."""
        self.changed_at = time.monotonic()
        self._enter(View.from_json(self.ranks.share(self._propose, reason, gone, joining)))

    def _enter(self, view: View) -> None:
        """Go over to a view.

        Raises RolledBack, RunEnded, Excluded if it is without this group, and ReplicasDiffer if its members end.
        """
        self.view, self._waiting = view, view.ready
        self._close_mesh()
        if reason := unsettled(view):
            raise ReplicasDiffer(reason, final=True)
        if is_rollback(self.view):
            raise RolledBack(self.view.reason)
        if self.view.ended:
            raise RunEnded(self.view)
        if self.view.position(self.listener.member.id) is None:
            raise Excluded(f"the others went on without this group: {self.view.reason}")
        self.donors.adopt(self.view)

    def _propose(self, reason: str, gone: set[str], joining: Sequence[str]) -> dict[str, Any]:
        members = read_members(self.log, joining)
        ready = [peer for peer in self._waiting if peer not in joining]
        proposal = next_view(self._current(), self.run.config.groups, reason, gone, members, ready)
        return self._create(proposal)

    def _create(self, view: View) -> dict[str, Any]:
        """Create a view, or return the one that is there; a rank that waits for the file system does not hang."""
        return asdict(self.log.create(view, lambda: self.run.recorder.enter(Phase.BETWEEN)))

    def _close_mesh(self) -> None:
        if self.run.flight:
            self.run.flight.watch_none()
        self._close_links()

    def _close_links(self) -> None:
        if self.mesh:
            self.mesh.close()
            self.mesh = self.exchange = None

    # The training

    def _train(self) -> int | None:
        """Take rounds until the view changes (None) or this group ends (its exit code)."""
        while True:
            run, view = self.run, self._current()
            if self._evaluation_is_due():
                self._evaluate()
            if self.stop or run.progress.step >= run.config.steps:
                return self._finish()
            found = self._round()
            orders, agreement = self._rounds().orders, self._agreement()
            if orders["replaced"]:
                raise StaleAttempt(f"attempt {view.attempt} was replaced; nothing more is written")
            if any(note.flags & rounds.COMPARE for note in found.values()):
                agreement.reach()
            compared = agreement.reached
            self.leadership.after_round(
                run, view.attempt, time_due=orders["time_due"], compared=compared
            )
            self.donors.obey(orders["donors"], run, self.computation.tensors, compared=compared)
            gone = {peer for peer, note in found.items() if note.flags & rounds.LEAVE}
            self._ready = {peer: note.ready for peer, note in found.items()}
            fed = [peer for member in view.members for peer in self._ready[member.id]]
            self._waiting = tuple(peer for peer in fed if view.position(peer) is None)
            joining = self._admit(gone)
            self.stop = self.stop or any(note.flags & rounds.STOP for note in found.values())
            left = len(view.members) - len(gone) + len(joining)
            if view.formed and left < run.config.groups.min:
                self.stop = True
            if self.stop:
                continue
            if self.listener.member.id in gone:
                return EXIT_PREEMPTED
            if gone or joining:
                names = [f"{peer} left" for peer in sorted(gone)]
                names += [f"{peer} joined" for peer in joining]
                self._change(", ".join(names), gone=gone, joining=joining)
                return None

    def _admit(self, gone: set[str]) -> list[str]:
        """Return the groups that every member takes into the next view; all find the same."""
        kept = [member for member in self._current().members if member.id not in gone]
        return list(self._waiting[: max(0, self.run.config.groups.max - len(kept))])

    def _round(self) -> dict[str, Note]:
        if not self._current().formed or self._rounds().orders["hold"]:
            time.sleep(_IDLE_S)
            self.run.recorder.enter(Phase.BETWEEN)
            return self._rounds().notes(self._note(rounds.IDLE), self._patience())
        self._witnessed = self._witnessed and len(self._current().members) > 1
        note = replace(self._note(rounds.STEP), step=self.run.progress.step + 1)
        try:
            return self.computation.step(self._rounds(), note, self._patience())
        except loop.LossNotFinite:
            self._agreement().reach(again=True)
            raise

    def _note(self, kind: int) -> Note:
        run, flags = self.run, rounds.STOP if self.stop else 0
        orders = self._rounds().orders
        if run.notice.is_set() and self.leadership.is_run_notice(run):
            flags |= rounds.STOP
        elif self._is_asked_to_leave() or orders.get("leave"):
            # Compared before it goes: afterwards nobody can find out what it has added to the sums.
            flags |= rounds.LEAVE | rounds.COMPARE
        if self._wants_comparison(kind):
            flags |= rounds.COMPARE
        fed = orders["donors"]["fed"] if orders else {}
        return Note(
            kind=kind,
            view=self._current().number,
            step=run.progress.step,
            flags=flags,
            ready=tuple(peer for peer, step in fed.items() if step >= run.progress.step - 1),
            evaluated_step=run.progress.evaluated_step,
            evaluation_loss=_number(run.progress.evaluation_loss),
        )

    def _wants_comparison(self, kind: int) -> bool:
        """Return whether this group has to know that the state after the round is the same in all."""
        orders = self._rounds().orders
        if orders and (orders["donors"]["start"] or (orders["time_due"] and self._is_first())):
            return True
        return kind == rounds.STEP and self._agreement().is_due(self.run.progress.step + 1)

    def _evaluation_is_due(self) -> bool:
        return self._current().formed and loop.evaluation_is_due(self.run)

    def _evaluate(self) -> None:
        begun, run, exchange = time.perf_counter(), self.run, self._rounds()
        values = self.computation.evaluation_losses(exchange)
        run.recorder.enter(Phase.AGREE)
        found = exchange.gather(self._note(rounds.EVALUATION), values, self._patience())
        total = 0.0
        for chunk in zip(*(tensor.tolist() for tensor in found.values()), strict=True):
            total += sum(chunk)  # one of them is not 0
        total = run.world.sum([total * run.world.counts])[0]
        loss, seconds = total / len(run.evaluator.chosen), time.perf_counter() - begun
        loop.record_evaluation(run, run.progress.step, loss, seconds)

    def _finish(self) -> int:
        """Save the last step; all groups wait for it, so that another can save if the leader is lost."""
        self._agreement().reach()
        self.run.recorder.enter(Phase.FINISH)
        run, view = self.run, self._current()
        done = not self.stop
        code = 0
        if self._is_first():
            self.leadership.take(run, view.attempt)
            code = loop.finish(run) if done else loop.stop_on_notice(run, "signal")
        note = replace(self._note(rounds.FINAL), flags=code)
        patience = max(self._patience(), 2 * run.deadline_s)
        codes = self._rounds().notes(note, patience)
        code = codes[view.members[0].id].flags
        reason = DONE if code == EXIT_DONE else "stopped"
        self.ranks.share(lambda: asdict(self.log.create(end_view(view, reason))))
        return code

    def _position(self) -> int:
        position = self._current().position(self.listener.member.id)
        assert position is not None
        return position

    def _is_first(self) -> bool:
        return self._position() == 0

    def _patience(self) -> float:
        return self.run.config.collective_timeout_s

    def _current(self) -> View:
        assert self.view
        return self.view

    def _agreement(self) -> Agreement:
        assert self.agreement
        return self.agreement

    def _rounds(self) -> Exchange:
        assert self.exchange
        return self.exchange


def _number(value: float | None) -> float:
    return math.nan if value is None else value
