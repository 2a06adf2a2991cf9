"""The comparison of replicas: every so many steps, and before every save.

Ranks that hold the same part of the model must agree in every bit of it and of the optimizer's state: ranks of a
gang, or the ranks of the same number in the groups of an elastic run. A checkpoint is begun only on a state that
was compared, so the newest one is always from before a difference.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import torch

from training.checkpoint.local_tensors import Groups, local_data
from training.trainer.flight import process
from training.trainer.parallel.world import World
from training.trainer.replicas import disputes
from training.trainer.replicas.checksum import BLOCK, block_checksums, checksums, summary
from training.trainer.replicas.disputes import Dispute, DisputeFile, Element, Place
from training.trainer.replicas.peers import Peers, gang_peers
from trainyard.culprits import CORRUPT, Culprit

Announce = Callable[[str, Culprit], None]

_COMPARED: Final = {"model": None, "optimizer": ("exp_avg", "exp_avg_sq")}
"""Groups of tensors, and the last part of their names; the optimizer's step counts are numbers of the loop."""
_TENSORS: Final = 4
_BLOCKS: Final = 4
_ELEMENTS: Final = 64


class ReplicasDiffer(Exception):
    """Replicas of the model are not the same; nothing is saved of them."""

    def __init__(self, text: str, wrong: Sequence[int] = ()) -> None:
        """`wrong`: those peers whose values are wrong; empty while that is not settled."""
        super().__init__(text)
        self.wrong = tuple(wrong)


@dataclass(frozen=True)
class _Part:
    """One tensor that is compared."""

    group: str
    name: str
    local: torch.Tensor


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
    agreed_step: int = -1
    """The last step after which all replicas agreed; -1: none yet."""
    _parts_known: list[_Part] | None = None
    """Their memory stays the same: it is only looked up once."""
    _open: Dispute | None = None
    """What an earlier attempt has left open."""

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
            _open=file.read(),
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
            _open=file.read() if peers.own == 0 else None,
        )

    def is_due(self, step: int) -> bool:
        """Return whether a step is to be compared apart from saves."""
        return self.every_steps is not None and step % self.every_steps == 0

    def compare(self, step: int) -> None:
        """Compare the state after a step. Raises ReplicasDiffer on every peer, with the culprit named."""
        if step == self.agreed_step:
            return
        if all(len(members) == 1 for members in self.peers.alike):
            self.agreed_step = step
            return
        parts = self._parts()
        own = checksums([part.local for part in parts])
        found = self.peers.gather(summary(own))
        sets = {members: [found[peer] for peer in members] for members in self.peers.alike}
        odd = {members: sums for members, sums in sets.items() if len(set(sums)) > 1}
        if odd:
            members, sums = next(iter(odd.items()))
            self._differ(step, parts, own, members, sums)
        self.agreed_step = step

    def settle(self, step: int) -> None:
        """Settle the dispute about this step, if there is one: it is computed again."""
        dispute = self._open
        if dispute is None or dispute.step > step:
            return
        self._open = None
        if self.world.rank != dispute.rank:
            return
        self.dispute.close()
        values = disputes.read_values(self.tensors(), dispute.elements)
        same_layout = dict(dispute.layout) == self.world.layout.dimensions()
        if dispute.step != step or not same_layout or not values:
            return
        found = disputes.farthest(dispute, values)
        if found is not None:
            evidence = (
                _values_text(dispute.elements[0], dispute.places),
                f"computed again after a restart it is {values[0]:.9g}",
            )
            self._name(step, dispute.attempt, dispute.places[found], evidence)

    def _parts(self) -> list[_Part]:
        if self._parts_known is None:
            self._parts_known = [
                _Part(group, name, local_data(tensor))
                for group, named in self.tensors().items()
                for name, tensor in named.items()
                if (ends := _COMPARED[group]) is None or name.rpartition("/")[2] in ends
            ]
        return self._parts_known

    # A difference

    def _differ(
        self,
        step: int,
        parts: Sequence[_Part],
        own: torch.Tensor,
        members: tuple[int, ...],
        sums: Sequence[bytes],
    ) -> None:
        """Find out which of the members is wrong, make it known, and raise ReplicasDiffer."""
        places = self._places()
        names = self._differing(parts, own, members)
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
        elements = self._elements(parts, names, rivals)
        found = disputes.implausible(elements)
        if found is not None:
            text = _values_text(elements[0], [places[rank] for rank in rivals])
            self._name_once(step, places[rivals[found]], (text,))
            raise ReplicasDiffer(
                f"step {step}: {what} of rank {places[rivals[found]].rank} is wrong; nothing is saved",
                [peer for peer in members if by_sum[peer] == by_sum[rivals[found]]],
            )
        if self.peers.own == 0:
            self.dispute.write(
                Dispute(
                    step=step,
                    attempt=self.attempt,
                    layout=self.world.layout.dimensions(),
                    rank=members[0] if self.peers.in_gang else self.world.rank,
                    places=tuple(places[rank] for rank in rivals),
                    elements=tuple(elements),
                )
            )
        names_of_ranks = ", ".join(str(places[rank].rank) for rank in rivals)
        raise ReplicasDiffer(
            f"step {step}: {what} differs between ranks {names_of_ranks}; nothing is saved, and"
            " computing the step again will show which was right"
        )

    def _places(self) -> list[Place]:
        own = Place(
            rank=self.peers.ranks[self.peers.own], node=process.node_name(), pod=process.pod_name()
        )
        return [
            Place(**json.loads(text))
            for text in self.peers.gather(json.dumps(asdict(own)).encode())
        ]

    def _differing(
        self, parts: Sequence[_Part], own: torch.Tensor, members: Sequence[int]
    ) -> list[str]:
        """Return the tensors that differ between the members; ranks of other parts of the model follow."""
        found = self.peers.gather(own.numpy().tobytes())
        rows = [torch.frombuffer(bytearray(found[rank]), dtype=torch.int64) for rank in members]
        differs = torch.stack([row != rows[0] for row in rows]).any(0)
        names = [f"{part.group}/{part.name}" for part in parts]
        mine = [names[number] for number in differs.nonzero().flatten().tolist()]
        # The names of the members' tensors, which are not those of other stages.
        texts = self.peers.gather(json.dumps(mine if self.peers.own in members else []).encode())
        shared: list[str] = json.loads(texts[members[0]])
        return shared

    def _elements(
        self, parts: Sequence[_Part], names: Sequence[str], rivals: Sequence[int]
    ) -> list[Element]:
        """Return numbers on which the rivals differ, the same on every rank."""
        known = {f"{part.group}/{part.name}": part for part in parts}
        found: list[Element] = []
        for name in names[:_TENSORS]:
            part = known.get(name)
            own = block_checksums(part.local) if part else torch.zeros(0, dtype=torch.int64)
            sums = self.peers.gather(own.numpy().tobytes() or b"-")
            rows = [torch.frombuffer(bytearray(sums[rank]), dtype=torch.int64) for rank in rivals]
            differs = torch.stack([row != rows[0] for row in rows]).any(0)
            for block in differs.nonzero().flatten().tolist()[:_BLOCKS]:
                found += self._in_block(part, name, block, rivals)
        return found[:_ELEMENTS]

    def _in_block(
        self, part: _Part | None, name: str, block: int, rivals: Sequence[int]
    ) -> list[Element]:
        begin = block * BLOCK
        own = part.local.reshape(-1)[begin : begin + BLOCK].cpu() if part else torch.zeros(1)
        contents = self.peers.gather(own.contiguous().view(torch.uint8).numpy().tobytes())
        rows = [torch.frombuffer(bytearray(contents[rank]), dtype=torch.float32) for rank in rivals]
        bits = torch.stack([row.view(torch.int32) for row in rows])
        group, _, tensor = name.partition("/")
        usual = min(disputes.usual_size(row) for row in rows)
        return [
            Element(
                group=group,
                tensor=tensor,
                index=begin + place,
                usual=usual,
                values=tuple(float(row[place]) for row in rows),
            )
            for place in (bits != bits[0]).any(0).nonzero().flatten().tolist()
        ]

    def _name_once(self, step: int, place: Place, evidence: tuple[str, ...]) -> None:
        if self.peers.own == 0:
            self._name(step, self.attempt, place, evidence)

    def _name(self, step: int, attempt: int, place: Place, evidence: tuple[str, ...]) -> None:
        culprit = Culprit(
            symptom=CORRUPT,
            rank=place.rank,
            node=place.node,
            pod=place.pod,
            step=step,
            attempt=attempt,
            time=time.time(),
            what="its replica of the model differs from the others'",
            evidence=evidence,
        )
        self.announce(f"{CORRUPT}-step-{step}", culprit)


def _values_text(element: Element, places: Sequence[Place]) -> str:
    values = ", ".join(
        f"{value:.9g} on rank {place.rank}"
        for value, place in zip(element.values, places, strict=True)
    )
    return f"{element.name} is {values}; numbers around it are {element.usual:.3g} in size"
