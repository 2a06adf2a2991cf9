"""Sums over the groups of a view: rank R of each group exchanges with rank R of the others.

V logical workers, V a power of two, are the leaves of one fixed binary tree. A group computes a contiguous
range of them, cuts the range into complete subtrees (nodes) and sums each by itself. Floating-point addition is
commutative but not associative, so the result depends on the tree alone, however many groups share the work.
Each member gets all groups' sums of its shard, adds them in the order of the tree, and sends the total to all.
Beside it travel small notes of each member, so that all know the same of each other after a step.

gloo carries it through the memory of the host, also where the model is on GPUs.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

from trainyard.elastic.links import Address


class Lost(Exception):
    """A group is lost, or the view is over: the step is taken again."""


Message = tuple[torch.Tensor, int]
"""A tensor on the host, and the position of the member that sends or gets it."""


class Meeting:
    """The store of this rank: where the connections of views meet that its group leads."""

    def __init__(self, host: str) -> None:
        self._listener = socket.create_server((host, 0))
        host, port = self._listener.getsockname()[:2]
        self.address: Address = (host, port)
        self._store = TCPStore(
            host,
            port,
            is_master=True,
            wait_for_workers=False,
            master_listen_fd=self._listener.detach(),
        )


class Transport:
    """Connections to the counterparts of this rank in a view."""

    def __init__(
        self, host: str, meeting: Address, key: str, position: int, members: int, timeout_s: float
    ) -> None:
        """Connect; blocks until all are there. Raises Lost."""
        timeout = timedelta(seconds=timeout_s)
        self.position, self.others = position, [i for i in range(members) if i != position]
        gloo: Any = dist.ProcessGroupGloo
        options = gloo._Options()
        options._devices = [gloo.create_device(hostname=host)]
        options._timeout = timeout
        try:
            store = TCPStore(*meeting, wait_for_workers=False, timeout=timeout)
            prefixed = PrefixStore(key, store)
            self._group = gloo(prefixed, position, members, options)
        except RuntimeError as error:
            raise Lost(reason_of(error)) from None

    def swap(self, outgoing: Iterable[Message], incoming: Iterable[Message]) -> None:
        """Send and receive; messages between two members keep their order. Raises Lost."""
        works: list[Any] = []
        try:
            for call, messages in ((self._group.recv, incoming), (self._group.send, outgoing)):
                count: dict[int, int] = {}
                for tensor, peer in messages:
                    if tensor.numel():
                        tag = count[peer] = count.get(peer, -1) + 1
                        works.append(call([tensor], peer, tag))
            for work in works:
                work.wait()
        except RuntimeError as error:
            raise Lost(reason_of(error)) from None
        finally:
            works.clear()  # they keep connections open, which tell the others of a loss

    def gather(self, note: torch.Tensor) -> list[torch.Tensor]:
        """Return the notes of all members, by position. Raises Lost."""
        notes = [torch.empty_like(note) for _ in range(len(self.others) + 1)]
        notes[self.position] = note
        self.swap([(note, i) for i in self.others], [(notes[i], i) for i in self.others])
        return notes

    def close(self) -> None:
        self._group.abort()


class Exchange:
    """Buffers for the sums of one view, in which the first `active` members compute."""

    def __init__(
        self, transport: Transport, active: int, workers: int, length: int, dtype: torch.dtype
    ) -> None:
        self._transport, self._workers = transport, workers
        members = len(transport.others) + 1
        active = min(active, members)
        shares = [leaf_range(i, active, workers) for i in range(active)]
        shares += [range(0)] * (members - active)
        self.share = shares[transport.position]
        """Workers of this group; none for a spare."""
        self._bounds = shard_bounds(length, active) + [(0, 0)] * (members - active)
        self._nodes = [nodes_of(share) for share in shares]
        begin, end = self._bounds[transport.position]
        self._rows = {
            node: torch.empty(length, dtype=dtype) for node in self._nodes[transport.position]
        }
        self._received = [
            [torch.empty(end - begin, dtype=dtype) for _ in nodes] for nodes in self._nodes
        ]

    def put(self, sums: SubtreeSums) -> None:
        for node, tensors in sums:
            row, first = self._rows[node], 0
            for tensor in tensors:
                row[first : first + tensor.numel()].copy_(tensor.reshape(-1))
                first += tensor.numel()

    def reduce(self, out: torch.Tensor, note: torch.Tensor) -> list[torch.Tensor]:
        """Write the sum over all workers to `out`; return the notes of all members. Raises Lost."""
        link, bounds = self._transport, self._bounds
        begin, end = bounds[link.position]
        notes = [torch.empty_like(note) for _ in bounds]
        notes[link.position] = note
        link.swap(
            [
                *((note, i) for i in link.others),
                *((row[slice(*bounds[i])], i) for i in link.others for row in self._rows.values()),
            ],
            [
                *((notes[i], i) for i in link.others),
                *((part, i) for i in link.others for part in self._received[i]),
            ],
        )
        parts = {node: row[begin:end] for node, row in self._rows.items()}
        for i in link.others:
            parts |= zip(self._nodes[i], self._received[i], strict=True)
        if end > begin:
            tree_sum(parts, (0, self._workers), out[begin:end])
        link.swap(
            [(out[begin:end], i) for i in link.others],
            [(out[slice(*bounds[i])], i) for i in link.others],
        )
        return notes


def reason_of(error: BaseException) -> str:
    """Return gloo's reason, without its source file and its advice."""
    text = str(error).strip() or type(error).__name__
    return (
        text.splitlines()[0].rpartition(".cc:")[2].partition("] ")[2].partition(". This")[0] or text
    )


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
