"""Commands on a live stack of any kind, with nothing but a kubeconfig."""

from __future__ import annotations

import argparse
import datetime as dt
import os
import sys
from pathlib import Path

from rich.console import Console

from infra.domain import naming
from ops import collect, drain, metrics, report
from ops.checklist.snapshot import NAMESPACES
from ops.cluster import Cluster, ClusterError, ForbiddenError
from ops.collect import NoSuchRunError
from ops.ready import command as ready

DRAIN_TIMEOUT_S = 600.0
_PERMISSION_HINT = (
    "`kubectl auth whoami` says who you are; `why` is for everybody with a role in the team,"
    " all else for platform engineers"
)


def main(argv: list[str] | None = None) -> int:
    """Run one command. 0: answered, or done. 1: no such run, or not drained in time. 2: no answer."""
    args = _parser().parse_args(argv)
    console = Console()
    try:
        return int(args.run(args, Cluster(args.kubeconfig, args.context), console))
    except NoSuchRunError as error:
        print(error, file=sys.stderr)
        return 1
    except ForbiddenError as error:
        print(f"error: {error}; {_PERMISSION_HINT}", file=sys.stderr)
        return 2
    except ClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; the same command goes on", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m ops", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    everywhere = argparse.ArgumentParser(add_help=False)
    everywhere.add_argument("--kubeconfig", type=Path, metavar="FILE", help="as kubectl's")
    everywhere.add_argument("--context", metavar="NAME", help="as kubectl's")
    everywhere.add_argument("--team", metavar="TEAM", help="look at this team only")

    def add(name: str, run: object, text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text, parents=[everywhere])
        command.set_defaults(run=run)
        return command

    why = add("why", _why, "why a run waits, or how it ended")
    why.add_argument("run_name", metavar="RUN", help="a run id, or a name for its newest run")
    why.add_argument("--json", action="store_true", help="one JSON object")
    _add_prometheus(why)
    climb = add("ready", ready.run, "climb from capacity to preemption, then walk the checklist")
    ready.add_options(climb)
    climb.add_argument("--timeout", type=_seconds, default=ready.TIMEOUT_S, metavar="SECONDS")
    _add_prometheus(climb)
    stop = add("drain", _drain, "stop the queues: runs save, stop and wait")
    stop.add_argument("--timeout", type=_seconds, default=DRAIN_TIMEOUT_S, metavar="SECONDS")
    add("resume", _resume, "open the queues again")
    return parser


def _add_prometheus(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--prometheus",
        type=_url,
        default=os.environ.get(metrics.PROMETHEUS_ENV, ""),
        metavar="URL",
        help=f"where metrics are; default {metrics.PROMETHEUS_ENV}, else the cluster's own",
    )


def _url(text: str) -> str:
    if text and not text.startswith(("http://", "https://")):
        raise argparse.ArgumentTypeError(f"got {text}; allowed http://HOST:PORT or https://...")
    return text


def _seconds(text: str) -> float:
    value = float(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"got {text}; allowed 0 or more seconds")
    return value


def _why(args: argparse.Namespace, cluster: Cluster, console: Console) -> int:
    namespace = naming.namespace(args.team) if args.team else None
    try:
        known = collect.list_runs(cluster, namespace)
    except ForbiddenError as error:
        if namespace is not None:
            raise
        raise ClusterError(f"{error}; name your team with --team") from None
    if not known and namespace is not None and not _namespace_exists(cluster, namespace):
        raise ClusterError(f"--team: got {args.team!r}; there is no namespace {namespace}")
    run = collect.find_run(known, args.run_name)
    prometheus = metrics.connect(args.prometheus, cluster)
    taken = collect.take_snapshot(cluster, run, dt.datetime.now(dt.UTC), prometheus)
    if args.json:
        print(report.to_json(taken))
    else:
        report.print_report(taken, console)
    return 0


def _namespace_exists(cluster: Cluster, namespace: str) -> bool:
    """Whether a namespace exists, as far as the caller may know."""
    try:
        return cluster.get(NAMESPACES, namespace) is not None
    except ForbiddenError:
        return True


def _drain(args: argparse.Namespace, cluster: Cluster, console: Console) -> int:
    def say(text: str) -> None:
        console.print(text, highlight=False, soft_wrap=True)

    left = drain.drain(cluster, args.team, args.timeout, say)
    team = f" --team {args.team}" if args.team else ""
    if not left.empty:
        for pod in left.pods:
            say(f"  still there: {pod}")
        say(f"Not drained after {args.timeout:g} s; python -m ops drain{team} goes on waiting.")
        return 1
    say("Drained: nothing runs; queued runs wait.")
    for job in drain.manual_drill_jobs(cluster, args.team):
        say(f"Before a destroy: kubectl delete {job}, for its pod holds the team's volume.")
    say(
        f"Next: python -m ops resume{team} lets them run again; pulumi destroy takes the stack down."
    )
    return 0


def _resume(args: argparse.Namespace, cluster: Cluster, console: Console) -> int:
    opened = drain.resume(cluster, args.team)
    what = ", ".join(opened) if opened else "no queue was stopped"
    console.print(f"Open: {what}", highlight=False, soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
