"""`trainyard sweep check|run|show|stop|delete`."""

from __future__ import annotations

import argparse
import datetime as dt
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console

from ops.cluster import Cluster, ClusterError
from ops.commands import Group, add_cluster, add_yes, confirm, printer
from ops.runs.scope import read_in_scope
from ops.submission import record
from ops.sweep import driver, report, store
from ops.sweep import state as states
from ops.sweep.driver import Driver
from ops.sweep.state import SweepState
from ops.sweep.store import StoredSweep

if TYPE_CHECKING:
    from ops.sweep.submission import Submission

EXAMPLES: Final = (
    "sweep check training/runs/lr.yaml                 # check the file, list its runs",
    "sweep run training/runs/lr.yaml                   # submit, follow, stop the worse ones",
    "sweep show lr --csv lr.csv                        # table, values",
    "sweep stop lr                                     # end what runs, submit nothing more",
    "sweep delete lr                                   # remove its objects; checkpoints stay",
)


def add(commands: Group) -> None:
    check = commands.add_offline(
        "check",
        _check,
        "check a file and list its runs; with --stack without a cluster",
        EXAMPLES[:1],
    )
    add_cluster(check)
    go = commands.add(
        "run",
        _run,
        "submit the runs of a file and follow them; continues an interrupted one",
        EXAMPLES[1:2],
    )
    for one in (check, go):
        one.add_argument("file", type=Path, metavar="FILE", help="run file with a section sweep")
        one.add_argument(
            "--stack",
            help="render for Pulumi.STACK.yaml, as CI does; default: for the stack on the cluster",
        )
    show = commands.add("show", _show, "show the result: a table, CSV", EXAMPLES[2:3])
    show.add_argument("--csv", type=Path, metavar="FILE", help="write one row per run")
    show.add_argument("--json", action="store_true", help="print the whole state as JSON")
    stop = commands.add("stop", _stop, "stop what runs, and submit nothing more", EXAMPLES[3:4])
    gone = commands.add(
        "delete", _delete, "delete the objects of an ended sweep; checkpoints stay", EXAMPLES[4:]
    )
    add_yes(gone)
    for one in (show, stop, gone):
        one.add_argument("sweep", metavar="NAME", help="NAME-vVERSION, or NAME for the newest one")


def _load(args: argparse.Namespace, connect: Callable[[], Cluster]) -> Submission | None:
    """Return the sweep of the file; None after its issues were printed. Raises ClusterError."""
    # Rendering takes a third of a second to import, which the other commands do without.
    from ops.sweep import submission

    try:
        if args.stack:
            return submission.load(args.file, args.stack)
        team, cluster = submission.team_of(args.file), connect()
        known = record.read_record(cluster, team)
        return submission.load_published(args.file, known, record.caller(cluster))
    except submission.ConfigError as error:
        print(error, file=sys.stderr)
        return None


def _check(args: argparse.Namespace, console: Console) -> int:
    show = printer(console)
    planned = _load(args, lambda: Cluster(args.kubeconfig, args.context))
    if planned is None:
        return 1
    for trial in planned.state.trials:
        show(f"{trial.run_id}: {report.parameters_text(trial)}")
    show(_plan_line(planned.state))
    return 0


def _run(args: argparse.Namespace, cluster: Cluster, console: Console) -> int:
    show = printer(console)
    planned = _load(args, lambda: cluster)
    if planned is None:
        return 1
    stored = store.open_sweep(cluster, planned.state, planned.user)
    work = Driver(
        cluster=cluster,
        namespace=planned.namespace,
        manifests=planned.manifests,
        read_values=driver.log_reader(cluster, planned.namespace, planned.state.metric),
        asha=planned.asha,
        report=show,
    )
    ended = driver.drive(work, stored)
    _print_table(ended, console)
    return 1 if any(one.state == states.FAILED for one in ended.trials) else 0


def _plan_line(state: SweepState) -> str:
    hours, price = state.max_hours, state.usd_per_hour
    cost = "cost unknown: no maxHours or no price"
    if hours is not None and price is not None:
        cost = f"at most {len(state.trials) * hours * price:.2f} USD"
    cap = "" if state.cost_cap_usd is None else f", capped at {state.cost_cap_usd:g} USD"
    return f"{len(state.trials)} runs, {state.parallel} at a time; {cost}{cap}"


def _find(args: argparse.Namespace, cluster: Cluster) -> StoredSweep:
    known = read_in_scope(args, cluster, lambda space: store.list_sweeps(cluster, space))
    return store.find_sweep(known, args.sweep)


def _show(args: argparse.Namespace, cluster: Cluster, console: Console) -> int:
    state = _find(args, cluster).state
    if args.json:
        print(state.to_json())
    else:
        _print_table(state, console)
    if args.csv:
        try:
            args.csv.write_text(report.csv_text(state), encoding="utf-8")
        except OSError as error:
            raise ClusterError(f"{args.csv}: {error}; choose another file") from None
    return 0


def _print_table(state: SweepState, console: Console) -> None:
    console.print(report.table(state), highlight=False)
    printer(console)(report.progress_line(state))


def _stop(args: argparse.Namespace, cluster: Cluster, console: Console) -> int:
    stored = _find(args, cluster)
    stored = driver.stop(cluster, stored, dt.datetime.now(dt.UTC))
    printer(console)(report.progress_line(stored.state))
    return 0


def _delete(args: argparse.Namespace, cluster: Cluster, console: Console) -> int:
    stored = _find(args, cluster)
    if not stored.state.ended:
        raise ClusterError(
            f"sweep {stored.state.sweep}: has not ended; stop it first: "
            f"trainyard sweep stop {stored.state.sweep}"
        )
    confirm(
        args, f"sweep {stored.state.sweep} of {stored.namespace}: delete the objects of its runs"
    )
    count = driver.delete(cluster, stored)
    printer(console)(f"Deleted {count} runs of {stored.state.sweep}; their checkpoints stay.")
    return 0
