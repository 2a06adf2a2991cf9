"""The sandbox's commands."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Callable

from rich.console import Console

from sandbox import paths
from sandbox.engine import strip_local_salt
from sandbox.lock import sandbox_lock

Command = Callable[[argparse.Namespace, Console], int]


def main(argv: list[str] | None = None) -> int:
    """Run one command; a failure is one line on stderr and exit code 1, an interrupt 130."""
    args = _parser().parse_args(argv)
    console = Console(width=None if sys.stdout.isatty() else 150)
    strip_local_salt()  # a `pulumi` that was run manually may have written it
    try:
        return int(args.run(args, console))
    except KeyboardInterrupt:
        print("interrupted; run the same command again to go on", file=sys.stderr)
        return 130
    except _expected_errors() as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _expected_errors() -> tuple[type[Exception], ...]:
    """Failures that are the user's or the machine's, not a bug: told in one line."""
    from sandbox.cluster import ClusterError
    from sandbox.drill import DrillError
    from sandbox.engine import EngineError
    from sandbox.monitoring import MonitoringError
    from sandbox.node.api import ApiError, ApiUnavailable
    from sandbox.node.reclaim import ReclaimError
    from sandbox.plugins import SetupError
    from sandbox.preview import PreviewError
    from sandbox.runs import RunNotFoundError
    from sandbox.toolchain import ToolchainError

    return (
        ClusterError,
        DrillError,
        EngineError,
        MonitoringError,
        SetupError,
        ApiError,
        ApiUnavailable,
        PreviewError,
        ReclaimError,
        RunNotFoundError,
        ToolchainError,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m sandbox", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, run: Command, text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(run=run)
        return command

    up = add("up", _up, "bring the cluster and the local stack up, and follow the first run")
    up.add_argument("--cluster-only", action="store_true", help="only the cluster and the tools")
    add("down", _down, "end every process of the sandbox; what it stored stays")
    add("clean", _clean, "end the sandbox and remove all that it stored")
    add("status", _status, "what runs")
    add("env", _env, "shell lines that make pulumi, kubectl and aws work on the sandbox")
    preview = add("preview", _preview, "what pulumi up would change on a stack, with policies")
    preview.add_argument("stack", metavar="STACK", help="such as local or dev")
    wait = add("wait", _wait, "follow a run to its end; exits with the run's exit code")
    wait.add_argument("run_name", metavar="RUN", help="a run id, or a name for its newest run")
    interrupt = add("interrupt", _interrupt, "reclaim a node as a spot interruption does")
    interrupt.add_argument("node", metavar="NODE")
    interrupt.add_argument("--notice", type=_seconds, default=120.0, metavar="SECONDS")
    restore = add("restore", _restore, "bring reclaimed nodes back")
    restore.add_argument("node", metavar="NODE", nargs="?", default="all")
    add("drill", _drill, "show that a run survives a spot reclaim, with notice and without")
    kinds = add("fault", _fault, "make a simulated part fail").add_subparsers(
        required=True, metavar="PART"
    )
    text = "let a simulated GPU report errors; without one, take them back"
    gpu = kinds.add_parser("gpu", help=text, description=text)
    gpu.add_argument("node", metavar="NODE")
    gpu.add_argument("--gpu", type=int, default=0, metavar="NUMBER", help="default 0")
    gpu.add_argument(
        "--xid", type=int, default=0, metavar="CODE", help="the last error, such as 79"
    )
    gpu.add_argument("--ecc", type=int, default=0, metavar="COUNT", help="uncorrectable errors")
    return parser


def _seconds(text: str) -> float:
    value = float(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"got {text}; allowed 0 or more seconds")
    return value


def _up(args: argparse.Namespace, console: Console) -> int:
    from sandbox import run_report
    from sandbox.runs import exit_code
    from sandbox.session import open_cluster
    from sandbox.watch import watch_run

    with sandbox_lock("sandbox up", console.print):
        session = open_cluster(console)
        if args.cluster_only:
            return 0
        console.print("[bold]Stack[/bold]")
        runs = session.deploy().get("runs", {})
    if not runs:
        console.print("The stack has no runs; add one to `trainyard:runs` in Pulumi.local.yaml.")
        return 0
    console.print("[bold]Run[/bold]")
    first = next(iter(runs.values()))
    reader = session.reader
    status = watch_run(reader, reader.find(first["runId"]), console)
    good = run_report.print_summary(session.state, status, console)
    console.print(
        "Next: [bold]make interrupt[/bold] takes a spot node away under a run;"
        " [bold]make status[/bold] shows what is up; [bold]make down[/bold] stops it.\n"
        'By hand: eval "$(.venv/bin/python -m sandbox env)", then pulumi and kubectl as usual.'
    )
    code = exit_code(reader, status.run, status.outcome)
    return code if code else int(not good)


def _down(_args: argparse.Namespace, console: Console) -> int:
    from sandbox import cluster
    from sandbox.node.runtime import stop_all

    with sandbox_lock("sandbox down", console.print):
        ended = cluster.down(lambda text: console.print(f"  {text}", highlight=False))
        ended += stop_all(paths.state())
    what = f"{ended} processes ended" if ended else "nothing was running"
    console.print(
        f"Down: {what}. What it stored is in {paths.state().home}; make up goes on from there."
    )
    return 0


def _clean(args: argparse.Namespace, console: Console) -> int:
    _down(args, console)
    home = paths.state().home
    shutil.rmtree(home)
    console.print(f"Removed {home}. Built tools stay in {paths.cache()}.")
    return 0


def _status(_args: argparse.Namespace, console: Console) -> int:
    from sandbox.status import print_status

    return print_status(console)


def _require_cluster() -> None:
    """Raises ClusterError where there is no cluster to ask."""
    from sandbox.cluster import ClusterError

    if not paths.state().kubeconfig.exists():
        raise ClusterError("the sandbox is not up; run `make up` first")


def _env(_args: argparse.Namespace, _console: Console) -> int:
    from sandbox import cluster, environment, toolchain

    _require_cluster()
    settings = cluster.current_settings(toolchain.ensure(Console(stderr=True)))
    print(environment.shell_lines(environment.variables(settings)))
    return 0


def _preview(args: argparse.Namespace, console: Console) -> int:
    from sandbox import preview

    with sandbox_lock("sandbox preview", console.print):
        return preview.preview_stack(args.stack, console)


def _wait(args: argparse.Namespace, console: Console) -> int:
    from sandbox import run_report
    from sandbox.runs import RunReader, exit_code
    from sandbox.watch import watch_run

    _require_cluster()
    reader = RunReader(paths.state())
    status = watch_run(reader, reader.find(args.run_name), console)
    run_report.print_summary(paths.state(), status, console)
    return exit_code(reader, status.run, status.outcome)


def _interrupt(args: argparse.Namespace, console: Console) -> int:
    from sandbox.node.reclaim import reclaim

    _require_cluster()
    reclaim(args.node, args.notice, on_event=lambda text: console.print(text, highlight=False))
    console.print(f"{args.node} is gone; `python -m sandbox restore {args.node}` brings it back")
    return 0


def _restore(args: argparse.Namespace, console: Console) -> int:
    from sandbox.node.reclaim import restore

    nodes = restore(args.node)
    console.print(f"back: {', '.join(nodes)}" if nodes else "no node is away")
    return 0


def _fault(args: argparse.Namespace, console: Console) -> int:
    from sandbox.monitoring import gpu_faults

    fault = gpu_faults.Fault(xid=args.xid, ecc=args.ecc)
    gpu_faults.set_fault(paths.state(), args.node, args.gpu, fault)
    which = f"GPU {args.gpu} of {args.node}"
    reported = f"reports XID {args.xid} and {args.ecc} uncorrectable memory errors"
    console.print(f"{which} {reported if fault != gpu_faults.Fault() else 'is sound again'}")
    return 0


def _drill(_args: argparse.Namespace, console: Console) -> int:
    from sandbox import drill
    from sandbox.session import open_cluster

    with sandbox_lock("sandbox drill", console.print):
        session = open_cluster(console)
        try:
            passed = drill.run_drill(session, console)
        finally:
            console.print("[bold]Removing the drill's runs from the stack[/bold]")
            session.deploy()
    console.print(
        "Every interruption was survived." if passed else "An interruption cost too much."
    )
    return 0 if passed else 1
