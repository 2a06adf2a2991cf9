"""What a run's ConfigMap records: its configuration and its origin."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from ops import concurrent, objects
from ops.cluster import Cluster, ClusterError, ForbiddenError
from ops.collect import CONFIG_MAPS
from ops.objects import Json
from trainyard.contract import RUN_RECORD_FILE, TRAINER_CONFIG_FILE

_LINEAGE: Final = (
    *("git_commit", "dirty", "launched_by", "launched_at", "stack", "image_digest", "config_hash"),
    *("hyperparameter_hash", "job_spec_revision", "program.source"),
)
"""Keys of run.json that say where a run comes from, not what it does."""
_IDENTITY: Final = ("run_id", "name", "version", "team", "checkpoint_path", "grace", "image")
"""Keys that are neither: in the run's id, or derived from others."""


@dataclass(frozen=True, kw_only=True)
class RunRecordView:
    """Flat settings by dotted key: `config.batch.global_samples`, `nodes`, `program.command`."""

    record: Mapping[str, Any] = field(default_factory=dict)
    """run.json as it is."""
    configuration: Mapping[str, str] = field(default_factory=dict)
    lineage: Mapping[str, str] = field(default_factory=dict)
    gap: str = ""
    """Why it is not known; empty if it is."""

    @property
    def store(self) -> str:
        """`s3://BUCKET/PREFIX` that its checkpoints go to; empty: the team's volume."""
        return self.configuration.get("config.checkpoint.store", "")

    @property
    def planned_steps(self) -> int | None:
        """Steps of the trainer's configuration; None for other programs."""
        steps = self.configuration.get("config.steps", "")
        return int(steps) if steps.isdigit() else None

    @property
    def ranks_per_node(self) -> int:
        return int(self.record.get("processes_per_node") or 1)


def node_of_rank(cluster: Cluster, run: Json, rank: int, called: str) -> int:
    """Return the rank of a rank's node. `called`: what names the rank in messages. Raises ClusterError."""
    if rank == 0:
        return 0
    found = read_record(cluster, run)
    if found.gap:
        raise ClusterError(f"{called}: {found.gap}; without it only rank 0 can be found")
    world = int(found.record.get("world_size") or 1)
    if rank >= world:
        raise ClusterError(f"{called}: got {rank}; the run has ranks 0 to {world - 1}")
    return rank // found.ranks_per_node


def read_records(
    cluster: Cluster, runs: Iterable[Json], deadline_s: float
) -> dict[str, RunRecordView]:
    """Read the ConfigMaps of runs, by run id; what cannot be read is in `gap`."""
    ids = {objects.run_id_of(one): functools.partial(read_record, cluster, one) for one in runs}
    came = concurrent.gather_with_deadline(ids, deadline_s)
    found = {}
    for run_id in ids:
        answer = came.get(run_id, ClusterError("no answer in time"))
        missing = RunRecordView(gap=f"configuration: {answer}")
        found[run_id] = missing if isinstance(answer, ClusterError) else answer
    return found


def read_record(cluster: Cluster, run: Json) -> RunRecordView:
    """Read the ConfigMap of a run; what cannot be read is in `gap`."""
    name, namespace = objects.run_id_of(run), str(objects.meta(run).get("namespace"))
    try:
        found = cluster.get(CONFIG_MAPS, name, namespace)
    except ForbiddenError:
        return RunRecordView(gap="configuration: ConfigMaps are not readable with your role")
    if found is None:
        return RunRecordView(gap=f"configuration: configmap/{name} does not exist")
    return parse(found.get("data") or {})


def parse(data: Mapping[str, str]) -> RunRecordView:
    try:
        record = json.loads(data.get(RUN_RECORD_FILE, "{}"))
        config = yaml.safe_load(data.get(TRAINER_CONFIG_FILE, "{}"))
    except (ValueError, yaml.YAMLError) as error:
        why = " ".join(str(error).split())
        return RunRecordView(gap=f"configuration: the run's ConfigMap is not readable: {why}")
    if not isinstance(record, dict):
        return RunRecordView(gap=f"configuration: {RUN_RECORD_FILE} is not a mapping")
    flat = dict(_flat("", record)) | dict(_flat("config", config or {}))
    return RunRecordView(
        record=record,
        configuration={k: v for k, v in flat.items() if not _in(k, (*_LINEAGE, *_IDENTITY))},
        lineage={k: v for k, v in flat.items() if _in(k, _LINEAGE)},
    )


def _in(key: str, prefixes: tuple[str, ...]) -> bool:
    return any(key == one or key.startswith(f"{one}.") for one in prefixes)


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _flat(f"{prefix}.{name}" if prefix else str(name), inner)
    elif isinstance(value, str):
        yield prefix, value
    else:
        yield prefix, json.dumps(value)


def differences(
    records: Mapping[str, Mapping[str, str]],
) -> dict[str, dict[str, str]]:
    """Return by key the value of each run, for keys in which they differ; `-` where it is not set."""
    keys = dict.fromkeys(key for one in records.values() for key in one)
    found = {
        key: {run_id: one.get(key, "-") for run_id, one in records.items()} for key in sorted(keys)
    }
    return {key: values for key, values in found.items() if len(set(values.values())) > 1}
