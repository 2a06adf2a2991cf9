"""One rank of a replica group: joins the run, takes steps with the others, follows changes of the membership.

docs/elastic.md has the table of rules that this module implements. All ranks of a group run it alike: what they
cannot know alike, `GroupRanks` decides.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
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
from training.trainer.elastic.exchange import Note, buffer_of
from training.trainer.elastic.leader import Leadership
from training.trainer.elastic.links import MemberLost
from training.trainer.elastic.membership import DONE, Excluded, RunEnded
from training.trainer.elastic.transfer import AppliedStep
from training.trainer.elastic.view_changes import ViewChanges
from training.trainer.elastic.views import View
from training.trainer.flight.ring import Phase
from training.trainer.replicas.comparison import ReplicasDiffer
from training.trainer.replicas.disputes import DisputeFile
from trainyard.store.interface import StaleAttempt

_IDLE_S: Final = 0.02
"""Pause between rounds while groups are missing at the start."""
_RIVAL_S: Final = 30.0
"""As long as a group that computes disputed steps again waits for another one to join it."""


@dataclass(kw_only=True)
class Group:
    """This rank's part in an elastic run."""

    computation: Computation
    changes: ViewChanges
    entrance: Entrance
    donors: Donors
    leadership: Leadership
    agreement: Agreement | None = None
    stop: bool = False
    """Whether the run stops before its last step: an operator's notice, or too few groups."""
    _disputed_step: int = -1
    """The step after which groups differed when this one started the run again; -1: they did not."""
    _witnessed: bool = False
    """Whether this group started the run, and no step since was taken by one group alone."""

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
        try:
            return self._take_part()
        except Excluded:
            raise
        except Exception as error:
            self.changes.close_links()  # the others need not wait for what follows
            if self.run.flight:
                self.run.flight.fail(error)
            raise
        finally:
            self.changes.disconnect()

    def _take_part(self) -> int:
        try:
            entry = self.entrance.enter()
            if entry is None:
                return EXIT_PREEMPTED
            self.changes.begin(entry.view)
            if entry.started:
                self._start(entry.view)
            self.computation.on_applied = self.donors.offer
            self.changes.changed_at = time.monotonic()
            while True:
                try:
                    self._form()
                    code = self._train()
                    if code is not None:
                        return code
                except MemberLost as error:
                    self.changes.replace(error.lost)
                except ReplicasDiffer as error:
                    self.changes.roll_back(error)
        except RunEnded as ended:
            return ended.code
        except StaleAttempt as error:
            # Of the same run: it goes on without this group, which had not noticed yet.
            if self.changes.is_replaced():
                raise Excluded(str(error)) from None
            raise

    def _start(self, view: View) -> None:
        """Load the state: this group has started the run, or started it again."""
        self.leadership.take(
            self.run, view.attempt, load=True, holds_state=self.computation.holds_state
        )
        self.computation.holds_state = self._witnessed = True
        dispute = DisputeFile(self.changes.log.run_dir).read()
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
            "donors": Donors.decide(
                [report["donors"] for report in reports], *self.changes.places()
            ),
            "hold": self._awaits_rival(fed=bool(reports[0]["donors"]["fed"])),
        }

    def _awaits_rival(self, *, fed: bool) -> bool:
        """Return whether to wait for a second group, which has to compute disputed steps, too; `fed`: one joins.

        Decided on rank 0.
        """
        changes = self.changes
        if len(changes.view.members) > 1 or not self._witnessed:
            return False
        limit = changes.patience_s if fed else _RIVAL_S
        waited = time.monotonic() - changes.changed_at
        return self.run.progress.step < self._disputed_step and waited < limit

    def _is_asked_to_leave(self) -> bool:
        return self.run.notice.is_set() and not self.leadership.is_run_notice(self.run)

    # The members

    def _form(self) -> None:
        """Connect with the members of the view, and bring all to the same step."""
        changes, run = self.changes, self.run
        changes.connect(self)
        self._synchronize()
        view = changes.view
        if view.formed and len(view.members) < run.config.groups.min:
            self.stop = True
        self.computation.read_share(changes.exchange.leaves)
        run.meter.devices = len(view.members) * run.world.size
        changes.watch()
        self.agreement = Agreement.in_view(
            run, changes.log, changes.exchange, changes.ranks, witnessed=self._witnessed
        )
        self.agreement.reach()
        seconds = time.monotonic() - changes.changed_at
        self.leadership.view_formed(view, run, seconds, first=changes.position == 0)
        readiness.report(view.formed)

    def _synchronize(self) -> None:
        """Give the last updates to members that missed them.

        If no member has kept all updates that a group missed, raises Excluded in that group and MemberLost in all
        others.
        """
        changes, run = self.changes, self.run
        found = changes.exchange.notes(self._note(rounds.SYNC), changes.patience_s)
        newest = max(note.step for note in found.values())
        donors = [m.id for m in changes.view.members if found[m.id].step == newest]
        donor = max(donors, key=lambda peer: found[peer].kept)  # the first of several
        oldest = newest - found[donor].kept + 1
        late = {peer for peer, note in found.items() if note.step < oldest - 1}
        if changes.own_id in late:
            raise Excluded("this group is too many steps behind")
        if late:
            raise MemberLost(late)
        for step in range(oldest, newest + 1):
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
        changes = self.changes
        own, swap = changes.own_id, changes.exchange.swap
        if own == donor:
            applied = self.computation.applied[step]
            parts = [memoryview(applied.note.pack()), buffer_of(applied.share.cpu())]
            swap({peer: list(parts) for peer in behind}, {}, changes.patience_s)
        elif own in behind:
            content, share = bytearray(Note.SIZE), torch.empty(self.computation.length)
            swap({}, {donor: [memoryview(content), buffer_of(share)]}, changes.patience_s)
            self.computation.apply(AppliedStep(Note.unpack(content), share))

    # The training

    def _train(self) -> int | None:
        """Take rounds until the view changes (None) or this group ends (its exit code)."""
        while True:
            run, changes, view = self.run, self.changes, self.changes.view
            if self._evaluation_is_due():
                self._evaluate()
            if self.stop or run.progress.step >= run.config.steps:
                return self._finish()
            found = self._round()
            orders, agreement = changes.exchange.orders, self._agreement()
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
            changes.receive(found)
            joining = changes.admit(gone)
            self.stop = self.stop or any(note.flags & rounds.STOP for note in found.values())
            left = len(view.members) - len(gone) + len(joining)
            if view.formed and left < run.config.groups.min:
                self.stop = True
            if self.stop:
                continue
            if changes.own_id in gone:
                return EXIT_PREEMPTED
            if gone or joining:
                names = [f"{peer} left" for peer in sorted(gone)]
                names += [f"{peer} joined" for peer in joining]
                changes.change(", ".join(names), gone=gone, joining=joining)
                return None

    def _round(self) -> dict[str, Note]:
        if not self.changes.view.formed or self.changes.exchange.orders["hold"]:
            time.sleep(_IDLE_S)
            self.run.recorder.enter(Phase.BETWEEN)
            return self.changes.exchange.notes(self._note(rounds.IDLE), self.changes.patience_s)
        self._witnessed = self._witnessed and len(self.changes.view.members) > 1
        note = replace(self._note(rounds.STEP), step=self.run.progress.step + 1)
        try:
            return self.computation.step(self.changes.exchange, note, self.changes.patience_s)
        except loop.LossNotFinite:
            self._agreement().reach(again=True)
            raise

    def _note(self, kind: int) -> Note:
        run, flags = self.run, rounds.STOP if self.stop else 0
        orders = self.changes.exchange.orders
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
            view=self.changes.view.number,
            step=run.progress.step,
            flags=flags,
            ready=tuple(peer for peer, step in fed.items() if step >= run.progress.step - 1),
            kept=self.computation.kept,
            evaluated_step=run.progress.evaluated_step,
            evaluation_loss=_number(run.progress.evaluation_loss),
        )

    def _wants_comparison(self, kind: int) -> bool:
        """Return whether this group has to know that the state after the round is the same in all."""
        orders = self.changes.exchange.orders
        if orders and (
            orders["donors"]["start"] or (orders["time_due"] and self.changes.position == 0)
        ):
            return True
        return kind == rounds.STEP and self._agreement().is_due(self.run.progress.step + 1)

    def _evaluation_is_due(self) -> bool:
        return self.changes.view.formed and loop.evaluation_is_due(self.run)

    def _evaluate(self) -> None:
        begun, run, exchange = time.perf_counter(), self.run, self.changes.exchange
        values = self.computation.evaluation_losses(exchange)
        run.recorder.enter(Phase.AGREE)
        found = exchange.gather(self._note(rounds.EVALUATION), values, self.changes.patience_s)
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
        run, view = self.run, self.changes.view
        done = not self.stop
        code = 0
        if self.changes.position == 0:
            self.leadership.take(run, view.attempt)
            code = loop.finish(run) if done else loop.stop_on_notice(run, "signal")
        note = replace(self._note(rounds.FINAL), flags=code)
        patience = max(self.changes.patience_s, 2 * run.deadline_s)
        codes = self.changes.exchange.notes(note, patience)
        code = codes[view.members[0].id].flags
        reason = DONE if code == EXIT_DONE else "stopped"
        self.changes.end(reason)
        return code

    def _agreement(self) -> Agreement:
        assert self.agreement
        return self.agreement


def _number(value: float | None) -> float:
    return math.nan if value is None else value
