"""Production checks on workloads: GPU requests, image digests, run records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from infra.domain import naming
from ops import collect, objects
from ops.objects import Json
from ops.ready.jobs import CRON_JOBS
from ops.ready.outcome import Check
from ops.ready.production.snapshot import RowBuilder, StackSnapshot, abbreviate, containers
from ops.ready.stack_facts import CONFIG_MAPS
from ops.snapshot import pluralize
from training import spec
from trainyard import contract

RECORDS_MAX = 20
"""Number of newest runs whose records are read."""
_DIGEST = "@sha256:"


def gpu_scheduling(snapshot: StackSnapshot) -> Check:
    """Check that runs and templates request whole GPUs with equal limits."""
    notes = RowBuilder(area="GPU scheduling", check=f"Pods request {naming.GPU} correctly")
    runs = snapshot.runs()
    for missing in snapshot.unreadable(*collect.RUN_KINDS, collect.PODS):
        notes.add_unknown(missing)
    for item in [*runs, *snapshot.templates, *snapshot.all_teams(collect.PODS)]:
        for container in containers(item):
            if problem := _gpu_problem(container):
                notes.add_failure(
                    f"{objects.reference(item)}: container {container['name']}: {problem}",
                    "launch it from a run file: launchers set requests and limits",
                )
    asking = [item for item in [*runs, *snapshot.templates] if _gpu_limit(item)]
    idle = [item for item in runs if not _gpu_limit(item) and list(containers(item))]
    for item in idle:
        notes.add_failure(
            f"{objects.reference(item)}: no container requests {naming.GPU}",
            "launch it from a run file: launchers set requests and limits",
        )
    if asking:
        kinds = Counter(str(item["kind"]) for item in asking)
        counts = ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items()))
        notes.good.append(f"{counts}: requests equal limits, whole GPUs")
    elif not notes.bad:
        notes.add_unknown("nothing requests GPUs yet", "launch a run")
    return notes.row()


def _gpu_problem(container: Json) -> str:
    resources = container.get("resources") or {}
    asked = (resources.get("requests") or {}).get(naming.GPU)
    limit = (resources.get("limits") or {}).get(naming.GPU)
    if asked is None and limit is None:
        return ""
    if limit is None or (asked is not None and str(asked) != str(limit)):
        return f"it requests {asked} {naming.GPU} with a limit of {limit}"
    return ""


def _gpu_limit(item: Json) -> int:
    return sum(
        int(((one.get("resources") or {}).get("limits") or {}).get(naming.GPU, 0))
        for one in containers(item)
    )


def images(snapshot: StackSnapshot) -> Check:
    """Check that all team workloads reference images by digest."""
    notes = RowBuilder(area="Container image", check="Image versions are pinned")
    for missing in snapshot.unreadable(*collect.RUN_KINDS, CRON_JOBS, collect.PODS):
        notes.add_unknown(missing)
    used: Counter[str] = Counter()
    for item in _team_items(snapshot):
        for container in containers(item):
            image = str(container.get("image", ""))
            if _DIGEST in image:
                used[image] += 1
            else:
                notes.add_failure(
                    f"{objects.reference(item)}: container {container['name']} runs {image}",
                    "pin it by digest, REPOSITORY@sha256:DIGEST, under `images` in the stack file",
                )
    for image, number in used.most_common():
        repository, _, digest = image.partition(_DIGEST)
        notes.good.append(
            f"{repository}{_DIGEST}{digest[:12]}: {pluralize(number, 'container')} of it"
        )
    if not used and not notes.bad:
        notes.add_unknown("no team workload runs yet", "launch a run")
    return notes.row()


def _team_items(snapshot: StackSnapshot) -> Iterator[Json]:
    yield from snapshot.runs()
    yield from snapshot.templates
    for kind in (CRON_JOBS, collect.PODS):
        yield from snapshot.all_teams(kind)


def run_metadata(snapshot: StackSnapshot) -> Check:
    """Check that the record of each run has image, configuration and dataset."""
    notes = RowBuilder(
        area="Run metadata",
        check="Run ID, image digest, config hash, and dataset version are logged",
    )
    for missing in snapshot.unreadable(CONFIG_MAPS):
        notes.add_unknown(missing)
    records = {objects.name(one): one for one in snapshot.all_teams(CONFIG_MAPS)}
    # The groups of a run have one record.
    runs = list(
        {objects.label(run, naming.RUN_ID): run for run in reversed(snapshot.runs())}.values()
    )
    described = []
    for run in runs[: -RECORDS_MAX - 1 : -1]:
        run_id = objects.label(run, naming.RUN_ID)
        try:
            described.append(_describe_record(run_id, records))
        except ValueError as error:
            notes.add_failure(
                f"{objects.reference(run)}: {error}",
                "launch it from a run file, which creates the record",
            )
    if described:
        notes.good.extend(described[:3])
        notes.good.append(f"complete records of the newest runs: {len(described)}")
    elif not notes.bad:
        notes.add_unknown("there are no runs yet", "launch a run")
    return notes.row()


def _describe_record(run_id: str, records: dict[str, Json]) -> str:
    """Return a run's record in one line. Raises ValueError if a value is missing."""
    found = records.get(run_id)
    if found is None:
        raise ValueError(f"its record configmap/{run_id} is not found")
    record = spec.RunRecord.from_json((found.get("data") or {}).get(contract.RUN_RECORD_FILE, ""))
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
        raise ValueError(f"its record lacks {abbreviate(empty)}")
    return (
        f"{record.run_id}: {record.image_digest[:19]}, config {record.config_hash[:12]}, dataset"
        f" {record.dataset['name']} {record.dataset['version']}"
    )
