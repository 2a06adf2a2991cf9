"""`trainyard data put|list|get|remove`: files on the team's data volume."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import re
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from infra.domain import naming
from ops import collect, groups, objects
from ops.cluster import Cluster, ClusterError, ForbiddenError
from ops.collect import CONFIG_MAPS
from ops.commands import Group, add_yes, confirm, printer
from ops.data import copying, pod
from ops.data.copying import Copied, Progress
from ops.dev import sessions
from ops.runs import states
from ops.runs.columns import table
from trainyard.contract import DATA_MOUNT

EXAMPLES: Final = (
    "data put corpus/ web           # to /data/web of the team; run again, it continues",
    "data list                      # what is there, and which runs use it",
    "data list web",
    "data get web --to copies       # into copies/web",
    "data remove web",
)
_REPORT_S: Final = 5.0
"""Seconds between lines of progress."""


def add(commands: Group) -> None:
    put = commands.add("put", _put, "copy a file or folder to the team's data volume", EXAMPLES[:1])
    put.add_argument("source", type=Path, metavar="SOURCE", help="file or folder on this machine")
    put.add_argument(
        "target", nargs="?", metavar="NAME", help="path below /data; default: SOURCE's name"
    )
    put.add_argument("--force", action="store_true", help="replace files that differ")
    shown = commands.add("list", _list, "list the team's data", EXAMPLES[1:3])
    shown.add_argument("path", nargs="?", default="", metavar="PATH", help="folder below /data")
    shown.add_argument("--json", action="store_true", help="print one JSON object")
    got = commands.add("get", _get, "copy a file or folder from the data volume", EXAMPLES[3:4])
    got.add_argument("path", metavar="PATH", help="file or folder below /data")
    got.add_argument("--force", action="store_true", help="replace local files that differ")
    add_to(got)
    removed = commands.add("remove", _remove, "delete a file or folder of the data", EXAMPLES[4:])
    removed.add_argument("path", metavar="PATH", help="file or folder below /data")
    add_yes(removed)


def add_to(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--to",
        type=Path,
        default=Path(),
        metavar="FOLDER",
        help="local folder; default the current one",
    )


def reporter(show: Callable[[str], None]) -> Progress:
    """Return a function that prints how far a copy is, a line every few seconds."""
    began = told = time.monotonic()

    def report(done: int, whole: int) -> None:
        nonlocal told
        now = time.monotonic()
        if now - told >= _REPORT_S:
            told = now
            rate = done / max(now - began, 0.001)
            show(f"  {size(done)} of {size(whole)}, {size(rate)}/s")

    return report


def size(count: float) -> str:
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.2f} {unit}"
    return f"{count:.0f} B"


def summary(verb: str, done: Copied) -> str:
    same = f"; {done.same} were there already" if done.same else ""
    return f"{verb} {done.files} files, {size(done.bytes)}, each verified by SHA-256{same}"


def _path(text: str, option: str) -> str:
    """Return a path below /data without a slash at its ends. Raises ClusterError."""
    text = text.removeprefix(f"{DATA_MOUNT}/").rstrip("/")
    parts = text.split("/")
    if not text or text.startswith("/") or any(part in ("", ".", "..") for part in parts):
        raise ClusterError(
            f"{option}: got {text!r}; must be a path below {DATA_MOUNT} without . and .., such as web/train; "
            "correct it"
        )
    return text


def _put(args: argparse.Namespace, cluster: Cluster, console: Console) -> int:
    target = _path(args.target or args.source.resolve().name, "NAME")
    files = copying.local_files(args.source, target)
    show = printer(console)
    with pod.connected(args, cluster, DATA_MOUNT, show) as channel:
        done = copying.put(channel, files, args.force, reporter(show))
    show(f"{DATA_MOUNT}/{target}: {summary('copied', done)}")
    show(
        f"Next: `dataset: {{source: {DATA_MOUNT}/{target}, ...}}` in a run file, or trainyard data list"
    )
    return 0


def _list(args: argparse.Namespace, cluster: Cluster, console: Console) -> int:
    path = _path(args.path, "PATH") if args.path.strip("/") else ""
    show = printer(Console(stderr=True) if args.json else console)
    with pod.connected(args, cluster, DATA_MOUNT, show) as channel:
        entries = channel.ask("folders", path)["entries"]
    where = f"{path}/" if path else ""
    runs = _runs(cluster, sessions.team_of(args))
    rows = [_entry(one, users(runs, f"{DATA_MOUNT}/{where}{one[0]}")) for one in entries]
    if args.json:
        print(json.dumps({"path": f"{DATA_MOUNT}/{path}".rstrip("/"), "entries": rows}, indent=2))
        return 0
    head = ("NAME", "FILES", "SIZE", "CHANGED", "USED BY")
    lines = table([head, *(_row(one) for one in rows)]) if rows else ["no files"]
    for line in lines:
        printer(console)(line)
    return 0


def _entry(found: Sequence[Any], used_by: list[str]) -> dict[str, Any]:
    name, is_folder, files, count, newest = found
    changed = objects.stamp(dt.datetime.fromtimestamp(newest, dt.UTC))
    return {
        "name": f"{name}/" if is_folder else name,
        "files": files,
        "bytes": count,
        "changed": changed if files else None,
        "usedBy": used_by,
    }


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    used = ", ".join(one["usedBy"]) or "-"
    return one["name"], str(one["files"]), size(one["bytes"]), one["changed"] or "-", used


def _get(args: argparse.Namespace, cluster: Cluster, console: Console) -> int:
    path = _path(args.path, "PATH")
    show = printer(console)
    with pod.connected(args, cluster, DATA_MOUNT, show) as channel:
        files = [(name, count) for name, count, _ in channel.ask("list", path)["files"]]
        if not files:
            raise ClusterError(
                f"{DATA_MOUNT}/{path}: has no files; trainyard data list shows what is there"
            )
        done = copying.get(channel, files, args.to, reporter(show), replace=args.force)
    show(f"{args.to / path}: {summary('copied', done)}")
    return 0


def _remove(args: argparse.Namespace, cluster: Cluster, console: Console) -> int:
    path = _path(args.path, "PATH")
    place, team = f"{DATA_MOUNT}/{path}", sessions.team_of(args)
    if used := users(_runs(cluster, team), place):
        print(
            f"{place}: read by {', '.join(used)}; must not be used by a run that has not ended; stop them first: "
            f"trainyard run stop {used[0]}",
            file=sys.stderr,
        )
        return 1
    confirm(args, f"{place} of team {team}: delete it")
    show = printer(console)
    with pod.connected(args, cluster, DATA_MOUNT, show) as channel:
        gone = channel.ask("remove", path)
    show(f"{place}: removed {gone['files']} files, {size(gone['bytes'])}")
    return 0


def _runs(cluster: Cluster, team: str) -> dict[str, str]:
    """Return object and ConfigMap as text of each run that has not ended, or can be resumed, by run id."""
    found: dict[str, str] = {}
    namespace = naming.namespace(team)
    try:
        for run in collect.list_runs(cluster, namespace):
            ending = states.ending_of(run)
            if ending and ending.cause is not states.Cause.USER:
                continue
            run_id = objects.run_id_of(run)
            config = cluster.get(CONFIG_MAPS, run_id, namespace) or {}
            specs = [gang.get("spec") for gang in groups.gangs(run)]
            found[run_id] = json.dumps([specs, list((config.get("data") or {}).values())])
    except ForbiddenError as error:
        raise ClusterError(f"team {team}: {error}; which runs use the data must be known") from None
    return found


def users(runs: dict[str, str], place: str) -> list[str]:
    """Return the ids of the runs whose settings name a path, something in it, or a folder around it. Pure."""
    parts = place.split("/")
    around = ["/".join(parts[:n]) for n in range(3, len(parts))]
    found = re.compile(
        "|".join(
            [rf"{re.escape(place)}(?![\w.-])", *(rf"{re.escape(one)}(?![\w./-])" for one in around)]
        )
    )
    return sorted(run_id for run_id, text in runs.items() if found.search(text))
