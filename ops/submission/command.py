"""`trainyard run submit|stop|resume|clone|adopt`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import yaml
from rich.console import Console

from infra.domain import naming
from ops import collect, groups, objects, stopped
from ops.cluster import Cluster, ClusterError
from ops.commands import Group, add_yes, confirm, printer
from ops.objects import Json
from ops.runs import states, wait_command
from ops.runs.scope import read_in_scope
from ops.submission import create, queue_place, record, stopping

if TYPE_CHECKING:
    from ops.submission.render import RenderedRun, RunDocument

_EXAMPLES: Final = (
    "run submit run.yaml                       # check, create, show place in the queue",
    "run submit run.yaml --source my-project   # pack this folder as the program",
    "run submit run.yaml --set nodes=2         # with another value",
    "run submit run.yaml --render              # print the manifests only",
)


def add(commands: Group) -> None:
    submit = commands.add("submit", _submit, "check a run file and submit its run", _EXAMPLES)
    submit.add_argument(
        "file", type=Path, nargs="?", metavar="FILE", help="run file; its newest version"
    )
    _add_source(submit)
    add_launch_options(submit)
    clone = commands.add(
        "clone",
        _clone,
        "submit a run again as its next version, with other settings",
        ["run clone hello --set overrides.optimizer.learning_rate=1e-4"],
    )
    add_run(clone)
    _add_source(clone)
    add_launch_options(clone)
    stop = commands.add(
        "stop",
        _stop,
        "let a run save, and stop it",
        [
            "run stop hello              # trainyard run resume hello continues it",
            "run stop hello --delete     # and delete its objects; checkpoints stay",
        ],
    )
    add_run(stop)
    stop.add_argument("--delete", action="store_true", help="delete its objects, too")
    add_yes(stop)
    stop.add_argument(
        "--no-wait", action="store_true", help="do not wait until its pods have ended"
    )
    again = commands.add(
        "resume", _resume, "continue a stopped run at its newest checkpoint", ["run resume hello"]
    )
    add_run(again)
    adopt = commands.add(
        "adopt",
        _adopt,
        "print the import file with which a stack takes over a submitted run",
        ["run adopt hello --stack local   # then: pulumi import --file"],
    )
    add_run(adopt)
    adopt.add_argument("--stack", required=True, help="stack whose `runs` get the run's file")
    adopt.add_argument(
        "--provider",
        metavar="URN",
        help="URN of the stack's Kubernetes provider; default that of a stack on an existing cluster",
    )
    _add_watch(again)


def add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_name", metavar="RUN", help="run id, or run name for its newest run")


def _add_source(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--source",
        type=Path,
        metavar="FOLDER",
        help="folder of the program, in place of program.source, to which paths of the run file are relative; "
        "default: the file's repository, else its folder",
    )


def _add_watch(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--watch", action="store_true", help="follow it until it has ended")


def add_launch_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of commands that submit a run: --render, --set and --watch."""
    _add_watch(parser)
    parser.add_argument(
        "--render", action="store_true", help="print the manifests as YAML, and end"
    )
    parser.add_argument(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="replace a key of the run file; dotted below sections; may be repeated",
    )


def _submit(args: argparse.Namespace, cluster: Cluster, console: Console) -> int:
    # Rendering takes a third of a second to import, which the other commands do without.
    from ops.submission import render

    if args.file is None:
        raise ClusterError(
            "FILE: is missing; must be a run file; trainyard init --script writes run.yaml and a script; then: "
            "trainyard run submit run.yaml"
        )

    def read() -> RunDocument:
        document = render.read(args.file, args.settings, source=args.source)
        if args.team and args.team != document.team:
            raise ClusterError(
                f"--team: got {args.team!r}, and the run file has team {document.team}; they must be equal; "
                "remove --team, or correct the file"
            )
        return document

    return launch(args, cluster, console, read)


def _clone(args: argparse.Namespace, cluster: Cluster, console: Console) -> int:
    from ops.submission import render

    known = read_in_scope(args, cluster, lambda space: collect.list_runs(cluster, space))
    run = collect.find_run(known, args.run_name)
    values = stopping.run_file_of(cluster, str(objects.meta(run)["namespace"]), objects.name(run))
    if values is None:
        raise ClusterError(
            f"run {objects.name(run)}: was deployed by a stack, which keeps no copy of its run file in the "
            "cluster; submit its run file with --set and another version"
        )
    where, changes = f"clone of {objects.name(run)}", {"version": next_version(known, run)}
    root = render.root_of(Path.cwd())
    return launch(
        args,
        cluster,
        console,
        lambda: render.changed(where, values | changes, args.settings, root, args.source),
    )


def next_version(known: Sequence[Json], run: Json) -> int:
    """Return the version after the newest of a run's name in its namespace. `known`: all runs."""
    name, place = objects.label(run, naming.RUN), objects.meta(run)["namespace"]
    versions = [
        int(objects.label(one, naming.RUN_VERSION) or 0)
        for one in known
        if objects.label(one, naming.RUN) == name and objects.meta(one)["namespace"] == place
    ]
    return max(versions, default=0) + 1


def launch(
    args: argparse.Namespace,
    cluster: Cluster,
    console: Console,
    read: Callable[[], RunDocument],
    explain: Callable[[RenderedRun], Sequence[str]] = lambda _: (),
) -> int:
    """Read, check, render and create a run, as the options say. Return the exit code.

    `explain`: what else to print about the run before it is created.
    """
    from ops.submission import render

    show = printer(console)
    try:
        document = read()
        published = record.read_record(cluster, document.team)
        user = record.caller(cluster)
        rendered = render.render(document, published, user)
    except render.RunFileError as error:
        print(error, file=sys.stderr)
        return 1
    if args.render:
        print(yaml.safe_dump_all(rendered.manifests, sort_keys=False), end="")
        return 0
    for line in (*rendered.facts, *explain(rendered)):
        show(line)
    objects_of_run = create.with_source(rendered.manifests, document.values)
    created = create.create(cluster, objects_of_run, user)
    if not created.new:
        by = create.launched_by(created.run)
        owner = f"{by} submitted it" if by else "a stack deployed it"
        show(f"{rendered.run_id} exists already: {owner}; it was not changed")
    else:
        show(f"{rendered.run_id}: submitted as {user}")
    show(queue_place.queue_line(cluster, created.run))
    return _follow(args, cluster, created.run, show)


def _follow(
    args: argparse.Namespace, cluster: Cluster, run: Json, show: Callable[[str], None]
) -> int:
    if not args.watch:
        return 0
    ended = wait_command.follow(cluster, run, show)
    return 0 if ended.ending and ended.ending.state == states.FINISHED else 1


def _stop(args: argparse.Namespace, cluster: Cluster, console: Console) -> int:
    show = printer(console)
    known = read_in_scope(args, cluster, lambda space: collect.list_runs(cluster, space))
    run = collect.find_run(known, args.run_name)
    namespace, run_id = str(objects.meta(run)["namespace"]), objects.name(run)
    resumable = False
    if args.delete:
        confirm(
            args, f"run {run_id} of {namespace}: stop it, and delete its objects; checkpoints stay"
        )
    if args.delete and states.has_ended(run):
        for gang in groups.gangs(run):
            cluster.delete(create.kind_of(gang), objects.name(gang), namespace)
    elif args.delete and stopped.is_stopped(run):
        show(f"{run_id}: is stopped")
    else:
        resumable = stopping.stop(cluster, run)
    if not args.no_wait:
        stopping.wait_for_pods(cluster, namespace, run_id, show)
    if args.delete:
        stopping.remove(cluster, namespace, run_id)
        show(f"{run_id}: stopped and deleted; its checkpoints stay")
    elif resumable:
        show(f"{run_id}: stopped; trainyard run resume {run_id} continues it")
    else:
        show(
            f"{run_id}: stopped; a stack deployed it: after `pulumi refresh`, `pulumi up` starts it again "
            "unless its file is removed from `runs`"
        )
    return 0


def _resume(args: argparse.Namespace, cluster: Cluster, console: Console) -> int:
    show = printer(console)
    known = read_in_scope(args, cluster, lambda space: collect.stopped_runs(cluster, space))
    found = collect.find_stopped(known, args.run_name)
    run = stopping.resume(cluster, found, record.caller(cluster))
    show(f"{objects.name(run)}: resumed")
    show(queue_place.queue_line(cluster, run))
    return _follow(args, cluster, run, show)


def _adopt(args: argparse.Namespace, cluster: Cluster, console: Console) -> int:
    known = read_in_scope(args, cluster, lambda space: collect.list_runs(cluster, space))
    run = collect.find_run(known, args.run_name)
    if stopped.is_stopped(run):
        raise ClusterError(
            f"run {objects.name(run)}: is stopped; a stack adopts a run that exists; trainyard run resume "
            f"{objects.name(run)}, then this command again"
        )
    provider = args.provider or stopping.provider_urn(args.stack)
    print(stopping.import_file(stopping.objects_of(cluster, run), provider))
    return 0
