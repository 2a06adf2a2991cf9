"""Read a run file and the Platform record of its team, and render the run as `pulumi up` does."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pydantic
import yaml

from infra.domain import prices
from infra.domain.pools import NodePool
from infra.domain.published_record import VERSION, PublishedRecord
from infra.sections.errors import ConfigError, ConfigIssue, shown, within
from infra.sections.yaml_files import read_yaml
from ops.objects import Json
from ops.snapshot import pluralize
from training import job, lineage, placement, run_files, scheduler_checks, trainer_settings
from training.run_schema import RunFile
from training.spec import Launch, RunSpec


class RunFileError(Exception):
    """A run file or a setting of the command line has issues; the text has one line for each."""


@dataclass(frozen=True, kw_only=True)
class RunDocument:
    """One version of a run, as its file and the command line state it."""

    where: str
    """The file, as messages name it."""
    values: Mapping[str, Any]
    team: str
    root: Path
    """What its paths are relative to."""


@dataclass(frozen=True, kw_only=True)
class RenderedRun:
    """A run that has passed all checks of a preview."""

    run_id: str
    manifests: list[Json]
    """In the order of creation; the last is the run itself."""
    facts: list[str]
    """Warnings; its nodes, cost and limits; what is packed for it."""


def root_of(*places: Path) -> Path:
    """Return what paths of a run file are relative to: the top of the first repository that one of these is in.

    Without one: the first folder, or the folder of the first file.
    """
    for place in places:
        for one in (place, *place.parents):
            if (one / ".git").exists() or (one / "Pulumi.yaml").is_file():
                return one
    return places[0] if places[0].is_dir() else places[0].parent


def read(
    file: Path, settings: Sequence[str], root: Path | None = None, source: Path | None = None
) -> RunDocument:
    """Return the document of a run file with the highest version, with settings `KEY=VALUE` of the command line.

    `source`: see `changed`. Raises RunFileError.
    """
    path = file.resolve()
    root = root or root_of(path, Path.cwd())
    where = path.relative_to(root).as_posix() if path.is_relative_to(root) else str(file)
    try:
        documents = [one for one in read_yaml(path, where) if isinstance(one, dict)]
    except ConfigError as error:
        raise RunFileError(str(error)) from None
    if not documents:
        raise RunFileError(
            f"{where}: has no run; must be a run: name, version, ...; docs/submit-a-run.md has an example"
        )
    newest = max(documents, key=lambda one: one["version"] if _is_number(one) else 0)
    return changed(where, newest, settings, root, source)


def changed(
    where: str,
    document: Mapping[str, Any],
    settings: Sequence[str],
    root: Path,
    source: Path | None = None,
) -> RunDocument:
    """Return a document with settings `KEY=VALUE`. Raises RunFileError.

    `source`: folder that is packed in place of `program.source`, and that all paths are relative to.
    """
    if source is not None:
        if not source.is_dir():
            raise RunFileError(
                f"--source: got {shown(str(source))}; must be the folder of the program; correct it"
            )
        root, settings = source.resolve(), [*settings, "program.source=."]
    values = copy.deepcopy(dict(document))
    texts = dict(_assign(values, setting) for setting in settings)
    _keep_texts(values, texts)
    team = values.get("team")
    if not isinstance(team, str) or not team:
        raise RunFileError(f"{where}: team: got {shown(team)}; must be a team of the stack; add it")
    return RunDocument(where=where, values=values, team=team, root=root)


def _is_number(document: Mapping[str, Any]) -> bool:
    return isinstance(document.get("version"), int)


def _assign(values: dict[str, Any], setting: str) -> tuple[tuple[str, ...], str]:
    """Set one key, dotted below sections, to a value in YAML: nodes=4, overrides.optimizer.learning_rate=1e-4.

    Returns the keys and the value's text.
    """
    path, separator, text = setting.partition("=")
    keys = path.split(".")
    if not separator or not all(keys):
        raise RunFileError(
            f"--set: got {shown(setting)}; must be KEY=VALUE, such as nodes=4; correct it"
        )
    value = _yaml(text, yaml.SafeLoader)
    for key in keys[:-1]:
        if not isinstance(values.get(key), dict):
            values[key] = {}
        values = values[key]
    values[keys[-1]] = value
    return tuple(keys), text


def _keep_texts(values: dict[str, Any], texts: Mapping[tuple[str, ...], str]) -> None:
    """Take what YAML reads as a number, a date or the like as it stands where a run file requires text.

    Raises RunFileError for what is not YAML where it requires something else.
    """
    try:
        RunFile.read(values)
    except pydantic.ValidationError as error:
        wrong = [(one["loc"], one["type"]) for one in error.errors()]
    else:
        return
    for keys, text in texts.items():
        for place, kind in wrong:
            if place[: len(keys)] == keys and kind == "string_type":
                _replace(values, place, _text_at(text, place[len(keys) :]))
            elif place == keys and not _is_yaml(text):
                raise RunFileError(
                    f"--set: {'.'.join(keys)}: got {shown(text)}; must be a value in YAML; quote it"
                )


def _yaml(text: str, loader: type[yaml.SafeLoader | yaml.BaseLoader]) -> Any:
    """Return a value in YAML; the text itself if it is not YAML."""
    return yaml.load(text, loader) if _is_yaml(text) else text


def _is_yaml(text: str) -> bool:
    try:
        yaml.safe_load(text)
    except yaml.YAMLError:
        return False
    return True


def _text_at(text: str, place: Sequence[str | int]) -> Any:
    """Return the text of a part of a value, as it was written."""
    plain = _yaml(text, yaml.BaseLoader)  # every scalar is text
    for one in place:
        plain = plain[one]
    return plain if place or isinstance(plain, str) else text


def _replace(values: Any, place: Sequence[str | int], text: Any) -> None:
    for one in place[:-1]:
        values = values[one]
    values[place[-1]] = text


def render(document: RunDocument, record: PublishedRecord, user: str) -> RenderedRun:
    """Return the run for `user`, with all checks that a preview makes. Raises RunFileError."""
    platform, root = record.platform, document.root
    run, found = run_files.resolve(document.values, platform, record.images, root)
    if run is not None:
        found = [*found, *scheduler_checks.check_quota_of_all([(document.where, run)], platform)]
    if run is None or found:
        issues = within(document.where, (one for one in found if isinstance(one, ConfigIssue)))
        texts = [f"{document.where}: {one}" for one in found if isinstance(one, str)]
        raise RunFileError(str(ConfigError([*issues, *texts])))
    launch = Launch(dirty=lineage.launch(root).dirty, by=user)
    pools = placement.eligible_pools(run, platform)
    return RenderedRun(
        run_id=run.run_id,
        manifests=job.submitted(run, platform, lineage.origin(run, root), launch),
        facts=[
            *_other_version(record),
            *trainer_settings.config_warnings(run, platform),
            _cost(run, pools),
            *_packed(run, root),
        ],
    )


def _cost(run: RunSpec, pools: tuple[NodePool, ...]) -> str:
    """Return nodes, cost and limits in one line."""
    usd = placement.usd_per_hour(run, pools)
    price, limit = "cost per hour unknown", ""
    if usd is not None:
        dates = sorted({prices.dated(pool.region, pool.instance_types) for pool in pools})
        price = f"{usd:.2f} USD per hour at most (prices {'; '.join(dates)})"
    if run.max_hours is not None:
        limit = f"; ends after {run.max_hours:g} h"
        if usd is not None:
            limit += f", so at most {usd * run.max_hours:.2f} USD"
    cap = "" if run.cost_cap_usd is None else f" of its cap of {run.cost_cap_usd:g} USD"
    names = ", ".join(pool.name for pool in pools)
    return f"{run.run_id}: {pluralize(run.nodes, 'node')} of {names}; {price}{limit}{cap}"


def _other_version(record: PublishedRecord) -> Iterator[str]:
    if record.version not in ("", VERSION):
        yield f"warning: the stack is of trainyard {record.version}, and this client of {VERSION}"


def _packed(run: RunSpec, root: Path) -> Iterator[str]:
    source = run.program.source if run.program else None
    if source is None:
        return
    origin = lineage.origin(run, root)
    if not origin.startswith("sha256:"):
        origin = f"commit {origin[:12]}{' with changes' if source.dirty else ''}"
    size = f"{len(source.archive) / 1024:.1f} KiB"
    yield f"source: {(root / source.folder).resolve()}, {size} packed, {origin}"
