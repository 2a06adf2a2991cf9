"""Those that compare their state with each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from training.trainer.parallel.world import World


@dataclass(frozen=True, kw_only=True)
class Peers:
    """Those that compare their state, numbered from 0; all call the same methods in the same order."""

    own: int
    """This one's number; 0 makes known what all find."""
    gather: Callable[[bytes], list[bytes]]
    """Returns what each of them passes, by number."""
    alike: tuple[tuple[int, ...], ...]
    """The sets of those that hold the same part of the model."""
    ranks: tuple[int, ...]
    """The rank as which each is named."""
    voters: frozenset[int]
    """Those who make the majority until all have agreed once: the others have just got their state from one."""
    in_gang: bool
    """Whether they are the ranks of one gang, and not of one number in several groups."""


def gang_peers(world: World) -> Peers:
    """Return all ranks of a gang."""
    layout = world.layout
    sets: dict[tuple[int, int], list[int]] = {}
    for rank in range(world.size):
        place = rank % (layout.shard * layout.tensor)
        sets.setdefault((layout.stage(rank), place), []).append(rank)
    return Peers(
        own=world.rank,
        gather=world.gather_bytes,
        alike=tuple(map(tuple, sets.values())),
        ranks=tuple(range(world.size)),
        voters=frozenset(range(world.size)),
        in_gang=True,
    )
