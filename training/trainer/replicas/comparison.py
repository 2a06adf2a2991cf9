"""The comparison of replicas: every so many steps, and before every save.

Ranks that hold the same part of the model must agree in every bit of it and of the optimizer's state: ranks of a
gang, or the ranks of the same number in the groups of an elastic run. A checkpoint is begun only on a state that
was compared, so the newest one is always from before a difference. Where no majority decides who was wrong, the
step is computed again: its new values decide once all replicas agree on them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import torch

from training.trainer.flight import process
from training.trainer.parallel.world import World
from training.trainer.replicas import disputes, verdicts
from training.trainer.replicas.checksum import SUMMARY_BYTES, checksums, summary
from training.trainer.replicas.differences import Part, differing, differing_elements
from training.trainer.replicas.disputes import REPEATS_MAX, Dispute, DisputeFile, Place
from training.trainer.replicas.peers import Peers, gang_peers
from trainyard.culprits import CORRUPT, Culprit
from trainyard.tensors.local_tensors import Groups, local_data

Announce = Callable[[str, Culprit], None]

_COMPARED: Final = {"model": None, "optimizer": ("exp_avg", "exp_avg_sq")}
"""Groups of tensors, and the last part of their names; the optimizer's step counts are numbers of the loop."""


class ReplicasDiffer(Exception):
    """Replicas of the model are not the same; nothing is saved of them."""

    def __init__(self, text: str, wrong: Sequence[int] = (), *, final: bool = False) -> None:
        """`wrong`: those peers whose values are wrong; empty while that is not settled.

        `final`: computing the step again has not helped, and is not tried once more by these peers.
        """
        super().__init__(text)
        self.wrong = tuple(wrong)
        self.final = final


@dataclass(kw_only=True)
class Replicas:
    """Compares this rank's part of the model with its replicas; all ranks call the same methods."""

    world: World
    """The ranks that hold this one's model together."""
    peers: Peers
    tensors: Callable[[], Groups]
    every_steps: int | None
    """None: only before a save."""
    announce: Announce
    """Makes a verdict known; called on one rank. Raises OSError."""
    dispute: DisputeFile
    attempt: int
    witnessed: bool = True
    """Whether at least two peers have computed every step since the state was loaded."""
    agreed_step: int = -1
    """The last step after which all replicas agreed; -1: none yet."""
    _parts_known: list[Part] | None = None
    """Their memory stays the same: it is only looked up once."""
    _open: Dispute | None = None
    """What an earlier attempt has left open: on peer 0, after the first comparison on all."""
    _informed: bool = False
    """Whether all peers know that."""

    @classmethod
    def of_run(
        cls,
        world: World,
        run_dir: Path,
        tensors: Callable[[], Groups],
        every_steps: int | None,
        announce: Announce,
        attempt: int,
    ) -> Replicas | None:
        """Return the comparison of a run; None where no rank has a replica."""
        if world.layout.replicate == 1:
            return None
        file = DisputeFile(run_dir)
        return cls(
            world=world,
            peers=gang_peers(world),
            tensors=tensors,
            every_steps=every_steps,
            announce=announce,
            dispute=file,
            attempt=attempt,
            _open=file.read() if world.rank == 0 else None,
        )

    @classmethod
    def of_groups(
        cls,
        world: World,
        run_dir: Path,
        tensors: Callable[[], Groups],
        peers: Peers,
        announce: Announce,
        attempt: int,
        *,
        witnessed: bool,
    ) -> Replicas:
        """Return the comparison of this rank with its counterparts in the other groups of a view."""
        file = DisputeFile(run_dir)
        return cls(
            world=world,
            peers=peers,
            tensors=tensors,
            every_steps=None,
            announce=announce,
            dispute=file,
            attempt=attempt,
            witnessed=witnessed,
            _open=file.read() if peers.own == 0 else None,
        )

    def is_due(self, step: int) -> bool:
        """Return whether a step is to be compared apart from saves."""
        scheduled = self.every_steps is not None and step % self.every_steps == 0
        return scheduled or self.is_disputed(step)

    def is_disputed(self, step: int) -> bool:
        """Return whether the replicas differed after this step, and it is not known who was wrong."""
        return self._open is not None and self._open.step == step

    def compare(self, step: int, *, again: bool = False) -> None:
        """Compare the state after a step; settle what an earlier comparison of it has left open.

        `again`: also if all have agreed after this step. Raises ReplicasDiffer on every peer, with the culprit
        named.
        """
        if step == self.agreed_step and not again:
            return
        if all(len(members) == 1 for members in self.peers.alike):
            self.agreed_step = step
            self._settle(step, compared=False)
            return
        parts = self._parts()
        own = checksums([part.local for part in parts])
        found = self._gather_summaries(summary(own))
        sets = {members: [found[peer] for peer in members] for members in self.peers.alike}
        odd = {members: sums for members, sums in sets.items() if len(set(sums)) > 1}
        if odd:
            members, sums = next(iter(odd.items()))
            self._differ(step, parts, own, members, sums)
        self.agreed_step = step
        self._settle(step, compared=True)

    def _gather_summaries(self, own: bytes) -> list[bytes]:
        """Return the summary of each peer; with the first ones all learn of the open dispute."""
        if self._informed:
            return self.peers.gather(own)
        known = self._open.to_json() if self.peers.own == 0 and self._open else b""
        found = self.peers.gather(own + known)
        self._open, self._informed = disputes.parse(found[0][SUMMARY_BYTES:]), True
        return [content[:SUMMARY_BYTES] for content in found]

    def _settle(self, step: int, *, compared: bool) -> None:
        """Close the dispute about this step, which was computed again; on one rank.

        A rank is named only if all replicas have agreed: one that repeats its error would have the other named.
        """
        dispute = self._open
        if dispute is None or dispute.step > step:
            return
        self._open = None
        if self.world.rank != dispute.rank or not (self.peers.in_gang or self.peers.own == 0):
            return
        self.dispute.close()
        if dispute.step != step:
            return
        if not (compared and self.witnessed):
            what = f"replicas differed after step {step}, which no two groups have computed again"
            self._name_none(dispute, what)
            return
        values = disputes.read_values(self.tensors(), dispute.elements)
        if not values or dict(dispute.layout) != self.world.layout.dimensions():
            return
        found = disputes.farthest(dispute, values)
        if found is not None:
            evidence = (
                verdicts.values_text(dispute.elements[0], dispute.places),
                f"computed again it is {values[0]:.9g} on all replicas",
            )
            self._name(step, dispute.attempt, dispute.places[found], evidence)

    def _parts(self) -> list[Part]:
        if self._parts_known is None:
            self._parts_known = [
                Part(group, name, local_data(tensor))
                for group, named in self.tensors().items()
                for name, tensor in named.items()
                if (ends := _COMPARED[group]) is None or name.rpartition("/")[2] in ends
            ]
        return self._parts_known

    # A difference

    def _differ(
        self,
        step: int,
        parts: Sequence[Part],
        own: torch.Tensor,
        members: tuple[int, ...],
        sums: Sequence[bytes],
    ) -> None:
        """Find out which of the members is wrong, make it known, and raise ReplicasDiffer."""
        places = self._places()
        names = differing(self.peers, parts, own, members)
        what = f"{names[0]}{f' and {len(names) - 1} more tensors' if len(names) > 1 else ''}"
        unproven = self.agreed_step < 0  # once all were the same, each has a state of its own
        voting = [peer for peer in members if peer in self.peers.voters or not unproven]
        counts = Counter(one for peer, one in zip(members, sums, strict=True) if peer in voting)
        (most, count), *rest = counts.most_common()
        if not rest or count > rest[0][1]:
            wrong = [rank for rank, one in zip(members, sums, strict=True) if one != most]
            evidence = (
                f"{what}: rank {places[wrong[0]].rank} differs from {count} replicas that agree",
                *([f"all agreed after step {self.agreed_step}"] if self.agreed_step >= 0 else []),
            )
            self._name_once(step, places[wrong[0]], evidence)
            raise ReplicasDiffer(
                f"step {step}: {what} of rank {places[wrong[0]].rank} differs from its replicas; nothing is saved",
                wrong,
            )
        by_sum = dict(zip(members, sums, strict=True))
        first = {by_sum[peer]: peer for peer in reversed(voting)}
        rivals = [first[one] for one in counts]
        elements = differing_elements(self.peers, parts, names, rivals)
        found = disputes.implausible(elements)
        if found is not None:
            text = verdicts.values_text(elements[0], [places[rank] for rank in rivals])
            self._name_once(step, places[rivals[found]], (text,))
            raise ReplicasDiffer(
                f"step {step}: {what} of rank {places[rivals[found]].rank} is wrong; nothing is saved",
                [peer for peer in members if by_sum[peer] == by_sum[rivals[found]]],
            )
        repeated = self._open is not None and step <= self._open.step
        dispute = Dispute(
            step=step,
            attempt=self.attempt,
            layout=self.world.layout.dimensions(),
            rank=members[0] if self.peers.in_gang else self.world.rank,
            places=tuple(places[rank] for rank in rivals),
            elements=tuple(elements),
            repeats=self._open.repeats + 1 if self._open and repeated else 0,
        )
        if self.peers.own == 0:
            self.dispute.write(dispute)
        raise self._undecided(dispute, what)

    def _undecided(self, dispute: Dispute, what: str) -> ReplicasDiffer:
        """Return the error about a dispute; where the fault repeats, make known that no rank can be named."""
        ranks = ", ".join(str(place.rank) for place in dispute.places)
        text = f"step {dispute.step}: {what} differs between ranks {ranks}; nothing is saved, and"
        if not dispute.repeats:
            return ReplicasDiffer(f"{text} computing the step again will show which was right")
        times = f"{dispute.repeats} time{'s' if dispute.repeats > 1 else ''}"
        if self.peers.own == 0:
            self._name_none(
                dispute,
                f"replicas on ranks {ranks} differ again after step {dispute.step}, computed again"
                f" {times}: the fault repeats, and it is not known which of them is wrong",
            )
        text += f" the fault repeats: the step was computed again {times}"
        if dispute.repeats < REPEATS_MAX:
            return ReplicasDiffer(text)
        nodes = ", ".join(sorted({place.node for place in dispute.places}))
        return ReplicasDiffer(
            f"{text}. The run ends; test {nodes}, and start it again on other nodes or with three replicas",
            final=True,
        )

    def _places(self) -> list[Place]:
        own = Place(
            rank=self.peers.ranks[self.peers.own], node=process.node_name(), pod=process.pod_name()
        )
        return [
            Place(**json.loads(text))
            for text in self.peers.gather(json.dumps(asdict(own)).encode())
        ]

    def _name_once(self, step: int, place: Place, evidence: tuple[str, ...]) -> None:
        if self.peers.own == 0:
            self._name(step, self.attempt, place, evidence)

    def _name(self, step: int, attempt: int, place: Place, evidence: tuple[str, ...]) -> None:
        culprit = verdicts.wrong_rank(step, attempt, place, evidence)
        self.announce(f"{CORRUPT}-step-{step}", culprit)

    def _name_none(self, dispute: Dispute, what: str) -> None:
        culprit = verdicts.no_rank(dispute, what)
        self.announce(f"{CORRUPT}-none-step-{dispute.step}", culprit)
