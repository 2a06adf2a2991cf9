"""Kubernetes objects as plain dicts: identity, annotations, paths into them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]

SKIP_AWAIT = "pulumi.com/skipAwait"
TIMEOUT_SECONDS = "pulumi.com/timeoutSeconds"
PATCH_FORCE = "pulumi.com/patchForce"
PATCH_FIELD_MANAGER = "pulumi.com/patchFieldManager"
DELETION_PROPAGATION = "pulumi.com/deletionPropagationPolicy"
REPLACE_UNREADY = "pulumi.com/replaceUnready"
WAIT_FOR = "pulumi.com/waitFor"
AUTONAMED = "pulumi.com/autonamed"

SERVER_METADATA = (
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
    "uid",
)
"""Metadata fields that only the API server writes."""


@dataclass(frozen=True)
class Kind:
    """Group, version and kind; the core group is the empty string."""

    group: str
    version: str
    kind: str

    @property
    def api_version(self) -> str:
        """As in a manifest: `v1`, `batch/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def __str__(self) -> str:
        return f"{self.api_version}/{self.kind}"


def kind_of(obj: Mapping[str, Any]) -> Kind:
    """Return the kind of a manifest. `core/v1` means `v1`, as in the SDK's type tokens."""
    group, _, version = str(obj.get("apiVersion", "")).rpartition("/")
    return Kind("" if group == "core" else group, version, str(obj.get("kind", "")))


def type_token(urn: str) -> str:
    """Return the type in a URN: `kubernetes:batch/v1:Job`."""
    return urn.split("::")[2].rpartition("$")[2]


def kind_of_type(token: str) -> Kind:
    """Return the kind of a type token. Raises ValueError for a token of another package."""
    package, _, rest = token.partition(":")
    module, _, kind = rest.partition(":")
    group, _, version = module.rpartition("/")
    if package != "kubernetes" or not kind or not version:
        raise ValueError(f"{token} is not a Kubernetes resource type")
    return Kind("" if group == "core" else group, version, kind)


def is_patch(token: str) -> bool:
    """Whether a type is a Patch resource of the SDK, which owns fields of an existing object."""
    return token.endswith("Patch") and not token.startswith("kubernetes:apiextensions")


def metadata(obj: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object's metadata, or a new empty dict."""
    found = obj.get("metadata")
    return found if isinstance(found, dict) else {}


def name_of(obj: Mapping[str, Any]) -> str:
    return str(metadata(obj).get("name") or "")


def namespace_of(obj: Mapping[str, Any]) -> str:
    return str(metadata(obj).get("namespace") or "")


def annotation(obj: Mapping[str, Any], key: str) -> str | None:
    annotations = metadata(obj).get("annotations")
    value = annotations.get(key) if isinstance(annotations, dict) else None
    return value if isinstance(value, str) else None


def is_annotated(obj: Mapping[str, Any], key: str) -> bool:
    """Whether an annotation is `"true"`."""
    return annotation(obj, key) == "true"


def object_id(obj: Mapping[str, Any]) -> str:
    """`NAMESPACE/NAME`, or `NAME` for a cluster-scoped object."""
    namespace = namespace_of(obj)
    return f"{namespace}/{name_of(obj)}" if namespace else name_of(obj)


def split_id(identifier: str) -> tuple[str, str]:
    """Namespace (empty for none) and name."""
    namespace, _, name = identifier.rpartition("/")
    return namespace, name


def describe(obj: Mapping[str, Any]) -> str:
    """Return the name of an object for errors: `Job team-a/prepare`."""
    return f"{obj.get('kind', 'object')} {object_id(obj)}"


def at(tree: Any, path: Sequence[str | int], default: Any = None) -> Any:
    """Return the value at a path, or `default`."""
    for step in path:
        keyed = isinstance(tree, Mapping) and step in tree
        if keyed or (isinstance(tree, list) and isinstance(step, int) and step < len(tree)):
            tree = tree[step]
        else:
            return default
    return tree


def put(tree: Object, path: Sequence[str], value: Any) -> None:
    """Set a value; create missing parent objects."""
    for step in path[:-1]:
        tree = tree.setdefault(step, {})
    tree[path[-1]] = value


def drop(tree: Object, path: Sequence[str]) -> None:
    """Remove a value if it exists."""
    parent = at(tree, path[:-1])
    if isinstance(parent, dict):
        parent.pop(path[-1], None)
