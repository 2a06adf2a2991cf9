"""`trainyard run advise`."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Final

from rich.console import Console

from ops.commands import Group
from training.spot.rates import INTERRUPTIONS_PER_NODE_HOUR, NOTICED

RESTART_S: Final = 600.0
"""New node, image pull, rendezvous, checkpoint load."""


def add_command(commands: Group) -> None:
    parser = commands.add_offline(
        "advise",
        _advise,
        "advise spot or on-demand capacity for a run, by expected duration and cost",
        ["run advise hello --stack Pulumi.dev.yaml --hours 40"],
    )
    add = parser.add_argument
    add("run_name", metavar="RUN", help="stem of a file in training/runs, or path of a .yaml file")
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
        help="checkpoint interval (default: the run's, its steps spread over --hours; 1800 for a program)",
    )
    add(
        "--interruptions",
        type=_positive,
        metavar="RATE",
        help=f"spot interruptions per node and hour (default: {INTERRUPTIONS_PER_NODE_HOUR:g}, or less "
        "by the Spot Instance Advisor's band)",
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


def _advise(chosen: argparse.Namespace, console: Console) -> int:
    from ops import advise  # reads stack files, which takes a second to import

    return advise.print_advice(chosen, console)


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
