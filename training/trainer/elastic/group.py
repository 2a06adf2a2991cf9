"""One replica group: joins the run, takes steps with the others, and follows every change of the membership.

docs/elastic.md has the table of rules that this module implements.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import Final

import torch

from training.spec import EXIT_DONE, EXIT_PREEMPTED
from training.trainer import loop
from training.trainer.elastic import exchange as rounds
from training.trainer.elastic.computation import Computation
from training.trainer.elastic.exchange import Exchange, Note, buffer_of
from training.trainer.elastic.leader import Leadership
from training.trainer.elastic.links import Listener, MemberLost
from training.trainer.elastic.membership import (
    Excluded,
    RunEnded,
    enter,
    next_view,
    read_member,
)
from training.trainer.elastic.mesh import Mesh
from training.trainer.elastic.transfer import AppliedStep
from training.trainer.elastic.views import View, ViewLog

_IDLE_S: Final = 0.02
"""Pause between rounds while groups are missing at the start."""
_DONE: Final = "done"


@dataclass(kw_only=True)
class Group:
    """The part of one process in an elastic run."""

    computation: Computation
    log: ViewLog
    listener: Listener
    leadership: Leadership
    view: View | None = None
    mesh: Mesh | None = None
    exchange: Exchange | None = None
    stop: bool = False
    """Whether the run stops before its last step: an operator's notice, or too few groups."""
    changed_at: float = 0.0
    """When the last change of the view began, in monotonic seconds."""

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
        entry = enter(self.log, self.listener, self.computation, self.run.notice)
        if entry is None:
            return EXIT_PREEMPTED
        self.view = entry.view
        if entry.found:
            self.leadership.take(self.run, load=True)
        self.changed_at = time.monotonic()
        try:
            while True:
                try:
                    self._form()
                    code = self._train()
                    if code is not None:
                        return code
                except MemberLost as error:
                    self._change(f"lost {', '.join(sorted(error.lost))}", gone=error.lost)
        except RunEnded as ended:
            return ended.code
        finally:
            self._close_mesh()

    def close(self) -> None:
        """End what this group has started."""
        self.leadership.end_join()
        self.run.loader.close()

    # The membership

    def _form(self) -> None:
        """Connect with the members of the view, and bring all to the same step."""
        view = self._current()
        self.mesh = Mesh(self.listener, view, self.listener.connect(view, self._patience()))
        workers = self.run.config.groups.workers
        self.exchange = Exchange(
            self.mesh, self.listener.member.id, workers, self.computation.length
        )
        self._synchronize()
        if view.formed and len(view.members) < self.run.config.groups.min:
            self.stop = True
        self.computation.read_share(self.exchange.leaves)
        self.leadership.view_formed(view, self.run, time.monotonic() - self.changed_at)

    def _synchronize(self) -> None:
        """Give the last update to members that missed it; they are one step behind at most."""
        exchange, run = self._rounds(), self.run
        mine = self._note(rounds.SYNC)
        found = exchange.notes(mine, self._patience())
        newest = max(note.step for note in found.values())
        behind = [peer for peer, note in found.items() if note.step < newest]
        if run.progress.step < newest - 1:
            raise Excluded("this group is several steps behind")
        if behind:
            donor = next(m.id for m in self._current().members if found[m.id].step == newest)
            self._catch_up(donor, behind)
        self.stop = self.stop or any(note.flags & rounds.STOP for note in found.values())
        latest = max(found.values(), key=lambda note: note.evaluated_step)
        if latest.evaluated_step > run.progress.evaluated_step:
            loop.record_evaluation(run, latest.evaluation_loss, 0.0)

    def _catch_up(self, donor: str, behind: list[str]) -> None:
        """Send or receive the last update."""
        own, mesh = self.listener.member.id, self._rounds().mesh
        if own == donor:
            last = self.computation.last
            if last is None:
                raise Excluded("this group cannot give the last update")
            parts = [memoryview(last.note.pack()), buffer_of(last.flat.cpu())]
            mesh.swap({peer: list(parts) for peer in behind}, {}, self._patience())
        elif own in behind:
            content, flat = bytearray(Note.SIZE), torch.empty(self.computation.length)
            mesh.swap({}, {donor: [memoryview(content), buffer_of(flat)]}, self._patience())
            self.computation.apply(AppliedStep(Note.unpack(content), flat))

    def _change(self, reason: str, *, gone: set[str], joiner: str = "") -> None:
        """Agree with the others on the next view. Raises Excluded when it is without this group."""
        self.changed_at = time.monotonic()
        member = read_member(self.log, joiner) if joiner else None
        proposal = next_view(self._current(), self.run.config.groups, reason, gone, member)
        self.view = self.log.create(proposal)
        self._close_mesh()
        if self.view.ended:
            raise RunEnded(EXIT_DONE if self.view.reason == _DONE else EXIT_PREEMPTED)
        if self.view.position(self.listener.member.id) is None:
            raise Excluded(f"the others went on without this group: {self.view.reason}")
        self.leadership.view_changed(self.view)

    def _close_mesh(self) -> None:
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
            self.leadership.after_round(view, self.computation)
            own = self.listener.member.id
            gone = {peer for peer, note in found.items() if note.flags & rounds.LEAVE}
            joiner = found[view.members[0].id].joiner
            self.stop = self.stop or any(note.flags & rounds.STOP for note in found.values())
            left = len(view.members) - len(gone) + bool(joiner)
            if view.formed and left < run.config.groups.min:
                self.stop = True
            if self.stop:
                continue
            if own in gone:
                return EXIT_PREEMPTED
            if gone or joiner:
                names = [f"{peer} left" for peer in sorted(gone)]
                names += [f"{joiner} joined"] if joiner else []
                self._change(", ".join(names), gone=gone, joiner=joiner)
                return None

    def _round(self) -> dict[str, Note]:
        if not self._current().formed:
            time.sleep(_IDLE_S)
            return self._rounds().notes(self._note(rounds.IDLE), self._patience())
        note = replace(self._note(rounds.STEP), step=self.run.progress.step + 1)
        return self.computation.step(self._rounds(), note, self._patience())

    def _note(self, kind: int) -> Note:
        run, flags = self.run, rounds.STOP if self.stop else 0
        if run.notice.is_set():
            flags |= rounds.STOP if self.leadership.is_run_notice(run) else rounds.LEAVE
        return Note(
            kind=kind,
            view=self._current().number,
            step=run.progress.step,
            flags=flags,
            joiner=self.leadership.ready_joiner(run.progress.step),
            evaluated_step=run.progress.evaluated_step,
            evaluation_loss=_number(run.progress.evaluation_loss),
        )

    def _evaluation_is_due(self) -> bool:
        return self._current().formed and loop.evaluation_is_due(self.run)

    def _evaluate(self) -> None:
        begun, run, exchange = time.perf_counter(), self.run, self._rounds()
        values = self.computation.evaluation_losses(exchange)
        found = exchange.gather(self._note(rounds.EVALUATION), values, self._patience())
        total = 0.0
        for chunk in zip(*(tensor.tolist() for tensor in found.values()), strict=True):
            total += sum(chunk)  # one of them is not 0
        loss = total / len(run.evaluator.chosen)
        loop.record_evaluation(run, loss, time.perf_counter() - begun)

    def _finish(self) -> int:
        """Save the last step; all groups wait for it, so that another can save if the leader is lost."""
        run, view = self.run, self._current()
        done = not self.stop
        code = 0
        if view.members[0].id == self.listener.member.id:
            self.leadership.take(run)
            code = loop.finish(run) if done else loop.stop_on_notice(run, "signal")
        note = replace(self._note(rounds.FINAL), flags=code)
        patience = max(self._patience(), 2 * run.deadline_s)
        codes = self._rounds().notes(note, patience)
        code = codes[view.members[0].id].flags
        reason = _DONE if code == EXIT_DONE else "stopped"
        self.log.create(View(number=view.number + 1, members=(), formed=False, reason=reason))
        return code

    def _patience(self) -> float:
        return self.run.config.collective_timeout_s

    def _current(self) -> View:
        assert self.view
        return self.view

    def _rounds(self) -> Exchange:
        assert self.exchange
        return self.exchange


def _number(value: float | None) -> float:
    return math.nan if value is None else value
