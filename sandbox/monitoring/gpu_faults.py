"""Injected faults of simulated GPUs; the exporter reports them until they are cleared."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from infra.domain import naming
from sandbox import paths
from sandbox.monitoring import MonitoringError
from sandbox.node.api import ApiError, Client, node_path


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Errors that one GPU reports."""

    xid: int = 0
    """NVIDIA's code of the last error, such as 79 (fallen off the bus); 0: none."""
    ecc: int = 0
    """Uncorrectable memory errors since the driver was loaded."""


def faults_file(state: paths.State) -> Path:
    """File of the injected faults."""
    return state.home / "gpu-faults.json"


def load_faults(state: paths.State) -> dict[tuple[str, int], Fault]:
    """Return faults by (node, GPU index)."""
    try:
        found = json.loads(faults_file(state).read_text())
        return {(node, int(gpu)): Fault(**fault) for node, gpu, fault in found}
    except (OSError, ValueError, TypeError):
        return {}


def set_fault(state: paths.State, node: str, gpu: int, fault: Fault) -> None:
    """Set or clear a GPU's fault. Raises MonitoringError if the GPU does not exist."""
    _require_gpu(state, node, gpu)
    faults = load_faults(state) | {(node, gpu): fault}
    _save(state, {key: one for key, one in faults.items() if one != Fault()})


def _require_gpu(state: paths.State, node: str, gpu: int) -> None:
    try:
        found = Client(state.kubeconfig).get(node_path(node))
    except OSError as error:
        raise MonitoringError("the sandbox is not up; run `make up` first") from error
    except ApiError as error:
        if not error.not_found:
            raise
        raise MonitoringError(f"node {node}: does not exist; `make status` lists nodes") from error
    count = int(found["status"].get("capacity", {}).get(naming.GPU, 0))
    if not 0 <= gpu < count:
        if not count:
            raise MonitoringError(f"node {node}: has no GPU; `make status` lists GPUs by node")
        raise MonitoringError(f"--gpu: got {gpu}; node {node} has GPUs 0 to {count - 1}")


def _save(state: paths.State, faults: Mapping[tuple[str, int], Fault]) -> None:
    rows = [(node, gpu, asdict(fault)) for (node, gpu), fault in sorted(faults.items())]
    partial = faults_file(state).with_suffix(".partial")
    partial.write_text(json.dumps(rows))
    partial.rename(faults_file(state))
