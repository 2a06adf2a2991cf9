"""Sums over logical workers in the order of one fixed binary tree, however many members share the work.

V logical workers, V a power of two, are the leaves. A member computes a contiguous range of them, cuts the range
into complete subtrees (nodes), sums each by itself and exchanges the sums. Floating-point addition is commutative
but not associative, so the result depends on the tree alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch

Node = tuple[int, int]
"""First leaf and number of leaves of a complete subtree."""

T = TypeVar("T")


def leaf_range(position: int, members: int, workers: int) -> range:
    """Return the logical workers of the member at this position; sizes differ by at most one."""
    return range(position * workers // members, (position + 1) * workers // members)


def nodes_of(leaves: range) -> list[Node]:
    """Cut a range of leaves into the fewest complete subtrees, from left to right."""
    found, first = list[Node](), leaves.start
    while first < leaves.stop:
        size = 1
        while first % (2 * size) == 0 and first + 2 * size <= leaves.stop:
            size *= 2
        found.append((first, size))
        first += size
    return found


def tree_sum(
    parts: Mapping[Node, torch.Tensor], node: Node, out: torch.Tensor | None = None
) -> torch.Tensor:
    """Return the sum below `node` from the sums of the subtrees in `parts`, which cover it.

    In `out`, if it is given; else it may be one of the parts.
    """
    if node in parts:
        return parts[node] if out is None else out.copy_(parts[node])
    first, size = node
    half = size // 2
    left, right = tree_sum(parts, (first, half)), tree_sum(parts, (first + half, half))
    return torch.add(left, right, out=out)


@dataclass
class SubtreeSums:
    """Sums of complete subtrees while the leaves of a range come in, from left to right.

    Holds one set of tensors per level of the tree at most, and adds in place.
    """

    _stack: list[tuple[Node, list[torch.Tensor]]]

    def __init__(self) -> None:
        self._stack = []

    def add(self, leaf: int, tensors: Sequence[torch.Tensor]) -> None:
        """Add a leaf's tensors, which must not be used any more."""
        self._stack.append(((leaf, 1), list(tensors)))
        while len(self._stack) > 1:
            (left, size), sums = self._stack[-2]
            (right, other), added = self._stack[-1]
            if size != other or left % (2 * size) or right != left + size:
                return
            torch._foreach_add_(sums, added)
            self._stack[-2:] = [((left, 2 * size), sums)]

    def __iter__(self) -> Iterator[tuple[Node, list[torch.Tensor]]]:
        return iter(self._stack)


def shard_bounds(length: int, members: int) -> list[tuple[int, int]]:
    """Cut `length` elements into one shard per member; all but the last ones have the same size."""
    size = -(-length // members)
    return [(min(i * size, length), min((i + 1) * size, length)) for i in range(members)]
