"""Rows on what runs: GPUs asked for as they must be, images by digest, records complete."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from infra.domain import naming
from ops import collect, objects
from ops.checklist.snapshot import Notes, Observed, containers, some
from ops.objects import Json
from ops.ready.jobs import CRON_JOBS
from ops.ready.outcome import Row
from ops.ready.stack_facts import CONFIG_MAPS
from ops.snapshot import counted
from training import spec

RECORDS = 20
"""Runs whose records are read: the newest."""
_DIGEST = "@sha256:"


def gpu_scheduling(observed: Observed) -> Row:
    """Runs and templates that use GPUs request them, whole, with equal limits."""
    notes = Notes(area="GPU scheduling", check=f"Pods request {naming.GPU} correctly")
    runs = observed.runs()
    for missing in observed.unseen(*collect.RUN_KINDS, collect.PODS):
        notes.doubts(missing)
    for item in [*runs, *observed.templates, *observed.all_teams(collect.PODS)]:
        for container in containers(item):
            if problem := _gpu_problem(container):
                notes.fails(
                    f"{objects.reference(item)}: container {container['name']}: {problem}",
                    "launch it from a run file; launchers write both",
                )
    asking = [item for item in [*runs, *observed.templates] if _gpus(item)]
    idle = [item for item in runs if not _gpus(item) and list(containers(item))]
    for item in idle:
        notes.fails(
            f"{objects.reference(item)}: no container requests {naming.GPU}",
            "launch it from a run file; launchers write both",
        )
    if asking:
        kinds = Counter(str(item["kind"]) for item in asking)
        told = ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items()))
        notes.good.append(f"{told}: requests equal limits, whole GPUs")
    elif not notes.bad:
        notes.doubts("nothing here asks for GPUs yet", "launch a run")
    return notes.row()


def _gpu_problem(container: Json) -> str:
    resources = container.get("resources") or {}
    asked = (resources.get("requests") or {}).get(naming.GPU)
    limit = (resources.get("limits") or {}).get(naming.GPU)
    if asked is None and limit is None:
        return ""
    if limit is None or (asked is not None and str(asked) != str(limit)):
        return f"it requests {asked} {naming.GPU} and is limited to {limit}"
    return ""


def _gpus(item: Json) -> int:
    return sum(
        int(((one.get("resources") or {}).get("limits") or {}).get(naming.GPU, 0))
        for one in containers(item)
    )


def images(observed: Observed) -> Row:
    """Everything that runs for teams names its image by digest."""
    notes = Notes(area="Container image", check="Image versions are pinned")
    for missing in observed.unseen(*collect.RUN_KINDS, CRON_JOBS, collect.PODS):
        notes.doubts(missing)
    used: Counter[str] = Counter()
    for item in _all(observed):
        for container in containers(item):
            image = str(container.get("image", ""))
            if _DIGEST in image:
                used[image] += 1
            else:
                notes.fails(
                    f"{objects.reference(item)}: container {container['name']} runs {image}",
                    "name it by digest: REPOSITORY@sha256:DIGEST, under `images` in the stack file",
                )
    for image, number in used.most_common():
        repository, _, digest = image.partition(_DIGEST)
        notes.good.append(
            f"{repository}{_DIGEST}{digest[:12]}: {counted(number, 'container')} of it"
        )
    if not used and not notes.bad:
        notes.doubts("nothing of a team runs yet", "launch a run")
    return notes.row()


def _all(observed: Observed) -> Iterator[Json]:
    yield from observed.runs()
    yield from observed.templates
    for kind in (CRON_JOBS, collect.PODS):
        yield from observed.all_teams(kind)


def run_metadata(observed: Observed) -> Row:
    """The record of each run names image, configuration and dataset."""
    notes = Notes(
        area="Run metadata",
        check="Run ID, image digest, config hash, and dataset version are logged",
    )
    for missing in observed.unseen(CONFIG_MAPS):
        notes.doubts(missing)
    records = {objects.name(one): one for one in observed.all_teams(CONFIG_MAPS)}
    runs = observed.runs()
    told = []
    for run in runs[:RECORDS]:
        run_id = objects.label(run, naming.RUN_ID)
        try:
            told.append(_record(run_id, records))
        except ValueError as error:
            notes.fails(
                f"{objects.reference(run)}: {error}",
                "launch it from a run file; the record comes with it",
            )
    if told:
        notes.good.extend(told[:3])
        notes.good.append(f"complete records: {len(told)}, of the newest runs")
    elif not notes.bad:
        notes.doubts("there is no run yet", "launch a run")
    return notes.row()


def _record(run_id: str, records: dict[str, Json]) -> str:
    """A run's record in a line. Raises ValueError where something is missing."""
    found = records.get(run_id)
    if found is None:
        raise ValueError(f"configmap/{run_id}, its record, is not there")
    record = spec.RunRecord.from_json((found.get("data") or {}).get(spec.RUN_RECORD_FILE, ""))
    empty = [
        name
        for name, value in (
            ("run_id", record.run_id),
            ("image_digest", record.image_digest),
            ("config_hash", record.config_hash),
            ("dataset.version", record.dataset.get("version")),
        )
        if not value
    ]
    if empty:
        raise ValueError(f"its record does not tell {some(empty)}")
    return (
        f"{record.run_id}: {record.image_digest[:19]}, config {record.config_hash[:12]}, dataset"
        f" {record.dataset['name']} {record.dataset['version']}"
    )
