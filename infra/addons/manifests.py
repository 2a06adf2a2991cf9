"""A controller without a chart: the objects that its makers publish as a list, made by hand.

Their lists hold definitions of thousands of lines and rights for features that nobody here uses. Ours have the
rights that the controller's code needs for the runs of this project, and pods that are restricted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from infra.addons import controllers
from infra.domain import naming
from infra.kubernetes.objects import Manifest, metadata

Rule = dict[str, list[str]]
"""Of a Role or a ClusterRole."""

USER: Final = 65532
"""`nonroot` of distroless images."""

_RBAC: Final = "rbac.authorization.k8s.io"
_LABEL: Final = "app.kubernetes.io/name"


def rule(group: str, resources: Sequence[str], verbs: Sequence[str]) -> Rule:
    """What may be done with some resources of one API group."""
    return {"apiGroups": [group], "resources": [*resources], "verbs": [*verbs]}


LEADING: Final = rule("coordination.k8s.io", ["leases"], ["create", "get", "update"])
"""Who leads; in the controller's own namespace."""

READ: Final = ("get", "list", "watch")
WRITE: Final = (*READ, "create", "delete", "patch", "update")


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A custom resource, as its controller's Go types have it."""

    group: str
    version: str
    kind: str
    plural: str
    state_path: str = ".status.conditions[-1:].type"
    """What `kubectl get` shows as its state."""
    spec: Mapping[str, Any] = field(default_factory=dict)
    """Schema of `spec` beyond its being an object; its controller reads all else as it comes."""


def crd(of: Kind) -> Manifest:
    """The definition of a custom resource.

    Controllers check what they read, and runs are checked before they are made: a full schema in between
    could only lag behind the Go types, and has thousands of lines for the pod template alone.
    """
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata(f"{of.plural}.{of.group}", labels=naming.object_labels("operators")),
        "spec": {
            "group": of.group,
            "scope": "Namespaced",
            "names": {
                "kind": of.kind,
                "listKind": f"{of.kind}List",
                "plural": of.plural,
                "singular": of.kind.lower(),
            },
            "versions": [
                {
                    "name": of.version,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [
                        {"name": "State", "type": "string", "jsonPath": of.state_path},
                        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                    ],
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "required": ["spec"],
                            "properties": {"spec": {**anything, **of.spec}, "status": anything},
                        }
                    },
                }
            ],
        },
    }


def access(
    name: str, namespace: str, everywhere: Sequence[Rule], at_home: Sequence[Rule]
) -> tuple[Manifest, ...]:
    """A service account, what it may do in every namespace, and what in its own only."""
    labels = naming.object_labels("operators")
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    found: list[Manifest] = [
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": metadata(name, namespace=namespace, labels=labels),
        }
    ]
    for kind, where, rules in (("ClusterRole", None, everywhere), ("Role", namespace, at_home)):
        named = metadata(name, namespace=where, labels=labels)
        api = {"apiVersion": f"{_RBAC}/v1"}
        found.append({**api, "kind": kind, "metadata": named, "rules": list(rules)})
        found.append(
            {
                **api,
                "kind": f"{kind}Binding",
                "metadata": named,
                "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": name},
                "subjects": [subject],
            }
        )
    return tuple(found)


def deployment(
    name: str,
    namespace: str,
    container: Mapping[str, Any],
    volumes: Sequence[Mapping[str, Any]] = (),
) -> tuple[Manifest, ...]:
    """Two restricted pods of a controller, and the budget that keeps one of them."""
    own = {_LABEL: name}
    labels = naming.object_labels("operators") | own
    pod = {
        "serviceAccountName": name,
        "priorityClassName": controllers.PRIORITY,
        "tolerations": list(controllers.TOLERATIONS),
        "affinity": controllers.anti_affinity(own),
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": name,
                **container,
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
            }
        ],
        **({"volumes": list(volumes)} if volumes else {}),
    }
    return (
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata(name, namespace=namespace, labels=labels),
            "spec": {
                "replicas": controllers.REPLICAS,
                "selector": {"matchLabels": own},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        },
        controllers.disruption_budget(name, namespace, own),
    )
