"""What the leading group of a run does besides training: it fences out the one before, logs and saves."""

from __future__ import annotations

from typing import NoReturn, Protocol

import trainyard
from trainyard import checkpoints, reporting, session
from trainyard.contract import EXIT_DONE, EXIT_PREEMPTED
from trainyard.elastic.ranks import Ranks
from trainyard.elastic.views import View
from trainyard.run_info import run as facts
from trainyard.store import fence
from trainyard.store.interface import StaleAttempt


class Checkpoints(Protocol):
    """Where the leading group saves, and from where a run goes on that has lost all its groups."""

    def resume(self) -> int:
        """Restore the newest checkpoint; return its step, 0 without one. A call of all ranks of a group."""
        ...

    def save(self, step: int) -> None:
        """Save. A call of all ranks of a group."""
        ...


def claim(ranks: Ranks, attempt: int) -> None:
    """Fence out former leaders: the session is that of this attempt. Raises StaleAttempt on all ranks."""

    def refused() -> str:
        try:
            session.current()
        except StaleAttempt as error:
            return str(error)
        return ""

    session.renew(attempt)
    if why := ranks.share(refused):
        raise StaleAttempt(why)
    session.current()


class Leader:
    """A program's part, with the library's event log and checkpoints; the trainer has another one.

    All calls but `newest_attempt` and `is_due` are those of all ranks of a group.
    """

    def __init__(self, ranks: Ranks, checkpoints: Checkpoints | None, save_every: int) -> None:
        self._ranks, self._checkpoints, self._every = ranks, checkpoints, save_every
        self._writes = facts.in_run or checkpoints is not None

    def newest_attempt(self) -> int:
        """Return the highest attempt number that is claimed; 0 for none. On rank 0."""
        return fence.newest_attempt(facts.run_dir or facts.checkpoints)

    def is_due(self, step: int) -> bool:
        """Return whether to save after this step. On the leading rank."""
        return self._every > 0 and step % self._every == 0

    def lead(self, attempt: int, step: int) -> None:
        """Claim an attempt number: former leaders publish nothing more. Raises StaleAttempt on all ranks."""
        if self._writes:
            claim(self._ranks, attempt)

    def resume(self, step: int) -> int:
        """Restore the newest checkpoint if it is later than this group's step; return the step to go on from."""
        if self._checkpoints is None:
            return step
        saved = self._ranks.share(lambda: max(session.store().steps(), default=0))
        return self._checkpoints.resume() if saved > step else step

    def formed(self, view: View, position: int, step: int, seconds: float) -> None:
        """Take notice of a view that this group is in; the first one records it."""
        if position == 0 and self._writes:
            details = view.details(seconds)
            session.current().events.write("membership", step, **details)

    def save(self, step: int) -> None:
        """Save. Raises StaleAttempt on all ranks."""
        if self._checkpoints:
            self._checkpoints.save(step)
            checkpoints.wait()  # Another group takes the lead if this one is lost before.

    def finish(self, step: int, *, stopped: bool) -> int:
        """Save the last step, or the one at which the run stops; return the exit code of all groups."""
        if self._every or stopped:
            self.save(step)
        return EXIT_PREEMPTED if stopped else EXIT_DONE

    def step_down(self) -> None:
        """Write nothing more: this group is in no view."""
        reporting.close()

    def leave(self, code: int) -> NoReturn:
        """End this group with a code that is not 0."""
        trainyard.exit_preempted()
