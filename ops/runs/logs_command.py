"""`trainyard run logs`."""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Final

from rich.console import Console

from ops import collect, groups, objects
from ops.cluster import Cluster, ClusterError
from ops.commands import Group, printer
from ops.logs import Line, printable
from ops.objects import Json
from ops.runs import following, record, states
from ops.runs.gangs import attempt_of
from ops.runs.listing import summary_of
from ops.runs.log_reader import LogReader, main_container, pod_of_rank
from ops.runs.scope import named_run
from ops.runs.show_command import add_run
from ops.snapshot import Snapshot

POLL_S: Final = 1.0
TAIL: Final = 1000

Print = Callable[[str], None]


def add(commands: Group) -> None:
    command = commands.add(
        "logs",
        run,
        "print the log of a rank; follow it over restarts",
        [
            "run logs hello                   # rank 0 of the newest run of this name",
            "run logs hello -f --rank 12      # until the run ends",
            "run logs hello --attempt 2       # if its pods still exist",
            "run logs hello --group 1         # of a run with groups; default: the leading one",
        ],
    )
    add_run(command)
    command.add_argument(
        "-f", "--follow", action="store_true", help="print new lines until the run ends"
    )
    command.add_argument(
        "--rank",
        type=_whole,
        default=0,
        metavar="N",
        help="rank whose node's log is printed; default 0",
    )
    command.add_argument(
        "--attempt", type=_whole, metavar="A", help="attempt, from 1; default the last one"
    )
    command.add_argument(
        "--group",
        type=_whole,
        metavar="G",
        help="group of a run with groups, in which ranks are counted; default the one that leads",
    )
    command.add_argument(
        "--tail",
        type=_whole,
        default=TAIL,
        metavar="LINES",
        help=f"begin with at most so many lines; default {TAIL}",
    )


def _whole(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"got {text}; expected a whole number from 0")
    return int(text)


def run(args: argparse.Namespace, cluster: Cluster, console: Console) -> int:
    """Print a log. Return 0; 1 if the rank has none."""
    found = named_run(args, cluster)
    _check_group(found, args.group)
    node_rank = record.node_of_rank(cluster, found, args.rank, "--rank")
    now = collect.read_run(cluster, found)
    show, note = printer(console), printer(Console(stderr=True))
    pod = _pod(now, node_rank, args)
    if args.follow and args.attempt is None:
        return _follow(cluster, found, node_rank, args, show, note)
    if pod is None:
        raise ClusterError(_no_pod(now, args))
    _print(LogReader.of(cluster, pod, args.tail).read() or [], show)
    return 0


def _check_group(found: Json, group: int | None) -> None:
    if group is None:
        return
    if not groups.has_groups(found):
        raise ClusterError(f"--group: got {group}; the run has no groups; remove it")
    if group >= groups.total(found):
        last = groups.total(found) - 1
        raise ClusterError(f"--group: got {group}; the run has groups 0 to {last}")


def _pod(now: Snapshot, node_rank: int, args: argparse.Namespace) -> Json | None:
    pods = [p for p in now.pods if args.attempt is None or attempt_of(now, p) == args.attempt]
    return pod_of_rank(dataclasses.replace(now, pods=pods), node_rank, args.group)


def _no_pod(now: Snapshot, args: argparse.Namespace) -> str:
    kept = sorted({attempt_of(now, pod) for pod in now.pods})
    state = summary_of(now).state
    waits = ""
    if args.attempt is not None and kept:
        have = ", ".join(map(str, kept))
        problem = f"--attempt: got {args.attempt}; pods exist of attempt {have}"
    else:
        problem = f"run {now.run_id}: is {state} and has no pod of rank {args.rank}"
        waits = "; --follow waits for it" if state in (states.QUEUED, states.STARTING) else ""
    return (
        f"{problem}{waits}; logs of deleted pods are where the stack ships them: docs/observability.md;"
        f" trainyard run why {now.run_id} says how it is"
    )


def _follow(
    cluster: Cluster,
    found: Json,
    node_rank: int,
    args: argparse.Namespace,
    show: Print,
    note: Print,
) -> int:
    """Print the logs of one node's pods, one attempt or leading group after the other, until the run ends."""
    reader: LogReader | None = None
    told = ""
    while True:
        now = following.read_again(lambda: collect.read_run(cluster, found), note)
        one = summary_of(now)
        pod = pod_of_rank(now, node_rank, args.group)
        if pod is not None and (
            reader is None
            or (reader.pod, reader.container) != (objects.name(pod), main_container(pod))
        ):
            if reader is not None:
                _print_new(reader, show, note)
            reader = LogReader.of(cluster, pod, args.tail)
            note(f"-- {objects.name(pod)}, container {reader.container}")
        if reader is not None:
            _print_new(reader, show, note)
        if pod is None and not one.over and one.state != told:
            note(f"-- {now.run_id} is {one.state}; waiting for its pods")
        told = one.state
        if one.over:
            note(f"-- {now.run_id} is {one.state}")
            return 0
        time.sleep(POLL_S)


def _print_new(reader: LogReader, show: Print, note: Print) -> None:
    found = following.read_again(reader.read, note)
    _print(found or [], show)


def _print(lines: Sequence[Line], show: Print) -> None:
    for line in lines:
        show(printable(line.text))
