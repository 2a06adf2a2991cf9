"""Parts of every manifest of a Kubernetes object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from infra.domain import naming

Manifest = dict[str, Any]


def type_token(manifest: Mapping[str, Any]) -> str:
    version = manifest["apiVersion"]
    return f"kubernetes:{'core/v1' if version == 'v1' else version}:{manifest['kind']}"


def metadata(
    name: str,
    *,
    namespace: str | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Manifest:
    """Return ObjectMeta without empty fields."""
    fields: Manifest = {"name": name}
    if namespace:
        fields["namespace"] = namespace
    if labels:
        fields["labels"] = dict(labels)
    if annotations:
        fields["annotations"] = dict(annotations)
    return fields


def manifest(
    kind: str,
    name: str,
    component: str,
    *,
    team: str = "",
    namespace: str | None = None,
    annotations: Mapping[str, str] | None = None,
    **parts: Any,
) -> Manifest:
    """Return an object with the project's labels. `kind`: with its API version, such as apps/v1/Deployment."""
    api, _, kind = kind.rpartition("/")
    labels = naming.object_labels(component, team)
    named = metadata(name, namespace=namespace, labels=labels, annotations=annotations)
    return {"apiVersion": api, "kind": kind, "metadata": named, **parts}


def in_team(kind: str, name: str, component: str, team: str, **parts: Any) -> Manifest:
    """Return the same in a team's namespace."""
    space = naming.namespace(team)
    return manifest(kind, name, component, team=team, namespace=space, **parts)


_RBAC = "rbac.authorization.k8s.io"


def role(name: str, component: str, rules: Sequence[Any], **where: Any) -> Manifest:
    """Return a Role, or without a namespace a ClusterRole. `where`: team and namespace."""
    return manifest(f"{_RBAC}/v1/{_role_kind(where)}", name, component, rules=[*rules], **where)


def role_binding(name: str, component: str, *subjects: Manifest, **where: Any) -> Manifest:
    """Return the binding of the role of this name."""
    kind = _role_kind(where)
    bound = {"apiGroup": _RBAC, "kind": kind, "name": name}
    api = f"{_RBAC}/v1/{kind}Binding"
    return manifest(api, name, component, roleRef=bound, subjects=[*subjects], **where)


def group(name: str) -> Manifest:
    """Return a subject of a binding."""
    return {"apiGroup": _RBAC, "kind": "Group", "name": name}


def _role_kind(where: Mapping[str, Any]) -> str:
    return "Role" if where.get("namespace") else "ClusterRole"
