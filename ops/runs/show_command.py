"""`trainyard run show`."""

from __future__ import annotations

import argparse
import datetime as dt
import json
from collections.abc import Iterator, Mapping
from typing import Final

from rich.console import Console

from ops import metrics
from ops.cluster import Cluster
from ops.commands import Group, add_prometheus, printer
from ops.runs.columns import progress_text, state_text, table
from ops.runs.details import Details, PodRow, read_details
from ops.runs.gangs import GangSummary, groups_text
from ops.runs.scope import named_run
from ops.snapshot import format_duration

_GROUP_HEAD: Final = ("GROUP", "STATE", "POOL", "NODES", "ATTEMPT", "")


def add(commands: Group) -> None:
    command = commands.add(
        "show",
        run,
        "show a run: configuration, origin, pods, checkpoints, interruptions",
        [
            "run show hello                   # the newest run of this name",
            "run show hello-v2-0a1b2c3d --json",
        ],
    )
    add_run(command)
    command.add_argument("--json", action="store_true", help="print one JSON object")
    add_prometheus(command)


def add_run(command: argparse.ArgumentParser) -> None:
    command.add_argument("run_name", metavar="RUN", help="run id, or run name for its newest run")


def run(args: argparse.Namespace, cluster: Cluster, console: Console) -> int:
    found = named_run(args, cluster)
    now = dt.datetime.now(dt.UTC)
    details = read_details(cluster, found, metrics.connect(args.prometheus, cluster), now)
    if args.json:
        print(json.dumps(details.to_json(), indent=2))
        return 0
    show = printer(console)
    for line in lines(details, now):
        show(line)
    return 0


def lines(details: Details, now: dt.datetime) -> Iterator[str]:
    one = details.summary
    yield f"{one.run_id}  {state_text(one)}"
    facts = {
        "message": one.message,
        "team": one.team,
        "queue": f"{one.queue}, priority {one.priority}" if one.priority is not None else one.queue,
        "sweep": one.sweep,
        "object": details.reference,
        "created": _when(one.created, now),
        "admitted": _when(one.admitted, now) + (f" to {', '.join(one.pools)}" if one.pools else ""),
        "ended": _when(one.ended, now),
        "attempt": "" if one.groups else str(one.attempt or ""),
        "progress": _progress(details),
        "ends": _ends(details),
        "checkpoints": _checkpoints(details, now),
    }
    yield from _facts(facts)
    for title, found in (
        ("configuration", details.record.configuration),
        ("lineage", details.record.lineage),
    ):
        if found:
            yield f"{title}:"
            yield from _facts(found)
    if one.groups:
        yield f"groups: {groups_text(one.groups, one.groups_total)}; at least {one.groups_needed} needed"
        yield from (f"  {line}" for line in table([_GROUP_HEAD, *map(_group, one.groups)]))
    if details.pods:
        yield "pods:"
        head = ("POD", "RANK", "NODE", "POOL", "TYPE", "CAPACITY", "PHASE", "READY", "RESTARTS")
        yield from (f"  {line}" for line in table([head, *map(_pod, details.pods)]))
    if details.interruptions:
        yield "interruptions:"
        yield from (f"  {line}" for line in details.interruptions)
    if details.hidden:
        yield f"not readable with your role: {', '.join(details.hidden)}"
    yield from details.gaps


def _facts(found: Mapping[str, str]) -> Iterator[str]:
    known = {name: value for name, value in found.items() if value}
    width = max((len(name) for name in known), default=0)
    for name, value in known.items():
        yield f"  {name:{width}}  {value}"


def _when(stamp: str, now: dt.datetime) -> str:
    if not stamp:
        return ""
    seconds = (now - dt.datetime.fromisoformat(stamp.replace("Z", "+00:00"))).total_seconds()
    return f"{stamp} ({format_duration(seconds)} ago)"


def _progress(details: Details) -> str:
    at = details.summary.progress
    if at.step is None:
        return ""
    parts = [f"step {progress_text(details.summary)}"]
    if at.loss is not None:
        parts.append(f"loss {at.loss:.3f}")
    if at.tokens_per_s:
        parts.append(f"{at.tokens_per_s:,.0f} tokens/s")
    return ", ".join(parts)


def _ends(details: Details) -> str:
    left = details.summary.progress.seconds_left
    if left is None or details.summary.over:
        return ""
    return f"in about {format_duration(left)}, at the speed of the last minutes"


def _checkpoints(details: Details, now: dt.datetime) -> str:
    found = details.checkpoints
    if found.step is None:
        return found.place
    saved = f", {_when(found.saved, now)}" if found.saved else ""
    return f"{found.place}; newest: step {found.step}{saved}"


def _group(one: GangSummary) -> tuple[str, ...]:
    state = f"{one.state} {one.place} of {one.queued}" if one.place else one.state
    nodes = f"{one.ready}/{one.nodes}" if one.nodes else "-"
    return str(one.number), state, ", ".join(one.pools) or "-", nodes, str(one.attempt), one.message


def _pod(row: PodRow) -> tuple[str, ...]:
    return (
        row.name,
        "-" if row.rank is None else str(row.rank),
        *(text or "-" for text in (row.node, row.pool, row.instance_type, row.capacity, row.phase)),
        "yes" if row.ready else "no",
        str(row.restarts),
    )
