"""Commands for runs, sweeps and the stack they run on, with a kubeconfig: `trainyard` or `python -m ops`."""

from __future__ import annotations

import argparse
import sys
from typing import Final

from rich.console import Console

from infra.domain.published_record import VERSION
from ops import advise_command, completion, drain, release
from ops.budgets import command as budgets
from ops.cluster import Cluster, ClusterError, ForbiddenError
from ops.collect import NoSuchRunError
from ops.commands import PROGRAM, Group, epilog
from ops.data import command as data
from ops.data import fetch
from ops.dev import command as dev
from ops.ledger import command as costs
from ops.ready import command as ready
from ops.review import command as review
from ops.runs import (
    compare_command,
    list_command,
    logs_command,
    show_command,
    wait_command,
    why_command,
)
from ops.steer import command as steer
from ops.submission import command as submission
from ops.submission import extend_command, init_command
from ops.sweep import command as sweep
from ops.ui import command as ui

_PERMISSION_HINT: Final = (
    "commands of `run` require a role in the team, those of `stack` the role of a platform engineer;"
    " `kubectl auth whoami` shows your user"
)

_EXAMPLES: Final = (
    "init --script                    # write a run file and a script here",
    "run why hello                    # why the newest run named hello waits or failed",
    "sweep show lr                    # result of the newest sweep named lr",
    "stack ready --until collective   # check capacity, GPUs and collectives",
    "stack drain --team research      # save and stop the runs of one team",
)

_OPTIONAL: Final = {
    "pulumi": "it reads a stack file; run it in the stack's repository, after make env",
    "matplotlib": "pip install matplotlib",
}
"""Packages that few commands need and the installed command does without, and what to do."""


def main(argv: list[str] | None = None) -> int:
    """Run one command. Return 0: success; 1: run not found, check failed or not drained; 2: no answer."""
    args = parser().parse_args(argv)
    console = Console()
    try:
        if args.offline:
            return int(args.offline(args, console))
        return int(args.run(args, Cluster(args.kubeconfig, args.context), console))
    except NoSuchRunError as error:
        print(error, file=sys.stderr)
        return 1
    except ForbiddenError as error:
        hint = "" if _by_a_rule(str(error)) else f"; {_PERMISSION_HINT}"
        print(f"error: {error}{hint}", file=sys.stderr)
        return 2
    except ClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        if (remedy := _OPTIONAL.get(str(error.name).partition(".")[0])) is None:
            raise
        print(
            f"error: {error.name} is not installed, which this command needs: {remedy}",
            file=sys.stderr,
        )
        return 2
    except KeyboardInterrupt:
        print("interrupted; run the same command to continue", file=sys.stderr)
        return 130


def _by_a_rule(text: str) -> bool:
    """Whether a policy or a quota refused the request, so that another role would not help."""
    return "denied request" in text or "exceeded quota" in text


def parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command tree."""
    top = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Commands for runs, sweeps and the stack they run on. They use your kubeconfig"
        " and need no more than its permissions.",
        epilog=epilog(_EXAMPLES),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"{PROGRAM} {VERSION}")
    tree = Group(top)
    init_command.add(tree)
    run = tree.group("run", "look at runs and explain them")
    for one in (list_command, show_command, logs_command, wait_command, compare_command):
        one.add(run)
    why_command.add(run)
    costs.add_to_run(run)
    submission.add(run)
    extend_command.add(run)
    advise_command.add_command(run)
    sweep.add(tree.group("sweep", "submit a family of runs, and show its result", sweep.EXAMPLES))
    fetch.add(run)
    data.add(tree.group("data", "copy files to and from the team's volume", data.EXAMPLES))
    dev.add(tree.group("dev", "work interactively in a pod of your own", dev.EXAMPLES))
    ui.add(tree)
    stack = tree.group("stack", "check the stack; drain and resume its queues")
    ready.add(stack)
    drain.add(stack)
    release.add(stack)
    costs.add_to_stack(stack)
    review.add(stack)
    cost = tree.group("cost", "record what nodes and runs do, report a month, enforce budgets")
    costs.add_group(cost)
    budgets.add(cost)
    steer.add(tree.group("spot", "move runs between spot, reserved and on-demand pools"))
    completion.add(tree, parser)
    return top


if __name__ == "__main__":
    sys.exit(main())
