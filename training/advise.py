"""Advise spot or on-demand capacity for a run by expected duration and cost.

Example: python -m training.advise hello --stack Pulumi.dev.yaml --hours 40

The deadline is the run file's, unless --deadline gives another.

Exit code 0 with the advice, or 1 and one line per configuration issue on stderr. Of several versions of a run the
highest is used.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from infra.config import ConfigError, parse, platform_record, stack_values
from infra.domain.platform import Platform
from infra.domain.pools import Capacity, Fallback, NodePool
from training.deployment import placement, run_files
from training.deployment.advice import Advice, Market, Outlook, Work, advise
from training.spec import RunSpec
from training.spot.decide import Decision, Gang, Now, Prices, decide
from training.spot.rates import INTERRUPTIONS_PER_NODE_HOUR, outages

ROOT: Final = Path(__file__).resolve().parents[1]

NOTICED: Final = 0.9
"""AWS announces most reclaims two minutes ahead, hardware failures never."""
CHECKPOINT_EVERY_S: Final = 1800.0
"""Assumed for runs with an interval in steps."""
RESTART_S: Final = 600.0
"""New node, image pull, rendezvous, checkpoint load."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    chosen = _parser().parse_args(arguments)
    try:
        config = parse(stack_values(chosen.stack))
        platform = platform_record.platform(config, chosen.stack.stem.removeprefix("Pulumi."))
        images = run_files.images(config.images, ROOT)
        run = max(run_files.load([chosen.run], platform, images, ROOT), key=lambda r: r.version)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 1
    work = _work(run, chosen)
    market = Market(
        interruptions_per_node_hour=chosen.interruptions,
        noticed=chosen.noticed,
        restart_s=chosen.restart,
    )
    found = advise(
        work,
        market,
        _usd_hour(run, platform, Capacity.SPOT),
        _usd_hour(run, platform, Capacity.ON_DEMAND),
    )
    _print(run, work, market, found)
    _print_moves(_moves(run, platform, work, market))
    _print_fallbacks(_fitting(run, platform, Capacity.SPOT))
    return 0


def _work(run: RunSpec, chosen: argparse.Namespace) -> Work:
    every = chosen.checkpoint_every or run.config.get("checkpoint", {}).get("every_seconds")
    return Work(
        hours=chosen.hours,
        nodes=run.nodes,
        save_s=run.save_seconds,
        checkpoint_every_s=every or CHECKPOINT_EVERY_S,
        deadline_h=_deadline_h(run) if chosen.deadline is None else chosen.deadline,
    )


def _deadline_h(run: RunSpec) -> float | None:
    """Hours from now to the run file's deadline, 0 if it has passed; None: it has none."""
    if not run.deadline:
        return None
    left = datetime.fromisoformat(run.deadline) - datetime.now(UTC)
    return max(0.0, left.total_seconds() / 3600)


def _moves(
    run: RunSpec, platform: Platform, work: Work, market: Market
) -> tuple[Gang, Decision, Decision]:
    """Return the run as training.spot counts it, and what it decides at the start with spot and without."""
    replay_s = (1 - market.noticed) * work.checkpoint_every_s / 2
    gang = Gang(
        work_s=work.hours * 3600 * (1 + work.save_s / work.checkpoint_every_s),
        restart_s=market.restart_s + replay_s,
        deadline_s=None if work.deadline_h is None else work.deadline_h * 3600,
    )
    spot_usd = _usd_hour(run, platform, Capacity.SPOT)
    on_demand = tuple(p for p in _fitting(run, platform, Capacity.ON_DEMAND) if not p.reservation)
    reserved = any(p.reservation for p in _fitting(run, platform, Capacity.ON_DEMAND))
    prices = Prices(
        on_demand=placement.usd_per_hour(run, on_demand) if on_demand else None,
        spot={} if spot_usd is None else {"spot": spot_usd},
    )
    rates = outages(work.nodes * market.interruptions_per_node_hour)
    first, second = (
        decide(
            gang,
            Now(
                elapsed_s=0,
                work_left_s=gang.work_s,
                available=frozenset(prices.spot) if there else frozenset(),
                reserved=reserved and work.deadline_h is not None,
            ),
            prices,
            {"spot": rates},
            rates,
        )
        for there in (True, False)
    )
    return gang, first, second


def _print_moves(found: tuple[Gang, Decision, Decision]) -> None:
    """Explain the decision that may change at every loss and return of capacity."""
    gang, there, missing = found
    limit = f"a deadline of {gang.limit_s / 3600:.1f} h"
    if gang.deadline_s is None:
        limit = f"no deadline, so counted with {gang.limit_s / 3600:.1f} h"
    console = Console(highlight=False)
    console.print(f"A run that moves between them, with {limit}, now takes")
    console.print(f"  while spot is available: [bold]{there.place}[/bold]: {there.reason}")
    console.print(f"  while it is not: [bold]{missing.place}[/bold]: {missing.reason}")


def _usd_hour(run: RunSpec, platform: Platform, capacity: Capacity) -> float | None:
    """Highest price in USD/h among the pools of this capacity that fit the run; None: no pool, or unknown.

    A spot pool that falls back counts at the on-demand price, which its nodes may cost, as in costCapUsd.
    """
    fitting = _fitting(run, platform, capacity)
    return placement.usd_per_hour(run, fitting) if fitting else None


def _fitting(run: RunSpec, platform: Platform, capacity: Capacity) -> tuple[NodePool, ...]:
    pools = tuple(p for p in platform.gpu_pools(run.team) if p.capacity is capacity)
    return tuple(p for p in pools if placement.fits(run, p))


def _print(run: RunSpec, work: Work, market: Market, found: Advice) -> None:
    console = Console(highlight=False)
    console.print(
        f"{run.run_id}: {work.nodes} nodes, {work.hours:g} h of training, a checkpoint of up to "
        f"{work.save_s:g} s every {work.checkpoint_every_s:g} s; on spot "
        f"{market.interruptions_per_node_hour:g} interruptions per node and hour, "
        f"{market.noticed:.0%} with notice, {market.restart_s:g} s to restart"
    )
    table = Table("capacity", "expected", "19 of 20 within", "USD expected")
    for name, outlook in (("spot", found.spot), ("on-demand", found.on_demand)):
        table.add_row(name, *_cells(outlook))
    console.print(table)
    console.print(f"Advice: [bold]{found.capacity}[/bold]: {found.reason}.")
    best = found.best_checkpoint_every_s
    if found.capacity == "spot" and not math.isinf(best):
        console.print(f"A checkpoint every {best:.0f} s minimizes lost work.")
    if found.capacity not in run.capacity_types:
        console.print("The run file has the other capacity; set allowSpot to follow the advice.")


def _print_fallbacks(pools: Sequence[NodePool]) -> None:
    """Say which spot pools may buy on-demand nodes."""
    names = [pool.name for pool in pools if pool.fallback is Fallback.ON_DEMAND]
    if names:
        Console(highlight=False).print(
            f"Spot is counted at the on-demand price: pools with fallback: on-demand are {', '.join(names)}."
        )


def _cells(outlook: Outlook) -> tuple[str, str, str]:
    def hours(value: float) -> str:
        return "never" if math.isinf(value) else f"{value:.1f} h"

    usd = "not known" if outlook.usd is None else f"{outlook.usd:,.0f}"
    return hours(outlook.hours), hours(outlook.late_hours), usd


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not above 0; must be a number above 0")
    return value


def _share(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not a share; must be 0 to 1")
    return value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m training.advise",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("run", metavar="RUN", help="stem of a file in training/runs, or path of a .yaml file")
    add(
        "--stack",
        type=Path,
        required=True,
        metavar="FILE",
        help="stack file, such as Pulumi.dev.yaml",
    )
    add(
        "--hours",
        type=_positive,
        required=True,
        help="training time without interruptions, in hours",
    )
    add(
        "--deadline",
        type=_positive,
        metavar="HOURS",
        help="latest end, in hours from now (default: the run file's deadline)",
    )
    add(
        "--checkpoint-every",
        type=_positive,
        metavar="SECONDS",
        help=f"checkpoint interval (default: the run's every_seconds, else {CHECKPOINT_EVERY_S:g})",
    )
    add(
        "--interruptions",
        type=_positive,
        default=INTERRUPTIONS_PER_NODE_HOUR,
        metavar="RATE",
        help="spot interruptions per node and hour (default: %(default)s)",
    )
    add(
        "--noticed",
        type=_share,
        default=NOTICED,
        metavar="SHARE",
        help="share of interruptions with a notice, 0 to 1 (default: %(default)s)",
    )
    add(
        "--restart",
        type=_positive,
        default=RESTART_S,
        metavar="SECONDS",
        help="time from an interruption to the next step (default: %(default)s)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
