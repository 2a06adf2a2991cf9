"""Who pods with the trainer's image are, whoever makes them: runs, checks of nodes, restore drills."""

from __future__ import annotations

from typing import Any

from infra.domain import naming


def pod_security() -> dict[str, Any]:
    """A pod's securityContext as Pod Security's restricted level wants it."""
    return {
        "runAsNonRoot": True,
        "runAsUser": naming.TRAINING_USER,
        "runAsGroup": naming.TRAINING_USER,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def pod_security_with_volumes() -> dict[str, Any]:
    """The same for a pod that mounts its team's volumes."""
    return {
        **pod_security(),
        "fsGroup": naming.TRAINING_USER,
        # Changing the owner of every checkpoint at each start would take longer than the run.
        "fsGroupChangePolicy": "OnRootMismatch",
    }
