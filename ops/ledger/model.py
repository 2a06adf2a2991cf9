"""What the ledger is told (facts) and what it answers (entries). Times are Unix seconds.

A fact has an identity. A later fact with the same identity replaces an earlier one, so facts may be recorded any
number of times and in any order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Final


class Bucket(StrEnum):
    """What a node's time was spent on. Each node-second is in exactly one."""

    PRODUCTIVE = "productive"
    """Between the first and the last step, but for the two below."""
    REPLAYED = "replayed"
    """Steps that were done again, because no checkpoint had them."""
    SAVE = "save"
    """Training stopped for a save; and from the notice or the last step until the node is free."""
    STARTING = "starting"
    """From the assignment of the node to the first step; also while a node that a run holds is broken."""
    WAITING = "waiting"
    """Nothing runs on the node, and a run that may use it waits to be admitted."""
    IDLE = "idle"
    """Nothing runs on the node, and nothing waits for it, or it is broken."""


class Cause(StrEnum):
    """Why an attempt ended."""

    DONE = "done"
    RECLAIM = "reclaim"
    PREEMPTION = "preemption"
    NODE = "node"
    """The node or a GPU failed."""
    HANG = "hang"
    FAILURE = "failure"
    """Its program failed."""
    STOP = "stop"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class Node:
    """The life of one node."""

    KIND: ClassVar[str] = "node"
    uid: str
    pool: str
    start: float
    end: float | None = None
    """None: it is there."""
    purchase: str = ""
    """spot, on-demand or reserved; empty: not known."""
    usd_per_hour: float | None = None
    """None: not known."""
    price_date: str = ""
    """As `prices.node_price_date` has it."""
    gpus: float = 0.0
    """GPUs, or shares of them, that runs can hold."""

    @property
    def identity(self) -> tuple[str, ...]:
        return (self.KIND, self.uid)


@dataclass(frozen=True, kw_only=True)
class Hold:
    """A run holds a node, or a share of its GPUs."""

    KIND: ClassVar[str] = "hold"
    uid: str
    """Of the pod."""
    node: str
    """`uid` of the node."""
    run: str
    team: str
    start: float
    end: float | None = None
    share: float = 1.0
    """Of the node's GPUs."""
    group: int | None = None
    """Replica group of the run that holds it; None: the run has none."""
    member: float | None = None
    """Since when that group takes part in the run, whose phases are of all groups; None: it does not yet."""

    @property
    def identity(self) -> tuple[str, ...]:
        return (self.KIND, self.uid)


@dataclass(frozen=True, kw_only=True)
class Phase:
    """A time in which an attempt of a run made steps, and what that time consisted of."""

    KIND: ClassVar[str] = "phase"
    run: str
    attempt: int
    start: float
    """When the first step began."""
    end: float
    """When the last step ended."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Of SAVE and REPLAYED; the rest of the time is PRODUCTIVE. More than the time is scaled down."""
    steps: int = 0
    """Steps that count."""
    tokens: float = 0.0
    """Tokens of these steps, over all ranks."""
    ended: str = ""
    """A Cause; empty: it goes on, or the cause is not known."""
    first_step: int = 0
    """Number of its first step; 0: `seconds` has its replays already. See `with_replays`."""

    @property
    def identity(self) -> tuple[str, ...]:
        return (self.KIND, self.run, str(self.attempt))


@dataclass(frozen=True, kw_only=True)
class Wait:
    """A run waits to be admitted."""

    KIND: ClassVar[str] = "wait"
    run: str
    team: str
    start: float
    end: float | None = None
    pools: tuple[str, ...] = ()
    """Pools that it may use; empty: any."""
    nodes: float = 1.0
    """Nodes that it waits for."""
    group: int | None = None
    """Replica group of the run that waits; None: the run has none."""

    @property
    def identity(self) -> tuple[str, ...]:
        group = () if self.group is None else (str(self.group),)
        return (self.KIND, self.run, repr(self.start), *group)


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A node that is there and cannot be used."""

    KIND: ClassVar[str] = "fault"
    node: str
    """`uid` of the node."""
    start: float
    end: float | None = None
    cause: str = ""
    """Such as NotReady."""

    @property
    def identity(self) -> tuple[str, ...]:
        return (self.KIND, self.node, repr(self.start))


Fact = Node | Hold | Phase | Wait | Fault
KINDS: Final[Mapping[str, type[Fact]]] = {
    kind.KIND: kind for kind in (Node, Hold, Phase, Wait, Fault)
}


@dataclass(frozen=True, kw_only=True)
class Account:
    """What an amount is booked on."""

    bucket: Bucket
    pool: str
    purchase: str
    team: str = ""
    """Empty for idle nodes and faults without a run."""
    run: str = ""
    attempt: int = 0
    """Counted from 1; 0: before or between attempts, or unknown."""
    cause: str = ""
    """Why the attempt before a start, or that of a replay or an end, ended. Of broken nodes: what was found."""


@dataclass(kw_only=True)
class Amount:
    """Node-seconds and their price."""

    seconds: float = 0.0
    usd: float = 0.0
    unpriced: float = 0.0
    """Node-seconds without a known price, which `usd` lacks."""
    gpu_seconds: float = 0.0

    def add(self, seconds: float, usd_per_hour: float | None, gpus: float = 0.0) -> None:
        self.seconds += seconds
        self.gpu_seconds += seconds * gpus
        if usd_per_hour is None:
            self.unpriced += seconds
        else:
            self.usd += seconds * usd_per_hour / 3600.0

    def merge(self, other: Amount) -> None:
        self.seconds += other.seconds
        self.usd += other.usd
        self.unpriced += other.unpriced
        self.gpu_seconds += other.gpu_seconds


Book = dict[Account, Amount]
