"""Objects of add-ons without a chart: restricted pods with a read-only root, and the rights that their code needs.

Add-ons are this project's own programs, and controllers whose published manifests have rights for unused features.
CRDs are upstream's (infra/kubernetes/crds).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from infra.addons import controllers
from infra.domain import naming
from infra.kubernetes import objects, pod_security, system_nodes
from infra.kubernetes.objects import Manifest, metadata

Rule = dict[str, list[str]]
"""Rule of a Role or ClusterRole."""

USER: Final = 65532
"""`nonroot` of distroless images."""

WORKSPACE: Final = "/workspace"
"""Folder of the sources in the image of the commands (ops/image/Dockerfile)."""
_LABEL: Final = "app.kubernetes.io/name"
_OWN_POD: Final = {
    "enableServiceLinks": False,
    "securityContext": pod_security.pod_security_with_volumes(),
}


def rule(group: str, resources: Sequence[str], verbs: Sequence[str]) -> Rule:
    return {"apiGroups": [group], "resources": [*resources], "verbs": [*verbs]}


LEADING: Final = rule("coordination.k8s.io", ["leases"], ["create", "get", "update"])
"""Leader election, in the controller's namespace."""

READ: Final = ("get", "list", "watch")
WRITE: Final = (*READ, "create", "delete", "patch", "update")


def access(
    name: str, namespace: str, everywhere: Sequence[Rule], at_home: Sequence[Rule]
) -> tuple[Manifest, ...]:
    """Return a service account with its rights in all namespaces and in its own, where it has any."""
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    found = [objects.manifest("v1/ServiceAccount", name, "operators", namespace=namespace)]
    for where, rules in ((None, everywhere), (namespace, at_home)):
        if rules:
            found.append(objects.role(name, "operators", rules, namespace=where))
            found.append(objects.role_binding(name, "operators", subject, namespace=where))
    return tuple(found)


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
        "securityContext": pod_security.container_security(),
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
    pod: Mapping[str, Any] | None = None,
) -> Manifest:
    """Return a Deployment. `recreate`: the old pod ends before the new one starts. `pod`: for another program than
    this project's, in place of what its pods have.
    """
    labels = naming.object_labels("operators") | selector(name)
    spec: dict[str, Any] = {
        "serviceAccountName": name,
        "priorityClassName": controllers.PRIORITY,
        "tolerations": list(system_nodes.TOLERATIONS),
        **(pod or _OWN_POD),
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


def operator(
    name: str,
    namespace: str,
    container: Mapping[str, Any],
    volumes: Sequence[Mapping[str, Any]] = (),
) -> tuple[Manifest, ...]:
    """Return a Deployment of two pods of a controller, and its PodDisruptionBudget."""
    security = pod_security.container_security()
    return (
        deployment(
            name,
            namespace,
            [{"name": name, **container, "securityContext": security}],
            replicas=controllers.REPLICAS,
            volumes=volumes,
            pod={
                "securityContext": pod_security.pod_security()
                | {"runAsUser": USER, "runAsGroup": USER}
            },
        ),
        controllers.disruption_budget(name, namespace, selector(name)),
    )
