"""`trainyard run extend`."""

from __future__ import annotations

import argparse
import functools
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
from ops.submission import command, stopping

if TYPE_CHECKING:
    from ops.submission.render import RenderedRun
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from ops.runs.record import RunRecordView
from trainer import config as trainer_config
from trainer.config.settings import TrainerConfig
from trainer.config_errors import ConfigError
from trainer.schedule import learning_rate
from trainyard.contract import TRAINER_CONFIG_FILE


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
    planned = plan(objects.name(run), data, args.steps)
    settings = planned.settings(command.next_version(known, run))
    values = stopping.run_file_of(cluster, str(objects.meta(run)["namespace"]), objects.name(run))
    if values is None:
        for line in _advice(planned, settings):
            show(line)
        return 1
    given = [f"{key}={value}" for key, value in settings.items()]
    where, root = f"extension of {objects.name(run)}", render.root_of(Path.cwd())
    return command.launch(
        args,
        cluster,
        console,
        lambda: render.changed(where, values, [*given, *args.settings], root),
        functools.partial(_explain, planned, data),
    )


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
    now = read_config(rendered.run_id, own["data"])
    views = run_record.parse(data), run_record.parse(own["data"])
    return [*planned.lines(now), *changed(*views)]


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


@dataclass(frozen=True, kw_only=True)
class Extension:
    """A finished run and the number of steps that it gets."""

    run_id: str
    before: TrainerConfig
    """Of the finished run."""
    steps: int

    def settings(self, version: int) -> dict[str, str]:
        """Return the keys of the run file that change, dotted below sections."""
        # A store in S3 belongs to both versions: the new one finds the checkpoints there.
        stored = {} if self.before.checkpoint.store else {"continues": self.run_id}
        return {"version": str(version), **stored, "overrides.steps": str(self.steps)}

    def lines(self, now: TrainerConfig) -> list[str]:
        """Return what the extension does, and why its losses cannot be those of a longer run, if so."""
        schedule, done = now.schedule, self.before.steps
        first = (
            f"continues {self.run_id} from its last checkpoint, step {done}, to step {self.steps}"
        )
        if schedule == self.before.schedule and _is_flat(now):
            return [
                first,
                f"schedule {schedule.kind}: equal settings give the losses of a run that had {self.steps} steps "
                "from the start",
            ]
        peak = now.peak_learning_rate
        ended = learning_rate(
            self.before.schedule, self.before.peak_learning_rate, done, self.before.steps
        )
        goes_on = learning_rate(schedule, peak, done + 1, self.steps)
        return [
            first,
            f"not exact: the {self.before.schedule.kind} schedule of the finished run ended at step {done}; its "
            f"losses will not be those of a run that had {self.steps} steps from the start",
            f"instead the learning rate goes from {ended:.3g} at step {done} to {goes_on:.3g} at step {done + 1}, "
            f"where the {schedule.kind} schedule of {self.steps} steps has it; "
            "--set overrides.schedule.kind=constant keeps the peak",
        ]


def _is_flat(config: TrainerConfig) -> bool:
    """Whether the learning rate of a step does not depend on the number of steps."""
    return config.schedule.kind == "constant" or config.schedule.final_fraction == 1


def plan(run_id: str, found: Mapping[str, str], steps: int) -> Extension:
    """Return the extension of a run. `found`: the data of its ConfigMap. Raises ClusterError."""
    before = read_config(run_id, found)
    if steps <= before.steps:
        raise ClusterError(
            f"--steps: got {steps}; must be more than the {before.steps} steps of {run_id}; raise it"
        )
    return Extension(run_id=run_id, before=before, steps=steps)


def read_config(run_id: str, found: Mapping[str, str]) -> TrainerConfig:
    """Return the trainer's configuration in a run's ConfigMap. Raises ClusterError."""
    text = found.get(TRAINER_CONFIG_FILE)
    if text is None:
        raise ClusterError(
            f"run {run_id}: its program decides how long it trains; `extend` requires the built-in trainer; "
            "clone it with another program.command"
        )
    values: dict[str, Any] = yaml.safe_load(text)
    data = values.get("data")
    # The pods get the path of the dataset on their command line.
    data = {**(data if isinstance(data, dict) else {}), "path": "/data"}
    try:
        return trainer_config.parse(values | {"data": data}, f"run {run_id}")
    except ConfigError as error:
        raise ClusterError(
            f"{error}; client and run must be of the same release; check out the run's commit"
        ) from None


def changed(old: RunRecordView, new: RunRecordView) -> list[str]:
    """Return a line with what differs between a run and its extension besides the steps; none if nothing does."""
    expected = {"config.steps", "continues", "config.schedule.kind"}
    known = old.configuration, new.configuration
    pairs = {
        key: tuple(one.get(key, "-") for one in known)
        for key in sorted(known[0].keys() | known[1].keys())
        if key not in expected
    }
    pairs["image_digest"] = tuple(one.lineage.get("image_digest", "-") for one in (old, new))
    differing = [f"{key}: {was}, now {now}" for key, (was, now) in pairs.items() if was != now]
    if not differing:
        return []
    return [
        f"warning: differs from {old.record.get('run_id')}, so its losses may, too: {'; '.join(differing)}"
    ]
