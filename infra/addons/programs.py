"""Pods of this project's own programs in the cluster: restricted, with a read-only root."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from infra.addons import controllers
from infra.domain import naming
from infra.kubernetes import pod_security, system_nodes
from infra.kubernetes.objects import Manifest, metadata

WORKSPACE: Final = "/workspace"
"""Folder of the sources in the image of the commands (ops/image/Dockerfile)."""
_LABEL: Final = "app.kubernetes.io/name"


def selector(name: str) -> dict[str, str]:
    """Return the labels by which Services and policies select the program's pods."""
    return {_LABEL: name}


def container(name: str, image: str, args: Sequence[str], **more: Any) -> dict[str, Any]:
    """Return a container that runs without privileges; `more`: its other fields."""
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "args": list(args),
        **more,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def command(
    name: str,
    image: str,
    words: Sequence[str],
    *,
    environment: Sequence[Mapping[str, Any]] = (),
    **more: Any,
) -> dict[str, Any]:
    """Return a container that runs `trainyard WORDS`; `environment`: variables besides its own."""
    variables = [
        {"name": "HOME", "value": "/tmp"},
        {"name": "PYTHONUNBUFFERED", "value": "1"},
        # Lines of its log are not wrapped.
        {"name": "COLUMNS", "value": "400"},
        *map(dict, environment),
    ]
    return container(
        name,
        image,
        ["-m", "ops", *words],
        command=["python"],
        workingDir=WORKSPACE,
        env=variables,
        **more,
    )


def deployment(
    name: str,
    namespace: str,
    containers: Sequence[Mapping[str, Any]],
    *,
    replicas: int,
    recreate: bool = False,
    volumes: Sequence[Mapping[str, Any]] = (),
    annotations: Mapping[str, str] | None = None,
) -> Manifest:
    """Return a Deployment. `recreate`: the old pod ends before the new one starts."""
    labels = naming.object_labels("operators") | selector(name)
    spec: dict[str, Any] = {
        "serviceAccountName": name,
        "enableServiceLinks": False,
        "priorityClassName": controllers.PRIORITY,
        "tolerations": list(system_nodes.TOLERATIONS),
        "securityContext": pod_security.pod_security_with_volumes(),
        "containers": [dict(one) for one in containers],
        **({"volumes": list(volumes)} if volumes else {}),
    }
    if replicas > 1:
        spec["affinity"] = controllers.anti_affinity(selector(name))
    strategy = {"strategy": {"type": "Recreate"}} if recreate else {}
    template = metadata("", labels=labels, annotations=annotations)
    del template["name"]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(name, namespace=namespace, labels=labels),
        "spec": {
            "replicas": replicas,
            **strategy,
            "selector": {"matchLabels": selector(name)},
            "template": {"metadata": template, "spec": spec},
        },
    }
