"""Pods of node checks, at Pod Security's restricted level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from infra.domain import naming
from infra.kubernetes import pod_security

NAME: Final = "validation"
"""Name of the service account and of the headless Service."""


def pod_environment() -> list[dict[str, Any]]:
    """Return the environment that trainer/validation/host.py reads: zone, node and address."""
    return [
        {"name": "HOME", "value": "/tmp"},
        {"name": "OMP_NUM_THREADS", "value": "1"},
        {"name": "PYTHONUNBUFFERED", "value": "1"},
        from_pod("TRAINYARD_ZONE", f"metadata.labels['{naming.ZONE}']"),
        from_pod("TRAINYARD_NODE", "spec.nodeName"),
        from_pod("TRAINYARD_POD_IP", "status.podIP"),
    ]


def from_pod(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def pod(command: Sequence[str], environment: list[dict[str, Any]], image: str) -> dict[str, Any]:
    """Return a pod spec without scheduling, resources and extra volumes."""
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
                "securityContext": pod_security.container_security(),
            }
        ],
        "volumes": [],
    }
    mount(made, "tmp", "/tmp", {"sizeLimit": "1Gi"})
    return made


def mount(pod: dict[str, Any], name: str, path: str, empty_dir: Mapping[str, str]) -> None:
    pod["volumes"].append({"name": name, "emptyDir": dict(empty_dir)})
    pod["containers"][0]["volumeMounts"].append({"name": name, "mountPath": path})
