"""Whether the groups of a view hold the same state, bit for bit.

Rank R of a group compares its part with rank R of the others, and the ranks of a group follow the verdict of all
of them. docs/culprits.md says when the state is compared, and what follows where it differs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from training.checkpoint import contents
from training.trainer.elastic.exchange import Exchange
from training.trainer.elastic.links import MemberLost
from training.trainer.elastic.ranks import GroupRanks, merge_lost
from training.trainer.elastic.views import View, ViewLog
from training.trainer.flight.ring import Phase
from training.trainer.loop import Run
from training.trainer.replicas.comparison import Replicas, ReplicasDiffer
from training.trainer.replicas.peers import Peers


@dataclass(kw_only=True)
class Agreement:
    """This rank's part in the comparisons of one view."""

    run: Run
    ranks: GroupRanks
    replicas: Replicas

    @classmethod
    def in_view(
        cls, run: Run, log: ViewLog, exchange: Exchange, ranks: GroupRanks, *, witnessed: bool
    ) -> Agreement:
        """Return the comparison of the members of a view, in which nothing has been compared yet.

        `witnessed`: whether this group knows that two groups at least have computed each step since the state was
        loaded.
        """
        assert run.flight
        timeout_s = run.config.collective_timeout_s
        replicas = Replicas.of_groups(
            run.world,
            log.run_dir,
            lambda: contents.tensors(run.network.unwrapped, run.optimizer),
            group_peers(run, log, exchange, timeout_s),
            run.flight.watchdog.announce,
            exchange.mesh.view.attempt,
            witnessed=witnessed,
        )
        return cls(run=run, ranks=ranks, replicas=replicas)

    @property
    def reached(self) -> bool:
        """Whether the state as it is now was the same in all groups."""
        return self.replicas.agreed_step == self.run.progress.step

    def is_due(self, step: int) -> bool:
        """Return whether the state after this step is to be compared, by the configuration of this group."""
        every = self.run.config.report.compare_replicas_every_steps
        saved = self.run.save_policy.reason(step, time_due=False) is not None
        scheduled = every is not None and step % every == 0
        return saved or scheduled or self.replicas.is_disputed(step)

    def reach(self, *, again: bool = False) -> None:
        """Compare the state, unless that is done for this step; `again`: even then.

        Raises MemberLost, and ReplicasDiffer on all ranks of all groups.
        """
        run, replicas = self.run, self.replicas
        if again:
            replicas.agreed_step = -1
        run.recorder.enter(Phase.COMPARE)
        report: dict[str, Any] = {"lost": None, "differs": "", "wrong": [], "final": False}
        try:
            replicas.compare(run.progress.step)
        except MemberLost as error:
            report["lost"] = sorted(error.lost)
        except ReplicasDiffer as error:
            report |= {"differs": str(error), "wrong": list(error.wrong), "final": error.final}
        found = self.ranks.agree(
            report,
            _merge,
            failed=report["lost"] is not None,
            timeout_s=2 * run.config.collective_timeout_s,
        )
        if found["lost"] is not None:
            raise MemberLost(set(found["lost"]))
        if found["differs"]:
            raise ReplicasDiffer(found["differs"], found["wrong"], final=found["final"])
        run.recorder.enter(Phase.BETWEEN)


def group_peers(run: Run, log: ViewLog, exchange: Exchange, timeout_s: float) -> Peers:
    """Return this rank's counterparts in the groups of a view.

    A group that was not in the view before has its state from one that was, and has no vote.
    """
    view, world = exchange.mesh.view, run.world
    number = range(len(view.members))
    before = log.read(view.number - 1) if view.number > 1 else None
    old = [n for n in number if before and before.position(view.members[n].id) is not None]
    return Peers(
        own=_position(view, exchange),
        gather=lambda content: exchange.gather_bytes(content, timeout_s),
        alike=(tuple(number),),
        ranks=tuple(n * world.size + world.rank for n in number),
        voters=frozenset(old or number),
        in_gang=False,
    )


def _position(view: View, exchange: Exchange) -> int:
    position = view.position(exchange.own_id)
    assert position is not None
    return position


def _merge(reports: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what all ranks of a group have found."""
    return {
        "lost": merge_lost([report["lost"] for report in reports]),
        "differs": next((one["differs"] for one in reports if one["differs"]), ""),
        "wrong": sorted({peer for report in reports for peer in report["wrong"]}),
        "final": any(report["final"] for report in reports),
    }
