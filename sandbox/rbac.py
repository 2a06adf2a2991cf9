"""ClusterRoles and bindings of the sandbox's own programs."""

from __future__ import annotations

from typing import Any, Final

from infra.domain import naming

Document = dict[str, Any]

READ: Final = ["get", "list", "watch"]
_GROUP: Final = "rbac.authorization.k8s.io"


def rule(resources: list[str], verbs: list[str], group: str = "") -> Document:
    return {"apiGroups": [group], "resources": resources, "verbs": verbs}


def grant(component: str, name: str, user: str, rules: list[Document]) -> list[Document]:
    role: Document = {
        "apiVersion": f"{_GROUP}/v1",
        "kind": "ClusterRole",
        "metadata": _metadata(component, name),
        "rules": rules,
    }
    return [role, bind(component, name, user, role["metadata"]["name"])]


def bind(component: str, name: str, user: str, role: str) -> Document:
    return {
        "apiVersion": f"{_GROUP}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": _metadata(component, name),
        "roleRef": {"apiGroup": _GROUP, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": _GROUP, "kind": "User", "name": user}],
    }


def _metadata(component: str, name: str) -> Document:
    return {"name": f"sandbox-{name}", "labels": naming.object_labels(component)}
