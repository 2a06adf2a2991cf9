"""securityContext of pods with the trainer's image: runs, node validation, restore drills."""

from __future__ import annotations

from typing import Any

from infra.domain import naming


def pod_security() -> dict[str, Any]:
    """Return a pod's securityContext at Pod Security's restricted level."""
    return {
        "runAsNonRoot": True,
        "runAsUser": naming.TRAINING_USER,
        "runAsGroup": naming.TRAINING_USER,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def pod_security_with_volumes() -> dict[str, Any]:
    """Return the same for a pod that mounts its team's volumes."""
    return {
        **pod_security(),
        "fsGroup": naming.TRAINING_USER,
        # Changing the owner of every checkpoint at each start could take longer than the run.
        "fsGroupChangePolicy": "OnRootMismatch",
    }


def container_security() -> dict[str, Any]:
    """Return a container's securityContext at the same level, with a read-only root."""
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
