"""`trainyard run fetch`: what a run has written, in a local folder."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Final

from rich.console import Console

from infra.domain import naming
from ops import objects
from ops.cluster import Cluster, ClusterError
from ops.commands import Group, printer
from ops.data import command, copying, pod
from ops.runs import record
from ops.runs.scope import named_run
from ops.runs.show_command import add_run
from trainyard.contract import CHECKPOINT_MOUNT
from trainyard.store.interface import parse_step
from trainyard.store.manifest import UnknownFormat
from trainyard.store.posix import PosixStore

CHECKPOINTS: Final = "checkpoints"
EXPORT: Final = "export"
_MANIFEST: Final = "manifest.json"
_EXAMPLES: Final = (
    "run fetch hello                        # metrics, events, export and the newest checkpoint",
    "run fetch hello --step 120 --to copies",
    "run fetch hello --metrics              # small files only",
    "run fetch hello --export",
)

File = tuple[str, int]
"""Path below the volume's root, and bytes."""


def add(commands: Group) -> None:
    fetch = commands.add(
        "fetch", _fetch, "copy what a run has written to this machine, verified", _EXAMPLES
    )
    add_run(fetch)
    command.add_to(fetch)
    what = fetch.add_mutually_exclusive_group()
    what.add_argument("--step", type=int, metavar="N", help="this checkpoint; default the newest")
    what.add_argument("--all", action="store_true", help="all checkpoints")
    what.add_argument("--metrics", action="store_true", help="neither checkpoints nor the export")
    what.add_argument("--export", action="store_true", help="the export only")


def _fetch(args: argparse.Namespace, cluster: Cluster, console: Console) -> int:
    run = named_run(args, cluster)
    run_id = objects.run_id_of(run)
    args.team = str(objects.meta(run)["namespace"]).removeprefix(naming.namespace(""))
    show = printer(console)
    if store := record.read_record(cluster, run).store:
        show(f"checkpoints are in {store}; copy them with your own access: aws s3 cp --recursive")
    with pod.connected(args, cluster, CHECKPOINT_MOUNT, show) as channel:
        listed = [(str(path), int(size)) for path, size, _ in channel.ask("list", run_id)["files"]]
        files = choose(listed, run_id, args)
        show(f"{run_id}: {len(files)} files, {command.size(sum(size for _, size in files))}")
        done = copying.get(channel, files, args.to, command.reporter(show))
    show(f"{args.to / run_id}: {command.summary('copied', done)}")
    return _verified(args, run_id, steps_of(files, run_id), console)


def choose(listed: Iterable[File], run_id: str, args: argparse.Namespace) -> list[File]:
    """Return the files that the options name. Pure. Raises ClusterError if there are none."""
    every = [one for one in listed if "/." not in one[0]]  # caches, and what is unfinished
    complete = sorted(steps_of([one for one in every if one[0].endswith(_MANIFEST)], run_id))
    if args.export:
        chosen = [one for one in every if one[0].startswith(f"{run_id}/{EXPORT}/")]
        missing = "an export; set checkpoint.export: true in its configuration"
    elif args.step is not None:
        chosen = [one for one in every if _step(one[0], run_id) == args.step]
        names = ", ".join(map(str, complete)) or "none"
        missing = f"a complete checkpoint of step {args.step}; complete: {names}"
        chosen = chosen if args.step in complete else []
    else:
        wanted = set() if args.metrics else set(complete if args.all else complete[-1:])
        chosen = [
            one
            for one in every
            if (step := _step(one[0], run_id)) in wanted
            or (
                # Unfinished checkpoints are nobody's.
                (step is None and not one[0].startswith(f"{run_id}/{CHECKPOINTS}/"))
                and not (args.metrics and one[0].startswith(f"{run_id}/{EXPORT}/"))
            )
        ]
        missing = "files yet"
    if not chosen:
        raise ClusterError(f"{run_id}: has not {missing}")
    return chosen


def steps_of(files: Iterable[File], run_id: str) -> set[int]:
    return {step for path, _ in files if (step := _step(path, run_id)) is not None}


def _step(path: str, run_id: str) -> int | None:
    parts = path.split("/")
    return parse_step(parts[2]) if len(parts) > 3 and parts[:2] == [run_id, CHECKPOINTS] else None


def _verified(
    args: argparse.Namespace, run_id: str, steps: Sequence[int] | set[int], console: Console
) -> int:
    """Compare checkpoints with their manifests; return 0, or 1 if one is damaged or cannot be verified."""
    show = printer(console)
    store = PosixStore(args.to / run_id / CHECKPOINTS)
    try:
        wrong = {step: found for step in sorted(steps) if (found := store.verify(step))}
    except UnknownFormat as error:
        show(f"copied, but not verified: {error}")
        return 1
    for step, found in wrong.items():
        for line in found:
            show(f"checkpoint of step {step}: {line}")
    if wrong:
        show("They are damaged on the team's volume, too: fetch another with --step")
        return 1
    if steps:
        show(
            f"verified against their manifests: checkpoints of step {', '.join(map(str, sorted(steps)))}"
        )
    return 0
