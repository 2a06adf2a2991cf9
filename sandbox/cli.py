"""Run the embedded cluster and the local stack."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable

from rich.console import Console

from sandbox import paths
from sandbox.engine import strip_local_salt
from sandbox.lock import sandbox_lock
from sandbox.reporting import SandboxError

Command = Callable[[argparse.Namespace, Console], int]


def main(argv: list[str] | None = None) -> int:
    """Run one command. An expected failure prints one line to stderr and exits 1; Ctrl-C exits 130."""
    args = _parser().parse_args(argv)
    console = Console(width=None if sys.stdout.isatty() else 150)
    strip_local_salt()  # a `pulumi` that was run manually may have written it
    try:
        return int(args.run(args, console))
    except KeyboardInterrupt:
        print("interrupted; run the same command again to continue", file=sys.stderr)
        return 130
    except _expected_errors() as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _expected_errors() -> tuple[type[Exception], ...]:
    """Failures caused by input or by the machine: reported in one line, without a traceback."""
    import ops.cluster
    from ops.collect import NoSuchRunError
    from sandbox.node.api import ApiError, ApiUnavailable

    return SandboxError, ApiError, ApiUnavailable, NoSuchRunError, ops.cluster.ClusterError


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m sandbox",
        description=__doc__,
        epilog="Example: python -m sandbox up    Details: python -m sandbox COMMAND --help",
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=14, width=100),
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, run: Command, text: str, example: str = "") -> argparse.ArgumentParser:
        epilog = f"Example: python -m sandbox {name} {example}".rstrip()
        command = commands.add_parser(name, help=text, description=text, epilog=epilog)
        command.set_defaults(run=run)
        return command

    up = add("up", _up, "start the cluster, deploy the local stack and watch its first run")
    up.add_argument(
        "--cluster-only", action="store_true", help="start the cluster only; deploy nothing"
    )
    add("down", _down, "stop all processes; keep all data")
    add("clean", _clean, "stop all processes and delete all data")
    add("monitor", _monitor, "build the tools of monitoring at low priority, then start it")
    add("status", _status, "show services, nodes, runs and firing alerts")
    add(
        "env",
        _env,
        'print the environment for pulumi, kubectl and aws; use: eval "$(python -m sandbox env)"',
    )
    build = add("build", _build, "build tools and print their folders", "kubeflow-trainer")
    build.add_argument(
        "tools",
        metavar="TOOL",
        nargs="*",
        help="names in sandbox/toolchain/tools.py; default: those of `make up`",
    )
    build.add_argument(
        "--tests", action="store_true", help="build all that `make test` needs; print no folders"
    )
    preview = add("preview", _preview, "preview a stack and check it against the policies", "dev")
    preview.add_argument(
        "stack", metavar="STACK", help="name of a stack file, such as local or dev"
    )
    interrupt = add("interrupt", _interrupt, "reclaim a node as a spot interruption does", "spot-0")
    interrupt.add_argument("node", metavar="NODE", help="name of a process node")
    interrupt.add_argument(
        "--notice",
        type=_seconds,
        default=120.0,
        metavar="SECONDS",
        help="warning before the reclaim (default 120); 0: none",
    )
    restore = add("restore", _restore, "recreate reclaimed nodes", "spot-0")
    restore.add_argument("node", metavar="NODE", nargs="?", default="all", help="default: all")
    add(
        "drill",
        _drill,
        "reclaim spot nodes under runs, with and without notice; check that they resume",
    )
    return parser


def _seconds(text: str) -> float:
    value = float(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"got {text}; must be 0 or more seconds")
    return value


def _up(args: argparse.Namespace, console: Console) -> int:
    from sandbox import monitoring
    from sandbox.runs import print_summary
    from sandbox.session import open_cluster

    with sandbox_lock("sandbox up", console.print):
        session = open_cluster(console)
        deployed = {}
        if not args.cluster_only:
            console.print("[bold]Stack[/bold]")
            deployed = session.deploy().get("runs", {})
        late = monitoring.is_enabled() and not session.settings.tools.can_monitor
        if late:
            console.print(f"  {monitoring.start_later(paths.state())}", highlight=False)
    if args.cluster_only:
        return 0
    if not deployed:
        console.print("Pulumi.local.yaml: no runs; add one to `trainyard:runs`.")
        return 0
    console.print("[bold]Run[/bold]")
    first, runs = next(iter(deployed.values())), session.runs
    ended = runs.follow(runs.find(first["runId"]), console)
    good = print_summary(runs, ended, console)
    metrics = (
        "Metrics: none yet; Prometheus is being built in the background and starts by itself. Until then commands"
        " and the page show progress by logs; [bold]make status[/bold] says when it runs.\n"
    )
    console.print(
        "Next: [bold]make interrupt[/bold] reclaims spot nodes under runs;"
        " [bold]make status[/bold] shows services and runs; [bold]make down[/bold] stops them.\n"
        f"{metrics if late else ''}"
        'pulumi and kubectl: eval "$(.venv/bin/python -m sandbox env)", then use them as usual.'
    )
    return runs.exit_code(ended) or int(not good)


def _monitor(_args: argparse.Namespace, console: Console) -> int:
    from sandbox import cluster, monitoring, toolchain

    _require_cluster()
    os.nice(monitoring.NICENESS)
    tools = toolchain.ensure(console)
    with sandbox_lock("sandbox monitor", console.print):
        if not cluster.is_up():
            console.print("The sandbox is down; the next `make up` starts monitoring.")
            return 0
        cluster.up(tools, lambda text: console.print(f"  {text}", highlight=False))
    console.print("Monitoring runs; `make status` shows firing alerts.")
    return 0


def _down(_args: argparse.Namespace, console: Console) -> int:
    from sandbox import cluster

    with sandbox_lock("sandbox down", console.print):
        ended = cluster.down(lambda text: console.print(f"  {text}", highlight=False))
    what = f"stopped {ended} processes" if ended else "nothing was running"
    console.print(f"Down: {what}. Data is kept in {paths.state().home}; `make up` resumes from it.")
    return 0


def _clean(args: argparse.Namespace, console: Console) -> int:
    _down(args, console)
    home = paths.state().home
    shutil.rmtree(home)
    console.print(f"Removed {home}. The built tools are kept in {paths.cache()}.")
    return 0


def _status(_args: argparse.Namespace, console: Console) -> int:
    from sandbox.status import print_status

    return print_status(console)


def _require_cluster() -> None:
    """Raise ClusterError unless a cluster was started."""
    from sandbox.cluster import ClusterError

    if not paths.state().kubeconfig.exists():
        raise ClusterError("the sandbox is not up; run `make up` first")


def _env(_args: argparse.Namespace, _console: Console) -> int:
    from sandbox import cluster, environment, toolchain

    _require_cluster()
    settings = cluster.current_settings(toolchain.ensure_for_runs(Console(stderr=True)))
    print(environment.shell_lines(environment.variables(settings)))
    return 0


def _build(args: argparse.Namespace, console: Console) -> int:
    from sandbox import toolchain

    if args.tests:
        toolchain.ensure(console, *toolchain.TEST_TOOLS)
        return 0
    made = toolchain.ensure(console, *args.tools)
    for name, assets in made.assets.items():
        console.print(f"{name}: {made.sources[name]}, {assets.parent}", highlight=False)
    return 0


def _preview(args: argparse.Namespace, console: Console) -> int:
    from sandbox import preview

    with sandbox_lock("sandbox preview", console.print):
        return preview.preview_stack(args.stack, console)


def _interrupt(args: argparse.Namespace, console: Console) -> int:
    from sandbox.node.reclaim import reclaim

    _require_cluster()
    reclaim(args.node, args.notice, on_event=lambda text: console.print(text, highlight=False))
    console.print(
        f"{args.node} was reclaimed; `python -m sandbox restore {args.node}` recreates it"
    )
    return 0


def _restore(args: argparse.Namespace, console: Console) -> int:
    from sandbox.node.reclaim import restore

    nodes = restore(args.node)
    console.print(f"restored: {', '.join(nodes)}" if nodes else "no node is reclaimed")
    return 0


def _drill(_args: argparse.Namespace, console: Console) -> int:
    from sandbox import drill
    from sandbox.session import open_cluster

    with sandbox_lock("sandbox drill", console.print):
        session = open_cluster(console)
        try:
            passed = drill.Drill(session, console).run()
        finally:
            console.print("[bold]Removing the drill's runs from the stack[/bold]")
            session.deploy()
    console.print(
        "Every interruption was survived."
        if passed
        else "Drill failed: a run lost more steps than allowed, or its losses differ."
    )
    return 0 if passed else 1
