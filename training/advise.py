"""`python -m training.advise RUN --stack Pulumi.dev.yaml --hours H`: spot or on-demand for a run, and why.

RUN is a stem of training/runs or a path that ends in .yaml; of several versions the highest counts. Exit 0 with
the advice, or exit 1 and one line per mistake on stderr.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from infra.config import ConfigError, parse, platform_record, stack_values
from infra.domain.platform import Platform
from infra.domain.pools import Capacity
from training.deployment import placement, run_files
from training.deployment.advice import Advice, Market, Outlook, Work, advise
from training.spec import RunSpec

ROOT: Final = Path(__file__).resolve().parents[1]

INTERRUPTIONS_PER_NODE_HOUR: Final = 0.2
"""Between the extremes of recorded traces of 2022 and 2023 (SkyPilot's spot-traces: 0.06 to 1.4)."""
NOTICED: Final = 0.9
"""AWS tells of most reclaims two minutes ahead, of failed hardware never."""
CHECKPOINT_EVERY_S: Final = 1800.0
"""Assumed of a run that counts steps."""
RESTART_S: Final = 600.0
"""A new node, its image, the group's start, the checkpoint's load."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
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
    return 0


def _work(run: RunSpec, chosen: argparse.Namespace) -> Work:
    every = chosen.checkpoint_every or run.config.get("checkpoint", {}).get("every_seconds")
    return Work(
        hours=chosen.hours,
        nodes=run.nodes,
        save_s=run.save_seconds,
        checkpoint_every_s=every or CHECKPOINT_EVERY_S,
        deadline_h=chosen.deadline,
    )


def _usd_hour(run: RunSpec, platform: Platform, capacity: Capacity) -> float | None:
    """Of the whole run on the dearest pool of this capacity that would suit it; None: none, or not known."""
    pools = tuple(p for p in platform.gpu_pools(run.team) if p.capacity is capacity)
    fitting = tuple(p for p in pools if placement.fits(run, p))
    return placement.usd_per_hour(run, fitting) if fitting else None


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
        console.print(f"A checkpoint every {best:.0f} s would lose least.")
    if found.capacity not in run.capacity_types:
        console.print("The run file says otherwise; change allowSpot to follow.")


def _cells(outlook: Outlook) -> tuple[str, str, str]:
    def hours(value: float) -> str:
        return "never" if math.isinf(value) else f"{value:.1f} h"

    usd = "not known" if outlook.usd is None else f"{outlook.usd:,.0f}"
    return hours(outlook.hours), hours(outlook.late_hours), usd


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"got {text}; allowed a number above 0")
    return value


def _share(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"got {text}; allowed 0 to 1")
    return value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m training.advise", description=__doc__)
    add = parser.add_argument
    add("run", metavar="RUN", help="a stem of training/runs, or a path that ends in .yaml")
    add("--stack", type=Path, required=True, metavar="FILE", help="such as Pulumi.dev.yaml")
    add("--hours", type=_positive, required=True, help="training time without interruptions")
    add("--deadline", type=_positive, metavar="HOURS", help="from now; default: none")
    add(
        "--checkpoint-every",
        type=_positive,
        metavar="SECONDS",
        help=f"default: the run's checkpoint.everySeconds, or {CHECKPOINT_EVERY_S:g}",
    )
    add(
        "--interruptions",
        type=_positive,
        default=INTERRUPTIONS_PER_NODE_HOUR,
        help="per node and hour; default: %(default)s",
    )
    add("--noticed", type=_share, default=NOTICED, help="share; default: %(default)s")
    add(
        "--restart",
        type=_positive,
        default=RESTART_S,
        metavar="SECONDS",
        help="from an interruption to the next step; default: %(default)s",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
