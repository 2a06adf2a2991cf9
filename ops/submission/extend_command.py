"""`trainyard run extend`."""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from ops import collect, objects
from ops.cluster import Cluster, ClusterError
from ops.collect import CONFIG_MAPS
from ops.commands import Group, printer
from ops.objects import Json
from ops.runs import record as run_record
from ops.runs import states
from ops.runs.scope import read_in_scope
from ops.submission import command, extension, stopping
from ops.submission.extension import Extension

if TYPE_CHECKING:
    from ops.submission.render import RenderedRun


def add(commands: Group) -> None:
    extend = commands.add(
        "extend",
        _extend,
        "continue a finished run to more steps, as its next version",
        [
            "run extend hello --steps 400",
            "run extend hello --steps 400 --set overrides.schedule.kind=constant",
        ],
    )
    command.add_run(extend)
    extend.add_argument(
        "--steps",
        type=int,
        required=True,
        metavar="N",
        help="steps of the whole run; more than it has",
    )
    command.add_launch_options(extend)


def _extend(args: argparse.Namespace, cluster: Cluster, console: Console) -> int:
    from ops.submission import render

    show = printer(console)
    known = read_in_scope(args, cluster, lambda space: collect.list_runs(cluster, space))
    run = collect.find_run(known, args.run_name)
    _check_finished(run)
    data = _config_map(cluster, run)
    planned = extension.plan(objects.name(run), data, args.steps)
    settings = planned.settings(command.next_version(known, run))
    values = stopping.run_file_of(cluster, str(objects.meta(run)["namespace"]), objects.name(run))
    if values is None:
        for line in _advice(planned, settings):
            show(line)
        return 1
    given = [f"{key}={value}" for key, value in settings.items()]
    try:
        document = render.changed(
            f"extension of {objects.name(run)}",
            values,
            [*given, *args.settings],
            render.root_of(Path.cwd()),
        )
    except render.RunFileError as error:
        print(error, file=sys.stderr)
        return 1
    explain = functools.partial(_explain, planned, data)
    return command.launch(args, cluster, console, document, explain)


def _check_finished(run: Json) -> None:
    """Raise ClusterError for a run that has not finished."""
    name = objects.name(run)
    ending = states.ending_of(run)
    if ending and ending.state == states.FINISHED:
        return
    if ending and ending.state == states.FAILED:
        raise ClusterError(
            f"run {name}: has failed; must have finished; trainyard run why {name} explains it, and trainyard run "
            "clone starts it anew"
        )
    if ending:
        raise ClusterError(
            f"run {name}: is stopped; must have finished; trainyard run resume {name} continues it"
        )
    raise ClusterError(
        f"run {name}: has not ended; must have finished; trainyard run wait {name} follows it to its end"
    )


def _config_map(cluster: Cluster, run: Json) -> Json:
    name = objects.name(run)
    found = cluster.get(CONFIG_MAPS, name, str(objects.meta(run)["namespace"]))
    if found is None:
        raise ClusterError(
            f"run {name}: its ConfigMap does not exist; submit its run file with continues: {name}, a higher "
            "version and more steps"
        )
    return dict(found.get("data") or {})


def _explain(planned: Extension, data: Json, rendered: RenderedRun) -> Sequence[str]:
    """Return what the rendered extension will do, compared with the finished run."""
    own = next(
        one
        for one in rendered.manifests
        if one["kind"] == "ConfigMap" and objects.name(one) == rendered.run_id
    )
    now = extension.read_config(rendered.run_id, own["data"])
    views = run_record.parse(data), run_record.parse(own["data"])
    return [*planned.lines(now), *extension.changed(*views)]


def _advice(planned: Extension, settings: dict[str, str]) -> Sequence[str]:
    """Return which lines of a stack's run file to change."""
    text = [
        f"{planned.run_id}: a stack deployed it, so its run file decides; nothing was submitted",
        "add a document to the run file, after a line ---: a copy of that run's, in which you set:",
    ]
    nested = settings.pop("overrides.steps")
    text += [f"  {key}: {value}" for key, value in settings.items()]
    text += ["  overrides:", f"    steps: {nested}"]
    text.append("then pulumi up. The new version")
    return [*text, *(f"- {line}" for line in planned.lines(planned.before))]
