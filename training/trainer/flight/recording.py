"""The flight recorder of one rank: opened with an attempt, closed with it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from training.trainer.config import TrainerConfig
from training.trainer.flight import collectives
from training.trainer.flight.recorder import Recorder
from training.trainer.flight.reports import Team, attempt_label
from training.trainer.flight.ring import (
    Identity,
    Ring,
    remove_old_rings,
    ring_file,
    started_ticks,
)
from training.trainer.flight.watchdog import Groups, Patience, Watchdog
from training.trainer.parallel.world import World
from trainyard.culprits import Culprit


def open_ring(run_dir: Path, rank: int) -> Ring | None:
    """Return the ring of this rank; None where the node has no place for it."""
    pid = os.getpid()
    identity = Identity(rank=rank, pid=pid, started=started_ticks(pid) or 0)
    try:
        remove_old_rings(run_dir)
        return Ring(ring_file(run_dir, rank), identity)
    except OSError:
        return None


class Recording:
    """Recorder and watchdog of one rank."""

    def __init__(self, config: TrainerConfig, run_dir: Path, world: World) -> None:
        """Start to record; nothing is watched yet."""
        report = config.report
        self._world = world
        self.recorder = Recorder(open_ring(run_dir, world.rank))

        def patience(ranks: int) -> Patience:
            return Patience(
                hang_after_s=report.hang_after_s,
                window_s=report.share_window_s,
                start_limit_s=config.start_limit_s,
                collective_timeout_s=config.collective_timeout_s,
                world=ranks,
            )

        self.watchdog = Watchdog(
            run_dir,
            self.recorder,
            patience,
            rank=world.rank,
            ring=ring_file(run_dir, world.rank),
            end_hung_rank=report.end_hung_rank,
        )

    def watch_gang(self, attempt: int) -> None:
        """Watch the ranks of an attempt, whose `Board` the leader has prepared."""
        world = self._world
        self.watchdog.watch(
            Team(label=attempt_label(attempt), rank=world.rank, world=world.size, attempt=attempt)
        )

    def watch_groups(self, ranks: Team) -> None:
        """Watch the ranks of all groups of a view, which take the same exchanges from now on."""
        self.recorder.restart()
        self.watchdog.watch(ranks)

    def watch_none(self) -> None:
        """Watch nothing until the next call: this rank is in no view."""
        self.watchdog.watch(None)

    def count_collectives(self) -> None:
        """Count collectives from now on: all process groups exist."""
        collectives.count_all()
        if self.watchdog.groups:
            self.recorder.inside = collectives.issued
        else:
            self.recorder.issued = collectives.issued

    def follow_groups(self, groups: Groups) -> None:
        """Act on hangs by the membership of an elastic run, and compare exchanges between groups.

        Collectives are compared inside a group: it has as many as it needs.
        """
        self.watchdog.groups = groups
        self.recorder.issued = lambda: self.recorder.exchanges

    def name_silent(self, ranks: Sequence[int]) -> Callable[[], None]:
        """Find out about ranks of the present view that have been silent; return what makes them known."""
        announce = self.watchdog.name_silent(ranks)
        return lambda: self.watchdog.later(announce)

    def name_neighbour(self, silent: int | None) -> None:
        """Make known that a rank of this group is silent, or which one broke the exchange. Raises OSError."""
        team = self.watchdog.wanted
        if silent is None:
            self.watchdog.name_mismatch()
        elif team and team.group:
            self.watchdog.name_silent([team.rank - self._world.rank + silent])()

    def report_culprits_to(self, receive: Callable[[Culprit], None]) -> None:
        """Pass on whom any attempt of this run has named; on the leader."""
        self.watchdog.on_culprit = receive

    def close(self) -> None:
        """End in order."""
        self.watchdog.close()
        self.recorder.close()
        collectives.forget_all()

    def fail(self, error: BaseException) -> None:
        """Record why this rank ends; name the rank that broke the exchange with the others."""
        self.watchdog.fail(error)
        collectives.forget_all()
