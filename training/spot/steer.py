"""Which pools a queued gang may have now, from what it has been through; pure functions.

`training.spot.decide` decides between spot, on-demand and waiting. Here are what it does not know: which pools are
held off after losses and time-outs, when a capacity block ends, and which of a queue's pools follow from a place.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from training.spot.decide import Decision, Gang, Now, Place, Prices, best_interval_s, decide
from training.spot.rates import INTERRUPTIONS_PER_NODE_HOUR, NOTICED, Exposure, Outages

SPOT_SHARE: Final = 0.35
"""Price of a spot node as a share of an on-demand one, where a price is not known."""
RESTART_S: Final = 600.0
"""Restart of a gang that was not measured yet: new node, image pull, rendezvous, checkpoint load."""
_LATE_LOOKS: Final = 2
_ROUNDED_S: Final = 60.0
_FINER: Final = 0.25
DOUBLINGS: Final = 5
"""Hold-offs after time-outs in a row double this often: from one hour to 32."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """When a pool is held off for a gang."""

    losses: int = 2
    """Losses in `window_s` after which the gang leaves the pool."""
    window_s: float = 6 * 3600.0
    empty_s: float = 3600.0
    """For how long a pool is not tried again after a time-out; doubles with each time-out in a row."""
    start_s: float = 1200.0
    """For how long the queue waits for the nodes of a gang: the stack's `gangTimeouts.startSeconds`."""
    full_s: float = 300.0
    """For how long a run with a deadline waits for reserved capacity before it takes other."""


@dataclass(frozen=True, kw_only=True)
class Pool:
    """One pool of the gang's queue that its pods can run on."""

    name: str
    place: Place
    usd_per_node_hour: float | None = None
    prior: float = INTERRUPTIONS_PER_NODE_HOUR
    """Losses per node and hour that are assumed before any were seen."""
    seen: Exposure = field(default_factory=Exposure)
    opens: float = 0.0
    """Unix seconds at which a capacity block starts."""
    closes: float = float("inf")
    """Unix seconds by which runs must have left it."""

    @property
    def timed(self) -> bool:
        """Whether it is there for a time only."""
        return self.closes < math.inf

    def rates(self, nodes: int) -> Outages:
        """Return the rates of a gang of so many nodes, as known now."""
        return self.seen.rates(nodes, self.prior)


@dataclass(frozen=True, kw_only=True)
class Empty:
    """Time-outs in a row of one pool."""

    at: float
    times: int = 1


@dataclass(frozen=True, kw_only=True)
class History:
    """What a gang has been through. Times in Unix seconds."""

    losses: tuple[tuple[float, str], ...] = ()
    """Time and pool of each loss of nodes."""
    empty: Mapping[str, Empty] = field(default_factory=dict)
    """By pool, time-outs since it last ran there."""
    restart_s: float | None = None
    """Measured from the loss of nodes, or the eviction, until all pods were ready again; None: not yet."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """A gang at one moment. Times in Unix seconds, durations in seconds."""

    nodes: int
    begun: float
    deadline: float | None = None
    work_s: float | None = None
    """Of the whole run, undisturbed; None: not known."""
    left_s: float | None = None
    longest_s: float | None = None
    """Time that is left to it at most, for the end of a capacity block; None: not known, it is drained there."""
    save_s: float = 0.0
    """Longest that a save may take."""
    measured_save_s: float | None = None
    """Of its last save; None: not known."""
    waited_s: float = 0.0
    """Since it was queued, or queued again."""
    pool: str = ""
    """Pool that it holds; empty: it waits."""
    may_buy: bool = True
    """Whether its team's budget allows on-demand nodes to a run without a deadline."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Pools that the gang may have, in the queue's order, and why."""

    place: Place
    pools: tuple[str, ...]
    reason: str
    checkpoint_every_s: float = math.inf
    """Interval at which checkpoints and what they do not save cost least on spot; infinite elsewhere."""


def held_off(
    pool: Pool, run: Run, history: History, now: float, rules: Rules, step_s: float = 0.0
) -> str:
    """Return why the gang may not have a pool now; empty if it may. `step_s`: until the next look."""
    if now < pool.opens:
        return "its capacity block has not begun"
    stays = run.pool == pool.name
    # A look may fail, so a run leaves two looks early.
    leaving = run.save_s + _LATE_LOOKS * step_s
    if now + leaving + (0.0 if stays else _restart(run, history)) >= pool.closes:
        return "its capacity block ends"
    if not stays and now + _restart(run, history) + (run.longest_s or 0.0) > pool.closes:
        return "the run would not end before its capacity block does"
    if _often_lost(pool, history, now, rules):
        return "its nodes were lost too often"
    return "it had no nodes in time" if _is_empty(pool, history, now, rules) else ""


def _is_empty(pool: Pool, history: History, now: float, rules: Rules) -> bool:
    return _tried_again(pool, history, rules) > now


def _tried_again(pool: Pool, history: History, rules: Rules) -> float:
    """Return when a pool is tried again, in Unix seconds; 0 without a time-out."""
    missing = history.empty.get(pool.name)
    return missing.at + _pause(missing, rules) if missing else 0.0


def _often_lost(pool: Pool, history: History, now: float, rules: Rules) -> bool:
    recent = [at for at, name in history.losses if name == pool.name and at > now - rules.window_s]
    return pool.place is Place.SPOT and len(recent) >= rules.losses


def choose(
    run: Run, pools: Sequence[Pool], history: History, now: float, rules: Rules, step_s: float = 0.0
) -> Choice:
    """Return which of its pools a gang may have. `pools`: in the queue's order; `step_s`: until the next look."""
    off = {p.name: why for p in pools if (why := held_off(p, run, history, now, rules, step_s))}
    free = [p for p in pools if p.name not in off]
    reserved = [p for p in free if p.place is Place.RESERVED]
    if reserved and _holds(run, reserved):
        return _choice(Place.RESERVED, reserved, pools, "reserved capacity is held")
    if reserved and run.deadline is not None and run.waited_s < rules.full_s:
        why = "a run with a deadline takes reserved capacity first, which is paid for"
        return _choice(Place.RESERVED, reserved, pools, why)
    bought = [p for p in free if p.place is Place.ON_DEMAND]
    if not run.may_buy and run.deadline is None:
        bought = [p for p in bought if p.name == run.pool]
    spot = [p for p in free if p.place is Place.SPOT]
    lost = [p for p in pools if p.name in off and _often_lost(p, history, now, rules)]
    left = "; ".join(f"{name}: {why}" for name, why in off.items())
    if not spot and not bought and not reserved:
        if lost:
            # There is nothing better: losses are no reason to stand still.
            return _choice(Place.SPOT, lost, pools, f"the run has no other pool ({left})")
        return Choice(place=Place.WAIT, pools=(), reason=f"no pool can be had ({left})")
    # Losses are no reason to wait.
    away = [p for p in pools if p.place is Place.SPOT and _is_empty(p, history, now, rules)]
    empty = [] if lost else away
    found = _decide(run, spot, empty, bought, history, now, rules, step_s)
    place, reason = found.place, found.reason
    if place is Place.WAIT and _holds(run, bought):
        # Whether spot is back is known only once a gang has tried it.
        place, reason = Place.ON_DEMAND, "on-demand nodes are held"
    if left:
        reason = f"{reason} ({left})"
    taken = {Place.SPOT: spot, Place.ON_DEMAND: bought}.get(place, [])
    choice = _choice(place, [*taken, *reserved], pools, reason)
    return (
        replace(choice, checkpoint_every_s=_interval(run, spot)) if place is Place.SPOT else choice
    )


def _interval(run: Run, spot: Sequence[Pool]) -> float:
    """Return Young's interval for the pool that the gang holds, else for the one that loses most."""
    held = [p for p in spot if p.name == run.pool] or spot
    lost = max((p.rates(run.nodes).lost for p in held), default=0.0) * 3600
    return best_interval_s(_save(run), (1 - NOTICED) * lost)


def _decide(
    run: Run,
    spot: Sequence[Pool],
    empty: Sequence[Pool],
    bought: Sequence[Pool],
    history: History,
    now: float,
    rules: Rules,
    step_s: float,
) -> Decision:
    """Ask `training.spot.decide`; a run of unknown length is urgent with a deadline, and flexible without.

    `empty`: spot pools without nodes, which are worth waiting for if the slack is long enough.
    """
    work = _work(run, history, now)
    if work is None:
        if spot and (run.deadline is None or not bought):
            return Decision(place=Place.SPOT, pool="", reason="the run has no deadline")
        if bought:
            why = "the run does not tell how much work is left before its deadline"
            if run.deadline is None:
                why = "no spot pool can be had"
            return Decision(place=Place.ON_DEMAND, pool="", reason=why)
        return Decision(place=Place.WAIT, pool="", reason="no spot pool can be had")
    known = spot or empty
    rates = {p.name: p.rates(run.nodes) for p in known}
    unseen = Exposure().rates(run.nodes)
    together = Outages(
        lost=min((one.lost for one in rates.values()), default=unseen.lost), back=unseen.back
    )
    whole, left_s = max(*work, 1.0), work[1]
    gang = Gang(work_s=whole, restart_s=_restart(run, history))
    limit = gang.limit_s if run.deadline is None else max(0.0, run.deadline - run.begun)
    # The plan has as many steps for the rest as for the whole run, and few different plans are made.
    while whole * _FINER >= max(left_s, 1.0):
        whole *= _FINER
    gang = replace(gang, work_s=whole, deadline_s=limit)
    place = Place.WAIT
    if _holds(run, bought):
        place = Place.ON_DEMAND
    elif _holds(run, spot):
        place = Place.SPOT
    return decide(
        gang,
        Now(
            elapsed_s=now - run.begun,
            work_left_s=left_s,
            place=place,
            pool=run.pool if place is Place.SPOT else "",
            available=frozenset(p.name for p in spot),
            step_s=step_s,
            unsure_s=rules.start_s,
            blind_s=min((_tried_again(p, history, rules) - now for p in empty), default=0.0),
        ),
        _prices(run.nodes, known, bought),
        rates,
        together,
    )


def _work(run: Run, history: History, now: float) -> tuple[float, float] | None:
    """Return the work of the whole run and what is left of it; None: not known.

    A run with a deadline that has not reported yet is taken to need all that it may take, `longest_s`, as long as
    on-demand nodes can do that in time after two more restarts.
    """
    if run.work_s is not None and run.left_s is not None:
        return run.work_s, run.left_s
    if run.deadline is None or run.longest_s is None:
        return None
    slack = run.deadline - now - run.longest_s
    return (run.longest_s, run.longest_s) if slack >= 2 * _restart(run, history) else None


def _prices(nodes: int, spot: Sequence[Pool], bought: Sequence[Pool]) -> Prices:
    """Return the gang's prices; relative ones where one is not known."""
    known = {p.name: p.usd_per_node_hour for p in (*spot, *bought)}
    usd = {name: nodes * price for name, price in known.items() if price is not None}
    if len(usd) < len(known):
        usd = dict.fromkeys(known, 1.0) | dict.fromkeys((p.name for p in spot), SPOT_SHARE)
    return Prices(
        on_demand=min((usd[p.name] for p in bought), default=None),
        spot={p.name: usd[p.name] for p in spot},
    )


def _restart(run: Run, history: History) -> float:
    measured = RESTART_S if history.restart_s is None else history.restart_s
    return _ROUNDED_S * math.ceil((measured + _save(run)) / _ROUNDED_S)


def _save(run: Run) -> float:
    return run.save_s if run.measured_save_s is None else run.measured_save_s


def _pause(missing: Empty, rules: Rules) -> float:
    return float(rules.empty_s * 2 ** min(missing.times - 1, DOUBLINGS))


def _holds(run: Run, pools: Sequence[Pool]) -> bool:
    return any(p.name == run.pool for p in pools)


def _choice(place: Place, chosen: Sequence[Pool], pools: Sequence[Pool], reason: str) -> Choice:
    names = {p.name for p in chosen}
    return Choice(place=place, pools=tuple(p.name for p in pools if p.name in names), reason=reason)
