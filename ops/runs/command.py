"""`trainyard run why`."""

from __future__ import annotations

import argparse
import datetime as dt

from rich.console import Console

from infra.domain import naming
from ops import collect, metrics, report
from ops.checklist.snapshot import NAMESPACES
from ops.cluster import Cluster, ClusterError, ForbiddenError
from ops.commands import Group, add_prometheus


def add(commands: Group) -> None:
    """Add the commands to the group `run`."""
    why = commands.add(
        "why",
        _why,
        "explain why a run waits, fails or is slow",
        [
            "run why hello                  # the newest run of this name",
            "run why hello-v2-a1b2 --json",
        ],
    )
    why.add_argument("run_name", metavar="RUN", help="run id, or run name for its newest run")
    why.add_argument("--json", action="store_true", help="print one JSON object")
    add_prometheus(why)


def _why(args: argparse.Namespace, cluster: Cluster, console: Console) -> int:
    namespace = naming.namespace(args.team) if args.team else None
    try:
        known = collect.list_runs(cluster, namespace)
    except ForbiddenError as error:
        if namespace is not None:
            raise
        raise ClusterError(f"{error}; select your team with --team") from None
    if not known and namespace is not None and not _namespace_exists(cluster, namespace):
        raise ClusterError(
            f"--team: got {args.team!r}; namespace {namespace} not found; pass an existing team"
        )
    run = collect.find_run(known, args.run_name)
    prometheus = metrics.connect(args.prometheus, cluster)
    taken = collect.take_snapshot(cluster, run, dt.datetime.now(dt.UTC), prometheus)
    if args.json:
        print(report.to_json(taken))
    else:
        report.print_report(taken, console)
    return 0


def _namespace_exists(cluster: Cluster, namespace: str) -> bool:
    """Whether a namespace exists; true if the caller may not read it."""
    try:
        return cluster.get(NAMESPACES, namespace) is not None
    except ForbiddenError:
        return True
