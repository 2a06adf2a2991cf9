"""One group's part in an elastic run.

How a step goes:

1. `workers()` gives the group its share of the logical workers; each is seeded by run, step and worker.
2. `reduce()` exchanges sums of subtrees and the notes of each member: that it leaves, that the run is to stop,
   that a newcomer is ready. Who has the whole total applies it; nobody is ever two steps ahead of another.
3. If a connection breaks, or a member ends or is silent, the step is void: all ranks of the group agree on that,
   the `with` block ends, and the group goes to the next view.
4. Next view: the first to create the file of its number decides. The members connect anew and compare their steps.
   Who is one behind gets the last total; who is further behind, or not in the view, asks to take part again.
5. A newcomer asks with a file. The last member of the view feeds it (feed.py), and when it is at most one step
   behind, notes that it is ready; the next view has it.
6. Where nobody is alive, a newcomer creates the next view with itself alone, and goes on from the newest
   checkpoint.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import torch
import torch.distributed as dist

from trainyard import notice
from trainyard.contract import EXIT_DONE, EXIT_PREEMPTED, GROUPS_ENV, READY_FILE_ENV
from trainyard.elastic import feed
from trainyard.elastic.exchange import Exchange, Lost, Meeting, SubtreeSums, Transport
from trainyard.elastic.feed import Stateful
from trainyard.elastic.leader import Leader
from trainyard.elastic.leaves import Leaves, seed_all
from trainyard.elastic.membership import Membership
from trainyard.elastic.ranks import Ranks, interruptible
from trainyard.elastic.views import Member, View
from trainyard.store.interface import StaleAttempt
from trainyard.tensors.replicas import Replica, ReplicasDiffer, require_same
from trainyard.watchdog import IDLE, SAVE, STEP, watchdog

Notes = list[list[int]]
"""Of each member, by position."""
_LEAVES, _STOPS, _READY, _SAVES = range(4)
"""Numbers of a member's notes."""
_ROUND_S: Final = 0.05
_LOSS: Final = "a group was lost"
STOPPED: Final = "stopped"
_REPLICA_BYTES: Final = 512
"""More than a checksum has, with the names of node and pod."""

T = TypeVar("T")


class Groups(NamedTuple):
    min: int = 1
    """Groups with which training begins; with fewer the run saves and stops."""
    max: int = 0
    """Groups that compute at most; 0: any number."""
    spares: int = 0
    """Groups beyond `max` that follow every step and replace one that is lost at once."""

    @classmethod
    def of_run(cls) -> Groups:
        return cls(**json.loads(os.environ.get(GROUPS_ENV) or "{}"))


class Options(NamedTuple):
    """Settings of an elastic run; see `trainyard.elastic.join`."""

    workers: int
    seed: int
    groups: Groups
    silent_after_s: float
    timeout_s: float


class Step:
    """One step, or one that this group has missed and takes with the total of the others."""

    def __init__(
        self, run: Run, number: int, missed: torch.Tensor | None = None, *, warm_up: bool = False
    ) -> None:
        self.number = number
        """From 1."""
        self.void = False
        """Whether it has to be taken again."""
        self.notes: Notes = []
        self.share = range(1) if warm_up else run.share if missed is None else range(0)
        """Logical workers of this group."""
        self._run, self._missed, self._warm_up = run, missed, warm_up
        self._loss: torch.Tensor | None = None
        self._sums = SubtreeSums()

    def workers(self) -> Iterator[int]:
        """Yield this group's logical workers; between them, gradients are taken from the model."""
        run = self._run
        run.leaves.begin()
        for worker in self.share:
            seed_all(run.seed, self.number, worker)
            self._loss = None
            yield worker
            self._sums.add(worker, run.leaves.take(self._loss))

    def add(self, loss: torch.Tensor) -> None:
        """Have this loss in the mean that `reduce` returns."""
        self._loss = loss

    def reduce(self) -> float:
        """Set gradients to the mean over all workers; return the mean loss. Ends the `with` block at a loss."""
        run = self._run
        if self._warm_up:
            raise Lost("a step to warm up")
        total = self._missed
        if total is None:
            total, self.notes = run.sum_of_all(self.number, self._sums)
        run.last = (self.number, total)
        seed_all(run.seed, self.number, run.workers)
        run.leaves.give(total, run.workers)
        return run.mean_of_ranks(float(total[-1]) / run.workers)

    def __enter__(self) -> Step:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        self.void = isinstance(error, Lost)
        if error is not None and not self.void:
            self._run.abandon()
        if error is None:
            self._run.step = self.number
        return self.void


class Run:
    """A group that takes part in a run; made by `trainyard.elastic.join`."""

    def __init__(
        self,
        state: Mapping[str, Stateful],
        leaves: Leaves,
        membership: Membership,
        ranks: Ranks,
        leader: Leader,
        options: Options,
    ) -> None:
        self.workers, self.seed = options.workers, options.seed
        self.step = 0
        """The last step that is taken."""
        self.leaves = leaves
        self.last: tuple[int, torch.Tensor] | None = None
        """The last step that is taken and its total; None at the beginning."""
        self._state, self._options = state, options
        self._membership, self._ranks, self._leader = membership, ranks, leader
        self._meeting = Meeting(membership.host)
        self._transport: Transport | None = None
        self._exchange: Exchange | None = None
        self._totals: list[torch.Tensor] = []
        self._missed: torch.Tensor | None = None
        self._late: set[int] = set()
        self._intake: feed.Intake | None = None
        self._feeds: list[feed.Feed] = []
        self._led = self._stopping = self._timed_out = False
        self._code: int | None = None
        """Exit code of the run, once it has ended."""
        notice.requested()  # from now on a signal does not end this process

    # ---- What a program sees ------------------------------------------------------------------------------------

    @property
    def leads(self) -> bool:
        """Whether this is the one process that writes logs."""
        return self._ranks.rank == 0 and self._membership.position == 0

    @property
    def groups(self) -> int:
        """Groups that take part, with spares; 0 before this one does."""
        view = self._membership.view
        return len(view.members) if view else 0

    @property
    def takes_part(self) -> bool:
        """Whether this group is in a view; before that it follows the steps of the others."""
        return self._exchange is not None

    def abandon(self) -> None:
        """Let this rank end with an error of its own, whatever becomes of the others of its group."""
        self._membership.release()

    def steps(self, total: int, *, warm_up: bool = True) -> Iterator[Step]:
        """Yield the steps up to `total` that this group has to take.

        `warm_up`: the first step that is yielded is dropped after its gradients, so that what is compiled or
        allocated there delays nobody. Ends the process with 75 after a notice. Raises ReplicasDiffer.
        """
        with watchdog.replaceable(self._options.timeout_s):
            yield from self._steps(total, warm_up=warm_up)

    def _steps(self, total: int, *, warm_up: bool) -> Iterator[Step]:
        if warm_up:
            yield Step(self, self.step + 1, warm_up=True)
        self._enter()
        while self._code is None:
            if self._intake:
                missed = self._take_in(self._intake)
                if missed is None:
                    continue
            else:
                missed, self._missed = self._missed, None
                if missed is None and (self._stopping or self.step >= total):
                    self._finish()
                    continue
                if missed is None and not self._membership.current.formed:
                    self._wait_for_groups()
                    continue
            step = Step(self, self.step + 1, missed)
            yield step
            if step.void:
                self._change(_LOSS)
            elif self._intake:
                self._intake.taken(step.number)
            else:
                self._after(step)
        self._leave(self._code)

    # ---- A step -------------------------------------------------------------------------------------------------

    @property
    def share(self) -> range:
        return self._exchange.share if self._exchange else range(0)

    def sum_of_all(self, number: int, sums: SubtreeSums) -> tuple[torch.Tensor, Notes]:
        """Return the sum over all workers and the notes of all members. Raises Lost on all ranks of the group."""
        exchange, out = self._exchange, self._totals[number % 2]
        assert exchange is not None
        note = self._note(number)
        exchange.put(sums)
        notes = self._or_lost(lambda: exchange.reduce(out, note))
        return out, [found.tolist() for found in notes]

    def mean_of_ranks(self, value: float) -> float:
        """Return the mean over the ranks of this group, whose samples differ."""
        found = torch.tensor([value], dtype=torch.float64)
        return float(self._ranks.all_reduce(found, dist.ReduceOp.SUM)) / self._ranks.count

    def _note(self, number: int, *, steps: bool = True) -> torch.Tensor:
        """Return this group's notes of a step; begins to feed a newcomer, on all ranks before the same step.

        `steps`: a step is taken with them. Raises Lost on all ranks.
        """
        asked, first, membership = notice.requested(), self._ranks.rank == 0, self._membership
        stops = asked and notice.for_run()
        ready = first and bool(self._ready_newcomers(number - 2))
        saves = steps and first and membership.position == 0 and self._leader.is_due(number)
        newcomer = self._find_newcomer() if first else None
        wishes = [asked and not stops, stops, ready, saves]
        wishes += [newcomer is not None, first and membership.replaced()]
        found = self._ranks.all_reduce(torch.tensor(wishes, dtype=torch.int64), dist.ReduceOp.MAX)
        if found[-1]:
            raise Lost("others have taken over")
        if found[-2]:
            self._begin_feed(newcomer)
        return found[:-2].clone()

    def _after(self, step: Step) -> None:
        """Feed newcomers, save if it is due, and do what the notes of the step ask for."""
        assert self.last is not None
        for one in self._feeds:
            one.add(step.number, self.last[1])
        if any(note[_SAVES] for note in step.notes):
            try:
                self._compare()
                if self._membership.position == 0:
                    self._leader.save(self.step)
            except StaleAttempt as error:
                _print(f"{error}; this group joins again")
                return self._enter()
            except Lost:
                return self._change(_LOSS)
        return self._act(step.notes)

    def _compare(self) -> None:
        """Compare the state with that of the other groups. Raises ReplicasDiffer and Lost on all ranks."""
        transport, rank = self._transport, self._ranks.rank
        assert transport is not None
        own = Replica.of(
            {name: one.state_dict() for name, one in self._state.items()},
            self._membership.position * self._ranks.count + rank,
        ).to_json()
        packed = torch.frombuffer(bytearray(own.ljust(_REPLICA_BYTES)), dtype=torch.uint8)
        watchdog.enter(SAVE)
        found = self._or_lost(lambda: transport.gather(packed))
        replicas = [Replica.from_json(one.numpy().tobytes()) for one in found]
        differ: ReplicasDiffer | None = None
        attempt = self._membership.current.attempt
        try:
            require_same(replicas, self.step, self._membership.run_dir, attempt)
        except ReplicasDiffer as error:
            differ = error
        texts = [text for text in self._ranks.gather(str(differ or "")) if text]
        if texts:
            self.abandon()
            raise differ or ReplicasDiffer(texts[0])

    def _act(self, notes: Notes) -> None:
        """Go to the next view if a member leaves or a newcomer is ready; stop if the run is to stop."""
        view = self._membership.current
        leaving = frozenset(i for i, note in enumerate(notes) if note[_LEAVES])
        too_few = len(view.members) - len(leaving) < self._options.groups.min
        if any(note[_STOPS] for note in notes) or (leaving and view.formed and too_few):
            self._stopping = True
            return
        if self._membership.position in leaving:
            self._leave(EXIT_PREEMPTED)
        ready = any(note[_READY] for note in notes)
        if leaving or ready:
            self._change("a group left" if leaving else "a group joined", leaving, ready=ready)

    def _wait_for_groups(self) -> None:
        """Have a round of notes without a step: fewer groups are there than the run needs."""
        transport = self._transport
        assert transport is not None
        time.sleep(_ROUND_S)
        try:
            note = self._note(self.step + 1, steps=False)
            notes = self._or_lost(lambda: transport.gather(note))
        except Lost:
            return self._change(_LOSS)
        return self._act([found.tolist() for found in notes])

    def _finish(self) -> None:
        """Have the first group save, and wait for that, so that another one can if it is lost."""
        transport, code = self._transport, -1
        assert transport is not None
        try:
            self._compare()
            if self._membership.position == 0:
                code = self._leader.finish(self.step, stopped=self._stopping)
            codes = self._or_lost(lambda: transport.gather(torch.tensor([code])))
        except StaleAttempt as error:
            _print(f"{error}; this group joins again")
            return self._enter()
        except Lost:
            return self._change(_LOSS)
        if self._membership.position == 0:
            self._membership.end_run(STOPPED if code else "done")
        self._code = int(codes[0])
        return None

    def _leave(self, code: int) -> None:
        """End this group's part in the run; with a code that is not 0 the group itself."""
        _show_ready(False)
        self._membership.close()
        if code:
            self._leader.leave(code)

    # ---- Views --------------------------------------------------------------------------------------------------

    def _change(
        self, reason: str, leaving: frozenset[int] = frozenset(), *, ready: bool = False
    ) -> None:
        """Go to the next view, in the same step as its other members."""
        begun = time.monotonic()
        while True:
            self._disconnect()
            fed = [one.member for one in self._ready_newcomers(self.step - 2)] if ready else []
            wait = not fed and (ready or not leaving)
            late, self._timed_out = self._timed_out, False
            view = self._membership.next_view(reason, leaving, fed, wait=wait, late=late)
            if view.position(self._membership.id) is None:
                _print(f"view {view.number} is without this group, which joins again")
                return self._enter()
            self._end_feeds(view)
            if self._form(view):
                return self._formed(begun)
            if self._ranks.any(self._membership.position in self._late):
                return self._enter()
            reason, leaving, ready = _LOSS, frozenset(self._late), False

    def _form(self, view: View) -> bool:
        """Connect the members of a view, and bring them to one step; return whether all are there."""
        self._late = set()
        self._membership.adopt(view)
        members, position, rank = view.members, self._membership.position, self._ranks.rank
        try:
            self._transport = transport = self._or_lost(
                lambda: Transport(
                    self._membership.host,
                    members[0].stores[rank],
                    f"view-{view.number}/{rank}",
                    position,
                    len(members),
                    self._options.timeout_s,
                )
            )
            self._missed = self._or_lost(lambda: self._same_step(transport))
        except Lost:
            return False
        active = self._options.groups.max or len(members)
        self._exchange = Exchange(
            transport, active, self.workers, self.leaves.length, self.leaves.dtype
        )
        return True

    def _same_step(self, transport: Transport) -> torch.Tensor | None:
        """Return the last step's total if this group has missed it. Raises Lost."""
        note = torch.tensor([self.step, int(self.last is not None), int(self._stopping)])
        found = [one.tolist() for one in transport.gather(note)]
        self._stopping = any(stopping for _, _, stopping in found)
        notes = [(step, has) for step, has, _ in found]
        newest = max(step for step, _ in notes)
        behind = [i for i, (step, _) in enumerate(notes) if step == newest - 1]
        donor = next((i for i, (step, has) in enumerate(notes) if step == newest and has), None)
        self._late = {i for i, (step, _) in enumerate(notes) if step < newest - 1}
        self._late |= set() if donor is not None else set(behind)
        if self._late:
            raise Lost("a group has missed more than a step")
        if donor is None or not behind:
            return None
        if transport.position == donor and self.last:
            transport.swap([(self.last[1], i) for i in behind], [])
        if transport.position not in behind:
            return None
        total: torch.Tensor = self._totals[newest % 2]
        transport.swap([], [(total, donor)])
        return total

    def _formed(self, begun: float, *, load: bool = False) -> None:
        """Lead or follow in a new view; stop if too few groups are left. `load`: from the newest checkpoint."""
        view, position, leader = self._membership.current, self._membership.position, self._leader
        if position == 0 and not self._led:
            try:
                leader.lead(view.attempt, self.step)
            except StaleAttempt as error:
                _print(f"{error}; this group joins again")
                return self._enter()
            self._led = True
        if load and (step := leader.resume(self.step)) != self.step:
            self.step, self.last = step, None
        seconds = time.monotonic() - begun
        leader.formed(view, position, self.step, seconds)
        if self.leads:
            about = f"{len(view.members)} groups after step {self.step}: {view.reason}"
            _print(f"view {view.number} of {about} ({seconds:.3f} s)")
        _show_ready(view.formed)
        if view.formed and len(view.members) < self._options.groups.min:
            self._stopping = True
        return None

    def _disconnect(self) -> None:
        """Give up the view. Totals get new memory: a thread that still waits may write to the former."""
        self._membership.give_up()
        if self._transport:
            self._transport.close()
        self._transport = self._exchange = self._missed = None
        if self.last is not None:
            self.last = (self.last[0], self.last[1].clone())
        self._totals = [torch.zeros(self.leaves.length, dtype=self.leaves.dtype) for _ in range(2)]

    def _or_lost(self, work: Callable[[], T]) -> T:
        """Return the result of what waits for other groups. Raises Lost on all ranks of the group."""
        found: list[T] = []
        problem, begun = "", time.monotonic()
        try:
            with watchdog.during(IDLE):  # another group may hang, not this one
                found.append(interruptible(work, self._membership.why_not_wait))
        except Lost as error:
            problem = str(error)
            self._membership.give_up()
        if self._ranks.any(bool(problem)):
            self._timed_out = time.monotonic() - begun >= self._options.timeout_s
            if problem:
                _print(problem)
            raise Lost(problem or "another rank of this group has lost its counterpart")
        return found[0]

    # ---- Newcomers ----------------------------------------------------------------------------------------------

    def _enter(self) -> None:
        """Begin to take part: alone if nobody is alive, else with the state of a member."""
        begun = time.monotonic()
        _show_ready(False)
        self._disconnect()
        self._intake, self._feeds, self._led = None, [], False
        self._leader.step_down()
        self._membership.begin(self._meeting.address)
        while self._intake is None:
            alone = self._membership.ask()
            if alone is not None and not alone.members:
                self._code = EXIT_PREEMPTED if alone.reason == STOPPED else EXIT_DONE
                return None
            if alone is not None:
                if self._form(alone):
                    return self._formed(begun, load=True)
                return self._change(_LOSS)
            if self._ranks.any(notice.requested()):
                return self._leave(EXIT_PREEMPTED)
            intake = self._receive()
            if not self._ranks.any(intake is None):
                self._intake = intake
        return None

    def _receive(self) -> feed.Intake | None:
        """Load the state that a member sends to this rank; None if it does not come."""
        limit = time.monotonic() + self._options.silent_after_s + feed.CONNECT_S
        try:
            while True:
                connection = self._membership.links.feeds.get(
                    timeout=max(0.01, limit - time.monotonic())
                )
                intake = feed.Intake(connection, self._options.silent_after_s)
                if intake.name() == self._membership.id:
                    break
                intake.close()
            state, self.step = intake.state()
        except (Lost, queue.Empty):
            return None
        feed.restore(self._state, state)
        self.last = None
        intake.taken(self.step)
        return intake

    def _take_in(self, intake: feed.Intake) -> torch.Tensor | None:
        """Return the total of a step that the others have taken; None once this group is in a view."""
        found: tuple[int, torch.Tensor | None] | None = None
        with contextlib.suppress(Lost):
            found = intake.total(self.leaves.dtype)
        if self._ranks.any(found is None):
            # The sender is lost; its last view may have this group.
            view = self._membership.view_of()
        elif found and found[1] is not None:
            return found[1]
        else:
            view = self._membership.view_of(found[0] if found else 0)
        intake.close()
        self._intake = None
        begun = time.monotonic()
        if view is None:
            self._enter()
        elif self._form(view):
            self._formed(begun)
        else:
            self._change(_LOSS)
        return None

    def _find_newcomer(self) -> Member | None:
        """Return a group that this one, as the last of its view, has to feed now."""
        membership, groups = self._membership, self._options.groups
        members = membership.current.members
        places = groups.max + groups.spares if groups.max else len(members) + len(self._feeds) + 1
        if membership.position < len(members) - 1 or len(members) + len(self._feeds) >= places:
            return None
        return membership.newcomer({f.member.id for f in self._feeds} | {m.id for m in members})

    def _begin_feed(self, found: Member | None) -> None:
        newcomer = Member.from_json(self._ranks.share(lambda: asdict(found) if found else None))
        token = self._membership.token
        state = feed.snapshot(self._state)
        self._feeds.append(feed.Feed(newcomer, self._ranks.rank, token, state, self.step))

    def _ready_newcomers(self, step: int) -> list[feed.Feed]:
        self._feeds = [one for one in self._feeds if not one.failed]
        return [one for one in self._feeds if one.applied >= step]

    def _end_feeds(self, view: View) -> None:
        for one in self._feeds:
            if view.position(one.member.id) is not None:
                one.end(view.number)
        self._feeds = [one for one in self._feeds if view.position(one.member.id) is None]


def _show_ready(takes_part: bool) -> None:
    """Show it to the readiness probe: the queue takes nodes back from a group that cannot take part."""
    watchdog.enter(STEP if takes_part else IDLE)
    if name := os.environ.get(READY_FILE_ENV):
        if takes_part:
            Path(name).touch()
        else:
            Path(name).unlink(missing_ok=True)


def _print(text: str) -> None:
    print(f"elastic: {text}", file=sys.stderr, flush=True)
