"""What must be on the team's volume before a run starts, and the init containers that wait for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from infra.domain import naming
from training.dataset import Preparation
from training.spec import RunSpec
from training.weights import WeightsFetch
from trainyard import contract

Need = Preparation | WeightsFetch
_REQUESTS: Final = {"cpu": "100m", "memory": "128Mi"}


def needs(run: RunSpec) -> list[Need]:
    """Return what Jobs bring to the volume for a run; runs share equal ones."""
    found = (Preparation.for_run(run), WeightsFetch.for_run(run))
    return [one for one in found if one is not None]


def container_name(need: Need) -> str:
    """Return the name of the container that waits for it."""
    return naming.DATASET_CONTAINER if isinstance(need, Preparation) else naming.WEIGHTS_CONTAINER


def init_containers(run: RunSpec, security: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a container for each need, which ends when the need is met."""
    return [_waiting(need, security) for need in needs(run)]


def _waiting(need: Need, security: Mapping[str, Any]) -> dict[str, Any]:
    what = [] if isinstance(need, Preparation) else ["--what", "model"]
    return {
        "name": container_name(need),
        "image": need.image,
        "imagePullPolicy": "IfNotPresent",
        "command": [
            *("python", "-m", "trainer.prepare.wait", *what),
            *("--state", need.state_file),
        ],
        "workingDir": contract.WORKSPACE,
        "env": [
            {"name": "PYTHONUNBUFFERED", "value": "1"},
            {"name": naming.PREPARATION_ENV, "value": need.name},
        ],
        "resources": {"requests": dict(_REQUESTS), "limits": dict(_REQUESTS)},
        "volumeMounts": [{"name": "datasets", "mountPath": contract.DATA_MOUNT, "readOnly": True}],
        "securityContext": dict(security),
    }
