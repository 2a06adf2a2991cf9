"""How pods start a run's program: the user's, or the built-in trainer. Command, variables and files."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, Final

import yaml

from infra.domain.platform import Platform
from infra.domain.pools import Nodes
from infra.kubernetes.objects import Manifest, metadata
from training import placement, runtime_archive
from training.program import ACCELERATE_FILE, DEEPSPEED_FILE, SOURCE_MOUNT, Program
from training.spec import NO_DATASET, RunSpec
from trainyard import contract
from trainyard.contract import LATEST, rendezvous_port
from trainyard.source import PART

COMMAND: Final = ("python3", "-m", "trainyard.launch")
"""The main process of every pod; it reads PROGRAM_FILE and starts the launcher."""

UNPACK: Final = ("python3", "-m", "trainyard.source")
"""Unpacks the source and becomes the command after `--`."""

_PART_MAX: Final = 700 * 2**10
"""Bytes of the archive per ConfigMap, which can have 1 MiB; base64 adds a third to a request."""
_LOOPBACK: Final = "127.0.0.1"
_DUMPER: Final = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
"""The same text, ten times as fast where PyYAML has its C library."""


def source_config_maps(run: RunSpec, platform: Platform, labels: dict[str, str]) -> list[Manifest]:
    """Return the ConfigMaps with the parts of the source's archive; none without a source."""
    source = run.program.source if run.program else None
    if source is None:
        return []
    starts = range(0, len(source.archive), _PART_MAX)
    return [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata(name, namespace=platform.teams[run.team].namespace, labels=labels),
            "immutable": True,
            "binaryData": {PART.format(index): _base64(source.archive[start : start + _PART_MAX])},
        }
        for index, (name, start) in enumerate(zip(_source_names(run), starts, strict=True))
    ]


def _source_names(run: RunSpec) -> list[str]:
    source = run.program.source if run.program else None
    count = -(-len(source.archive) // _PART_MAX) if source else 0
    return [f"{run.run_id}-source-{index}" for index in range(count)]


def started(run: RunSpec) -> Program:
    """Return what the pods start: the run's program, or the built-in trainer."""
    if run.program:
        return run.program
    launcher = "torchrun" if run.nodes > 1 else "python"
    return Program(
        launcher="mpirun" if run.job_kind == "mpijob" else launcher,
        command=("-m", "trainer", *_trainer_arguments(run)),
        progress_timeout_s=0,  # it ends hung ranks itself
    )


def _trainer_arguments(run: RunSpec) -> list[str]:
    settings = [f"data.path={run.dataset.path}"]
    if run.dataset.version != LATEST:
        settings.append(f"data.version={run.dataset.version}")
    continued = f"{contract.CHECKPOINT_MOUNT}/{run.continues}"
    return [
        *("--config", f"{contract.CONFIG_MOUNT}/{contract.TRAINER_CONFIG_FILE}"),
        *("--run-record", f"{contract.CONFIG_MOUNT}/{contract.RUN_RECORD_FILE}"),
        *("--run-dir", run.run_dir),
        *(word for setting in settings for word in ("--set", setting)),
        *(["--continue-from", continued] if run.continues else []),
    ]


def config_data(run: RunSpec) -> dict[str, dict[str, str]]:
    """Return `data` and `binaryData` of the run's ConfigMap besides the run record."""
    program = started(run)
    source = program.source
    settings: dict[str, Any] = {
        "launcher": program.launcher,
        "command": list(program.command),
        "env": dict(program.env),
        "source": {"path": SOURCE_MOUNT, "sha256": source.sha256} if source else None,
    }
    if program.progress_timeout_s is not None:
        settings["progress_timeout_s"] = program.progress_timeout_s
    for name, key in ((DEEPSPEED_FILE, "deepspeed"), (ACCELERATE_FILE, "accelerate")):
        if name in program.files:
            settings[key] = f"{contract.CONFIG_MOUNT}/{name}"
    text = json.dumps(settings, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    files = {"data": {contract.PROGRAM_FILE: text, **program.files}}
    if run.program:  # the trainer's image has the library
        files["binaryData"] = {runtime_archive.ZIP_FILE: _base64(runtime_archive.package())}
    else:
        files["data"][contract.TRAINER_CONFIG_FILE] = _yaml(run.config)
    return files


def _yaml(config: Mapping[str, Any]) -> str:
    text: str = yaml.dump(_plain(config), Dumper=_DUMPER, sort_keys=True)
    return text


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return value


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def library_env(run: RunSpec) -> list[dict[str, str]]:
    """Return the variable with the place of the library that a program's run brings; none without a program."""
    path = f"{contract.CONFIG_MOUNT}/{runtime_archive.ZIP_FILE}"
    return [{"name": "PYTHONPATH", "value": path}] if run.program else []


def environment(
    run: RunSpec, platform: Platform, rendezvous_host: str | None
) -> list[dict[str, Any]]:
    """Return the variables with the facts of the run, sorted.

    `rendezvous_host`: DNS name of the first pod; None: a run of one node.
    """
    program = started(run)
    host, port = rendezvous_host or _LOOPBACK, rendezvous_port(run.gang_id)
    facts = {
        "run_id": run.run_id,
        "run_dir": run.run_dir,
        "checkpoints": ""
        if _stores_elsewhere(run)
        else f"{run.run_dir}/{contract.CHECKPOINTS_DIR}",
        "data": contract.DATA_MOUNT if run.dataset == NO_DATASET else run.dataset.path,
        "scratch": contract.SCRATCH_MOUNT,
        "source": f"{contract.SCRATCH_MOUNT}/source" if program.source else "",
        "nodes": str(run.nodes),
        "gpus_per_node": str(run.processes_per_node),
        "world_size": str(run.world_size),
        "rendezvous": f"{host}:{port}",
        "rendezvous_host": host,
        "rendezvous_port": str(port),
        "notice_seconds": str(run.grace.termination_grace_s),
        "tracking_uri": program.tracking_uri,
        "team": run.team,
        "capacity_type": run.capacity_types[0] if len(run.capacity_types) == 1 else "",
        "run_record": f"{contract.CONFIG_MOUNT}/{contract.RUN_RECORD_FILE}",
        "deepspeed_config": (
            f"{contract.CONFIG_MOUNT}/{DEEPSPEED_FILE}" if DEEPSPEED_FILE in program.files else ""
        ),
    }
    variables = {contract.PLACEHOLDERS[name].variable: value for name, value in facts.items()}
    variables |= _node_facts(run, platform)
    variables |= {one["name"]: one["value"] for one in library_env(run)}
    return [{"name": name, "value": value} for name, value in sorted(variables.items()) if value]


def _stores_elsewhere(run: RunSpec) -> bool:
    """Return whether the built-in trainer saves to a bucket: nothing is missing in the run's folder then."""
    return bool(run.config.get("checkpoint", {}).get("store"))


_EC2: Final = (Nodes.MANAGED, Nodes.KARPENTER)


def _node_facts(run: RunSpec, platform: Platform) -> dict[str, str]:
    """Return what is the same on every node that the run may get; a pod cannot read its node's labels.

    Instance types and zones of nodes that the stack does not create are the stack file's word only.
    """
    pools = placement.eligible_pools(run, platform)
    created = all(pool.nodes in _EC2 for pool in pools)
    choices = {
        contract.POOL_ENV: {pool.name for pool in pools},
        contract.INSTANCE_TYPE_ENV: {t for pool in pools for t in pool.instance_types},
        contract.ZONE_ENV: {
            pool.zone for pool in pools if run.collective_gbps is None
        },  # see gate.py
    }
    return {
        name: next(iter(values))
        for name, values in choices.items()
        if len(values) == 1 and (created or name == contract.POOL_ENV)
    }


def node_rank_env(path: str = "") -> list[dict[str, Any]]:
    """Return the variable with the node's index: from a field of the pod, or 0."""
    index: dict[str, Any] = (
        {"valueFrom": {"fieldRef": {"fieldPath": path}}} if path else {"value": "0"}
    )
    return [{"name": contract.NODE_RANK_ENV, **index}]


def worker_index_env(path: str) -> list[dict[str, Any]]:
    """Return the variable with a node's index among those after the first, from a field of the pod."""
    return [{"name": contract.WORKER_INDEX_ENV, "valueFrom": {"fieldRef": {"fieldPath": path}}}]


def volumes(run: RunSpec) -> list[dict[str, Any]]:
    parts = [{"configMap": {"name": name}} for name in _source_names(run)]
    return [{"name": "source", "projected": {"sources": parts}}] if parts else []


def mounts(run: RunSpec) -> list[dict[str, Any]]:
    place = {"mountPath": SOURCE_MOUNT, "readOnly": True}
    return [{"name": one["name"], **place} for one in volumes(run)]
