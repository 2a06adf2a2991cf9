"""Advice on spot or on-demand capacity for a run, by expected duration and cost."""

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
from training import advice, placement, run_files, trainer_settings
from training.advice import Advice, Market, Outlook, Work, advise
from training.launchers import LAUNCHERS
from training.spec import RunSpec

ROOT: Final = Path(__file__).resolve().parents[1]

CHECKPOINT_EVERY_S: Final = 1800.0
"""Assumed for programs, which save when they choose."""


def print_advice(chosen: argparse.Namespace, console: Console) -> int:
    """Print the advice; return 0, or 1 after one line per configuration issue on stderr.

    `chosen`: the options of advise_command. Of several versions of a run the highest is used.
    """
    try:
        config = parse(stack_values(chosen.stack))
        platform = platform_record.platform(config, chosen.stack.stem.removeprefix("Pulumi."))
        images = run_files.images(config.images, ROOT)
        run = max(
            run_files.load([chosen.run_name], platform, images, ROOT), key=lambda r: r.version
        )
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 1
    work = _work(run, chosen)
    interruptions, origin = chosen.interruptions, "as given"
    if interruptions is None:
        interruptions, origin = advice.interruptions(_fitting(run, platform, Capacity.SPOT))
    market = Market(
        interruptions_per_node_hour=interruptions,
        noticed=chosen.noticed,
        restart_s=chosen.restart,
    )
    found = advise(
        work,
        market,
        _usd_hour(run, platform, Capacity.SPOT),
        _usd_hour(run, platform, Capacity.ON_DEMAND),
    )
    _print(run, work, market, origin, found)
    if found.spot.usd is not None and not math.isinf(found.best_checkpoint_every_s):
        Console(highlight=False).print(
            f"On spot with a checkpoint every {found.best_checkpoint_every_s:.0f} s, which loses least."
        )
    _print_fallbacks(_fitting(run, platform, Capacity.SPOT))
    if hint := _groups_hint(run, platform, work, found):
        Console(highlight=False).print(hint)
    return 0


def _work(run: RunSpec, chosen: argparse.Namespace) -> Work:
    every = chosen.checkpoint_every
    if not every and not run.program:
        every = advice.longest_interval_s(trainer_settings.config_of(run), chosen.hours)
    return Work(
        hours=chosen.hours,
        nodes=run.nodes * (run.groups.max if run.groups else 1),
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


def _usd_hour(run: RunSpec, platform: Platform, capacity: Capacity) -> float | None:
    """Highest price in USD/h among the pools of this capacity that fit the run; None: no pool, or unknown.

    A spot pool that falls back counts at the on-demand price, which its nodes may cost, as in costCapUsd.
    """
    fitting = _fitting(run, platform, capacity)
    return placement.usd_per_hour(run, fitting) if fitting else None


def _fitting(run: RunSpec, platform: Platform, capacity: Capacity) -> tuple[NodePool, ...]:
    pools = tuple(p for p in platform.gpu_pools(run.team) if p.capacity is capacity)
    return tuple(p for p in pools if placement.fits(run, p))


def _print(run: RunSpec, work: Work, market: Market, origin: str, found: Advice) -> None:
    """Print the outlooks. `origin`: of the rate of interruptions."""
    console = Console(highlight=False)
    console.print(
        f"{run.run_id}: {work.nodes} nodes, {work.hours:g} h of training, a checkpoint of up to "
        f"{work.save_s:g} s every {work.checkpoint_every_s:g} s; on spot "
        f"{market.interruptions_per_node_hour:g} interruptions per node and hour ({origin}), "
        f"{market.noticed:.0%} with notice, {market.restart_s:g} s to restart"
    )
    table = Table("capacity", "expected", "19 of 20 within", "USD expected")
    for name, outlook in (("spot", found.spot), ("on-demand", found.on_demand)):
        table.add_row(name, *_cells(outlook))
    console.print(table)
    console.print(f"Advice: [bold]{found.capacity}[/bold]: {found.reason}.")
    if found.capacity not in run.capacity_types:
        console.print("The run file has the other capacity; set allowSpot to follow the advice.")


def _groups_hint(run: RunSpec, platform: Platform, work: Work, found: Advice) -> str:
    """Return what replica groups change about spot; empty where a run cannot have any, or loses nothing."""
    if run.groups:
        return (
            f"Its {run.groups.max} groups are counted as one gang, which restarts at every loss. On spot it loses "
            "less than that: a lost group stalls the others for seconds."
        )
    able = LAUNCHERS[run.job_kind].support.groups and not run.program and platform.releases_groups
    lost = found.spot.hours - work.hours
    if not able or run.nodes == 1 or lost <= 0:
        return ""
    share = "all of its time" if math.isinf(lost) else f"{lost:.1f} h"
    return (
        f"On spot {share} goes to saves, restarts and repeated steps. If the model fits on fewer nodes, "
        f"groups keep the others training meanwhile: nodes: 1 and groups: {{max: {run.nodes}}}; docs/elastic.md."
    )


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
