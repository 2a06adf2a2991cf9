"""`trainyard dev start|shell|port|list|stop`."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import sys
from typing import Final

from rich.console import Console

from infra.domain import dev_pods, naming
from ops.cluster import Cluster, ClusterError
from ops.collect import JOBS
from ops.commands import Group, printer
from ops.dev import connect, sessions
from ops.dev.sessions import RUNNING, DevSession
from ops.runs.columns import table
from ops.runs.scope import read_in_scope
from ops.submission import record

EXAMPLES: Final = (
    "dev start --gpus 1 --hours 4          # queue a pod, wait until it runs",
    "dev shell                             # a terminal in it; your home folder persists",
    "dev shell -- nvidia-smi               # one command",
    "dev port jupyter                      # start JupyterLab, forward its port",
    "dev port 6006                         # forward a port of your own program",
    "dev list",
    "dev stop",
)
_PREFIX: Final = naming.namespace("")


def add(commands: Group) -> None:
    start = commands.add("start", _start, "start an interactive pod of your own", EXAMPLES[:1])
    _add_name(start)
    start.add_argument(
        "--gpus", type=int, default=1, metavar="N", help="GPUs, all of one node; 0: none; default 1"
    )
    start.add_argument(
        "--gpu-model", default="", metavar="MODEL", help="such as l4 or h100; default any"
    )
    start.add_argument(
        "--image",
        default="trainer",
        help="name in the stack's `images`, or a reference by digest; requires python3; default trainer",
    )
    start.add_argument(
        "--hours", type=float, default=8.0, metavar="H", help="time limit; default 8, at most 24"
    )
    start.add_argument(
        "--idle-minutes",
        type=float,
        default=60.0,
        metavar="M",
        help="end it when it was not used for so long; 0: never; default 60",
    )
    start.add_argument("--no-wait", action="store_true", help="do not wait until it runs")
    start.add_argument("--render", action="store_true", help="print the manifest as JSON, and end")
    shell = commands.add("shell", _shell, "open a terminal in your dev pod", EXAMPLES[1:3])
    shell.add_argument("--name", help="which, if you have several")
    shell.add_argument(
        "command", nargs="*", metavar="-- COMMAND", help="run this instead of a shell"
    )
    port = commands.add("port", _port, "forward a port of your dev pod", EXAMPLES[3:5])
    port.add_argument(
        "port",
        metavar="PORT",
        help="PORT, LOCAL:PORT, or a program: jupyter, vscode, LOCAL:jupyter",
    )
    port.add_argument("--name", help="which, if you have several")
    shown = commands.add("list", _list, "list the team's dev pods", EXAMPLES[5:6])
    shown.add_argument("--json", action="store_true", help="print one JSON object")
    stop = commands.add("stop", _stop, "end your dev pod; its home folder is kept", EXAMPLES[6:])
    _add_name(stop, default=None)


def _add_name(parser: argparse.ArgumentParser, default: str | None = "main") -> None:
    text = f"default {default}" if default else "which, if you have several"
    parser.add_argument("name", nargs="?", default=default, metavar="NAME", help=text)


def _start(args: argparse.Namespace, cluster: Cluster, console: Console) -> int:
    # Rendering takes a third of a second to import, which the other commands do without.
    from ops.dev import pod as dev_pod

    if args.name == dev_pods.TRANSFER:
        raise ClusterError(
            f"NAME: got {args.name!r}; must not be the name of the pod of trainyard data; choose another"
        )
    team = sessions.team_of(args)
    known = record.read_record(cluster, team)
    user = record.caller(cluster)
    request = dev_pod.DevRequest(
        user=user,
        team=team,
        name=args.name,
        image=known.images.get(args.image, args.image),
        gpus=args.gpus,
        gpu_model=args.gpu_model,
        hours=args.hours,
        idle_minutes=args.idle_minutes,
    )
    try:
        job = dev_pod.job(request, known.platform)
    except dev_pod.BadRequest as error:
        print(error, file=sys.stderr)
        return 1
    if args.render:
        print(json.dumps(job, indent=2))
        return 0
    show = printer(console)
    sessions.check_number(cluster, str(job["metadata"]["namespace"]), team)
    sessions.create(cluster, job, args.name)
    show(
        f"{args.name}: created; it ends after {args.hours:g} h, or {_idle_text(args.idle_minutes)}"
    )
    if args.no_wait:
        return 0
    if sessions.await_running(cluster, job["metadata"], args.name, show) is None:
        return 1
    show("Next: trainyard dev shell, trainyard dev port jupyter, trainyard dev stop")
    return 0


def _idle_text(minutes: float) -> str:
    return f"{minutes:g} min without use" if minutes else "when you stop it"


def _own(args: argparse.Namespace, cluster: Cluster) -> DevSession:
    """Return the caller's dev pod of the command line. Raises ClusterError."""
    user = record.caller(cluster)
    found = sessions.read_sessions(cluster, naming.namespace(sessions.team_of(args)))
    return sessions.find(found, user, args.name, dev_pods.job_name(user, ""))


def _running(args: argparse.Namespace, cluster: Cluster) -> DevSession:
    session = _own(args, cluster)
    if session.state != RUNNING:
        why = f" ({session.why})" if session.why else ""
        raise ClusterError(
            f"dev pod {session.job}: it is {session.state}{why}; it must be running; trainyard dev list shows it"
        )
    return session


def _shell(args: argparse.Namespace, cluster: Cluster, console: Console) -> int:
    del console
    return connect.shell(args, _running(args, cluster), args.command)


def _port(args: argparse.Namespace, cluster: Cluster, console: Console) -> int:
    ports, program = args.port, ""
    local, colon, name = args.port.rpartition(":")
    if name in connect.PROGRAMS:
        number, program = connect.PROGRAMS[name]
        ports = f"{local}{colon}{number}"
    if all(part.isdigit() and 0 < int(part) < 65536 for part in ports.split(":")):
        session = _running(args, cluster)
        printer(console)("Ctrl-C ends it; the dev pod goes on.")
        if local and program:
            printer(console)(
                f"Port {number} of the addresses below is port {local} on this machine."
            )
        return connect.forward(args, session, ports, program)
    valid = ", ".join(connect.PROGRAMS)
    raise ClusterError(
        f"PORT: got {args.port!r}; must be a port, LOCAL:PORT, {valid} or LOCAL:PROGRAM; correct it"
    )


def _list(args: argparse.Namespace, cluster: Cluster, console: Console) -> int:
    found = read_in_scope(args, cluster, lambda space: sessions.read_sessions(cluster, space))
    if args.json:
        print(json.dumps({"devPods": [one.to_json() for one in found]}, indent=2))
        return 0
    show = printer(console)
    head = ("NAME", "OWNER", "TEAM", "STATE", "GPUS", "NODE", "ENDS IN", "WHY")
    now = dt.datetime.now(dt.UTC)
    for line in table([head, *(_row(one, now) for one in found)]) if found else ["no dev pods"]:
        show(line)
    return 0


def _row(one: DevSession, now: dt.datetime) -> tuple[str, ...]:
    left = f"{max((one.ends - now).total_seconds(), 0) / 3600:.1f} h" if one.ends else "-"
    return (
        one.job.removeprefix(dev_pods.job_name(one.owner, "")),
        one.owner or "-",
        one.namespace.removeprefix(_PREFIX),
        one.state,
        str(one.gpus),
        one.node or "-",
        left,
        one.why or "-",
    )


def _stop(args: argparse.Namespace, cluster: Cluster, console: Console) -> int:
    session = _own(args, cluster)
    cluster.delete(JOBS, session.job, session.namespace)
    printer(console)(f"{session.job}: stopped; your home folder is kept")
    return 0
