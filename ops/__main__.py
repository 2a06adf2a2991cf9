"""Explain runs, run sweeps, check readiness, and drain or resume queues of a live stack by a kubeconfig."""

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
from ops.sweep import command as sweep

DRAIN_TIMEOUT_S = 600.0
_PERMISSION_HINT = (
    "`why` requires a role in the team, all other commands the role of a platform engineer;"
    " `kubectl auth whoami` shows your user"
)


_EXAMPLES = """\
examples:
  python -m ops why hello                      # why the newest run named hello waits or failed
  python -m ops ready --until collective       # check capacity, GPUs and collectives
  python -m ops drain --team research          # save and stop the runs of one team
  python -m ops resume --team research         # let them run again
"""


def main(argv: list[str] | None = None) -> int:
    """Run one command. Return 0: success; 1: run not found, check failed or not drained; 2: no answer."""
    args = _parser().parse_args(argv)
    console = Console()
    try:
        if args.offline:
            return int(args.offline(args, console))
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
        print("interrupted; run the same command to continue", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m ops",
        description=__doc__,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(offline=None)
    commands = parser.add_subparsers(required=True, metavar="COMMAND", title="commands")
    everywhere = argparse.ArgumentParser(add_help=False)
    everywhere.add_argument(
        "--kubeconfig", type=Path, metavar="FILE", help="kubeconfig file; default as kubectl"
    )
    everywhere.add_argument(
        "--context", metavar="NAME", help="context of the kubeconfig; default the current one"
    )
    everywhere.add_argument("--team", metavar="TEAM", help="limit the command to one team")

    def add(name: str, run: object, text: str) -> argparse.ArgumentParser:
        example = next(line for line in _EXAMPLES.splitlines() if f"-m ops {name}" in line)
        command = commands.add_parser(
            name,
            help=text,
            description=f"{text[0].upper()}{text[1:]}.",
            epilog=f"example: {example.strip()}",
            parents=[everywhere],
        )
        command.set_defaults(run=run)
        return command

    why = add("why", _why, "explain why a run waits, fails or is slow")
    why.add_argument("run_name", metavar="RUN", help="run id, or run name for its newest run")
    why.add_argument("--json", action="store_true", help="print one JSON object")
    _add_prometheus(why)
    check = add("ready", ready.run, "check the stack in stages, then evaluate the checklist")
    ready.add_options(check)
    _add_timeout(check, ready.TIMEOUT_S, "time limit of each Job")
    _add_prometheus(check)
    stop = add("drain", _drain, "stop the queues: running runs save, exit and requeue")
    _add_timeout(stop, DRAIN_TIMEOUT_S, "time limit until nothing runs")
    add("resume", _resume, "reopen the queues")
    family = commands.add_parser("sweep", help="submit a family of runs, and show its result")
    sweep.add_options(family, everywhere)
    return parser


def _add_timeout(parser: argparse.ArgumentParser, default: float, what: str) -> None:
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=default,
        metavar="SECONDS",
        help=f"{what}; default {default:g}",
    )


def _add_prometheus(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--prometheus",
        type=_url,
        default=os.environ.get(metrics.PROMETHEUS_ENV, ""),
        metavar="URL",
        help=f"Prometheus to query; default ${metrics.PROMETHEUS_ENV}, else the cluster's own",
    )


def _url(text: str) -> str:
    if text and not text.startswith(("http://", "https://")):
        raise argparse.ArgumentTypeError(f"got {text}; expected http://HOST:PORT or https://HOST")
    return text


def _seconds(text: str) -> float:
    value = float(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"got {text}; expected 0 or more seconds")
    return value


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


def _drain(args: argparse.Namespace, cluster: Cluster, console: Console) -> int:
    def show(text: str) -> None:
        console.print(text, highlight=False, soft_wrap=True)

    left = drain.drain(cluster, args.team, args.timeout, show)
    team = f" --team {args.team}" if args.team else ""
    if not left.empty:
        for pod in left.pods:
            show(f"  still running: {pod}")
        show(
            f"Not drained after {args.timeout:g} s; run python -m ops drain{team} to continue waiting."
        )
        return 1
    show("Drained: nothing runs, queued runs wait.")
    for job in drain.manual_drill_jobs(cluster, args.team):
        show(f"Before pulumi destroy: kubectl delete {job} (its pod holds the team's volume).")
    show(f"Next: python -m ops resume{team} reopens the queues; pulumi destroy deletes the stack.")
    return 0


def _resume(args: argparse.Namespace, cluster: Cluster, console: Console) -> int:
    opened = drain.resume(cluster, args.team)
    what = ", ".join(opened) if opened else "no queue was stopped"
    console.print(f"Open: {what}", highlight=False, soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
