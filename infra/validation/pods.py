"""Pods that check nodes: Pod Security's restricted level, and what they are told of themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from infra.domain import naming
from infra.kubernetes import pod_security

NAME: Final = "validation"
"""Service account, and headless Service by which pods find each other."""


def told_of_itself() -> list[dict[str, Any]]:
    """Where a pod is; training/validation/host.py reads it."""
    return [
        {"name": "HOME", "value": "/tmp"},
        {"name": "OMP_NUM_THREADS", "value": "1"},
        {"name": "PYTHONUNBUFFERED", "value": "1"},
        from_pod("TRAINYARD_ZONE", f"metadata.labels['{naming.ZONE}']"),
        from_pod("TRAINYARD_NODE", "spec.nodeName"),
        from_pod("TRAINYARD_POD_IP", "status.podIP"),
    ]


def from_pod(name: str, path: str) -> dict[str, Any]:
    """A variable with the value of a field of the pod."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def pod(command: Sequence[str], environment: list[dict[str, Any]], image: str) -> dict[str, Any]:
    """A pod of Pod Security's restricted level, without what varies."""
    made: dict[str, Any] = {
        "restartPolicy": "Never",
        "serviceAccountName": NAME,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "subdomain": NAME,
        "terminationGracePeriodSeconds": 30,
        "securityContext": pod_security.pod_security(),
        "containers": [
            {
                "name": "check",
                "image": image,
                "imagePullPolicy": "IfNotPresent",
                "command": list(command),
                "env": environment,
                "volumeMounts": [],
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                    "readOnlyRootFilesystem": True,
                },
            }
        ],
        "volumes": [],
    }
    mount(made, "tmp", "/tmp", {"sizeLimit": "1Gi"})
    return made


def mount(pod: dict[str, Any], name: str, path: str, empty_dir: Mapping[str, str]) -> None:
    """Give the pod's container scratch space."""
    pod["volumes"].append({"name": name, "emptyDir": dict(empty_dir)})
    pod["containers"][0]["volumeMounts"].append({"name": name, "mountPath": path})
