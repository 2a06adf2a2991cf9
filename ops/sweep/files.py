"""Load a run file with a section `sweep`: expand it to runs, and check all of them before any is submitted."""

from __future__ import annotations

import copy
import dataclasses
import math
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pydantic

from infra.domain.platform import Platform
from infra.sections.errors import (
    ConfigError,
    ConfigIssue,
    did_you_mean,
    from_pydantic,
    one_of,
    shown,
    within,
)
from infra.sections.yaml_files import read_yaml
from ops.sweep import checks as sweep_checks
from ops.sweep import space
from ops.sweep.space import Asha, Choice, Range, Scalar
from ops.sweep.state import SweepState, Trial
from trainer.config.settings import TrainerConfig
from training import placement, run_files
from training.run_schema import RangeSection, SweepSection
from training.spec import RunSpec

PRIORITY: Final = "best-effort-training"
"""Priority of runs of a sweep whose file names none: they yield to every other run."""
ENV: Final = "env."
"""Prefix of parameters that are variables of the run's own program."""
CURVE_POINTS: Final = 20
"""Values per run that are reported, at least, for its curve."""

_SCALARS: Final = (str, int, float, bool, type(None))
_Issues = list[ConfigIssue | str]


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """A sweep that can be submitted."""

    state: SweepState
    """Before anything was submitted."""
    runs: Mapping[str, RunSpec]
    """By run id."""
    asha: Asha | None
    """None: no run is stopped early."""


def load(file: Path, platform: Platform, references: Mapping[str, str], root: Path) -> Sweep:
    """Return the sweep of a run file. Raises ConfigError with all of its issues.

    `references`: images by name; `root`: the project, whose trainer configurations the runs use.
    """
    where = file.relative_to(root).as_posix() if file.is_relative_to(root) else str(file)
    documents = read_yaml(file, where)
    document = documents[0] if len(documents) == 1 else None
    if not isinstance(document, dict) or "sweep" not in document:
        raise ConfigError([_no_sweep(where)])
    sweep, issues = _sweep(document, platform, references, root)
    if sweep is None:
        named = (one for one in issues if isinstance(one, ConfigIssue))
        raise ConfigError(
            [
                *dict.fromkeys(within(where, named)),
                *(f"{where}: {one}" for one in issues if isinstance(one, str)),
            ]
        )
    return sweep


def _no_sweep(where: str) -> ConfigIssue:
    return ConfigIssue(
        path=where,
        code="no-sweep",
        problem="not one document with a section sweep",
        valid="must be one run with sweep: {method, parameters, ...}",
        action="add the section, or list the file in a stack's runs",
    )


def _sweep(
    document: dict[str, Any], platform: Platform, references: Mapping[str, str], root: Path
) -> tuple[Sweep | None, _Issues]:
    base = {key: value for key, value in document.items() if key != "sweep"}
    if "priority" not in base and PRIORITY in platform.priorities:
        base["priority"] = PRIORITY
    common, issues = run_files.resolve(base, platform, references, root)
    try:
        section = SweepSection.read(document["sweep"])
    except pydantic.ValidationError as error:
        found = from_pydantic(error, SweepSection)
        found += _unknown_names(document["sweep"], base)
        return None, [*issues, *(_below_sweep(one) for one in found)]
    parameters, wrong = _space(section)
    wrong += sweep_checks.check_section(section, parameters)
    wrong += _unknown_names(document["sweep"], base)
    issues += (_below_sweep(one) for one in wrong)
    if common is not None and common.groups:
        issues.append(_no_groups())
    if issues or common is None:
        return None, issues
    planned = common.config.get("steps", 0)
    sampled = space.expand(section.method, parameters, section.runs or 1, section.seed)
    trials, runs = [], {}
    for number, values in enumerate(sampled):
        run, found_here = run_files.resolve(
            _trial_document(base, section, values, number, planned), platform, references, root
        )
        if run is None:
            issues += found_here
            continue
        run = dataclasses.replace(run, sweep=f"{base['name']}-v{base['version']}")
        runs[run.run_id] = run
        trials.append(Trial(run_id=run.run_id, name=run.name, parameters=values))
    if issues:
        return None, issues
    state = _state(section, next(iter(runs.values())), base["name"], platform, trials)
    issues += (_below_sweep(one) for one in sweep_checks.check_budget(section, state))
    asha = section.asha
    stops = Asha(min_steps=asha.min_steps, reduction=asha.reduction) if asha else None
    return (None if issues else Sweep(state=state, runs=runs, asha=stops)), issues


def _no_groups() -> ConfigIssue:
    return ConfigIssue(
        path="groups",
        code="conflict",
        problem="runs of a sweep are single gangs",
        valid="must be absent with sweep",
        action="remove it",
    )


def _below_sweep(issue: ConfigIssue) -> ConfigIssue:
    return dataclasses.replace(issue, path=f"sweep.{issue.path}" if issue.path else "sweep")


def _state(
    section: SweepSection, run: RunSpec, name: str, platform: Platform, trials: Sequence[Trial]
) -> SweepState:
    pools = placement.eligible_pools(run, platform)
    return SweepState(
        sweep=run.sweep,
        name=name,
        team=run.team,
        method=section.method,
        metric=section.metric,
        maximize=section.goal == "maximize",
        parallel=section.parallel,
        usd_per_hour=placement.usd_per_hour(run, pools),
        max_hours=run.max_hours,
        cost_cap_usd=section.cost_cap_usd,
        trials=tuple(trials),
    )


def _space(section: SweepSection) -> tuple[dict[str, Choice | Range], list[ConfigIssue]]:
    """Return the values of each parameter that is well-formed, and the issues of the others."""
    found: dict[str, Choice | Range] = {}
    issues: list[ConfigIssue] = []
    for name, given in section.parameters.items():
        path = f"parameters.{name}"
        if isinstance(given, list) and given and all(isinstance(v, _SCALARS) for v in given):
            found[name] = Choice(tuple(given))
        elif isinstance(given, dict):
            try:
                one = RangeSection.read(given)
            except pydantic.ValidationError as error:
                wrong = from_pydantic(error, RangeSection)
                issues += (dataclasses.replace(w, path=f"{path}.{w.path}") for w in wrong)
                continue
            found[name] = Range(low=one.min, high=one.max, scale=one.scale, integer=one.integer)
        else:
            issues.append(
                ConfigIssue(
                    path=path,
                    code="wrong-type",
                    problem=f"{shown(given)} is not a set of values",
                    valid="must be a list of numbers, texts or booleans, or a range {min, max, scale, integer}",
                    action="correct it",
                )
            )
    return found, issues


def _unknown_names(section: Any, base: Mapping[str, Any]) -> Iterator[ConfigIssue]:
    """Parameters and a metric that the program does not have, in a section as written."""
    if not isinstance(section, Mapping):
        return
    if isinstance(parameters := section.get("parameters"), Mapping):
        yield from _unknown_parameters([str(name) for name in parameters], base)
    if isinstance(metric := section.get("metric"), str):
        yield from sweep_checks.check_metric(metric, base)


def _unknown_parameters(names: Sequence[str], base: Mapping[str, Any]) -> Iterator[ConfigIssue]:
    """Parameters that are no setting of the program: a misspelt one would give equal runs."""
    program = base.get("program")
    if isinstance(program, Mapping):
        variables = program.get("env")
        known = [f"{ENV}{name}" for name in variables] if isinstance(variables, Mapping) else []
        what, otherwise = "variables of program.env", "add it to program.env with a default"
    else:
        known = list(setting_paths(TrainerConfig))
        what, otherwise = "settings of the trainer's configuration", "correct it"
    for name in names:
        if name not in known:
            listed = f" ({one_of(known)})" if len(known) <= 10 else ""
            inside = next((one for one in known if one.startswith(f"{name}.")), None)
            yield ConfigIssue(
                path=f"parameters.{name}",
                code="unknown-parameter",
                problem="is a section" if inside else "is not in the configuration",
                valid=f"must be one of the {what}{listed}",
                action=f"name a setting in it, such as {inside}"
                if inside
                else did_you_mean(name, known, otherwise),
            )


def setting_paths(kind: type[pydantic.BaseModel], prefix: str = "") -> Iterator[str]:
    """Yield the dotted path of every scalar setting of a configuration."""
    for name, field in kind.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, pydantic.BaseModel):
            yield from setting_paths(field.annotation, f"{prefix}{name}.")
        elif typing.get_origin(field.annotation) is not tuple:
            yield f"{prefix}{name}"


def _trial_document(
    base: Mapping[str, Any],
    section: SweepSection,
    values: Mapping[str, Scalar],
    number: int,
    steps: int,
) -> dict[str, Any]:
    """Return the run file of one run: the common part with its own name and its own settings.

    `steps`: those of the common part.
    """
    document: dict[str, Any] = copy.deepcopy(dict(base))
    document["name"] = f"{base['name']}-{number:03d}"
    if "program" in document:
        for name, value in values.items():
            document["program"]["env"][name.removeprefix(ENV)] = _text(value)
        return document
    overrides = document.setdefault("overrides", {})
    for name, value in values.items():
        _assign(overrides, name, value)
    # At every rung, else often enough for a curve.
    every = section.asha.min_steps if section.asha else max(1, math.ceil(steps / CURVE_POINTS))
    _assign(overrides, "report.metric_lines_every", every)
    return document


def _assign(settings: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for name in parents:
        if not isinstance(settings.get(name), dict):
            settings[name] = {}
        settings = settings[name]
    settings[last] = value


def _text(value: Scalar) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)
