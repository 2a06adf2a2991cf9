"""The state of a resource, in the official plugin's form.

A state is the live object as the API server returned it, plus three properties: `__inputs` (the
inputs that made it), `__initialApiVersion` and `__fieldManager`. CustomResourceDefinition schemas
have keys such as `x-kubernetes-list-type`; the SDK's types spell them with underscores.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sandbox.provider.objects import SERVER_METADATA, Object, kind_of, metadata
from sandbox.provider.properties import Secret, reveal
from sandbox.provider.secret_values import mark_like, mark_secret_object

INPUTS = "__inputs"
API_VERSION = "__initialApiVersion"
FIELD_MANAGER = "__fieldManager"

_DASHED = {
    f"x_kubernetes_{name}".replace("-", "_"): f"x-kubernetes-{name}"
    for name in (
        "embedded-resource",
        "int-or-string",
        "list-map-keys",
        "list-type",
        "map-type",
        "preserve-unknown-fields",
        "validations",
    )
}
_UNDERSCORED = {dashed: key for key, dashed in _DASHED.items()}


@dataclass(frozen=True)
class Checkpoint:
    """A parsed state. `marked_inputs` has the Secret markers that `inputs` lacks."""

    live: Object
    inputs: Object
    marked_inputs: Object
    api_version: str
    field_manager: str


def to_manifest(marked: dict[str, Any]) -> Object:
    """Convert the engine's inputs to a manifest: no markers, the API server's spelling, no read-only
    metadata, `v1` for `core/v1`."""
    manifest: Object = _renamed(reveal(marked), _DASHED.get)
    meta = metadata(manifest)
    for field in SERVER_METADATA:
        meta.pop(field, None)
    if "apiVersion" in manifest:
        manifest["apiVersion"] = kind_of(manifest).api_version
    return manifest


def to_inputs(manifest: Object, marked: dict[str, Any]) -> dict[str, Any]:
    """Convert a manifest to the engine's inputs, secret where `marked` or its kind requires it."""
    spelled: Object = _renamed(manifest, _UNDERSCORED.get)
    return mark_secret_object(mark_like(spelled, marked))


def compose(
    live: Object, inputs: Object, marked: dict[str, Any], api_version: str, manager: str
) -> dict[str, Any]:
    """Return the state to store. `inputs`: a manifest; `marked`: the inputs with their markers."""
    state = to_inputs(live, marked)
    if "data" in state:
        state["data"] = mark_like(state["data"], marked.get("stringData"))
    state[INPUTS] = to_inputs(inputs, marked)
    state[API_VERSION] = api_version
    state[FIELD_MANAGER] = manager
    return state


def parse(state: dict[str, Any]) -> Checkpoint:
    """Parse a stored state of either plugin; the inverse of `compose`."""
    own = (INPUTS, API_VERSION, FIELD_MANAGER)
    live: Object = _renamed(
        reveal({key: value for key, value in state.items() if key not in own}), _DASHED.get
    )
    inputs = state.get(INPUTS)
    marked = inputs.value if isinstance(inputs, Secret) else inputs
    marked = marked if isinstance(marked, dict) else {}
    return Checkpoint(
        live=live,
        inputs=to_manifest(marked),
        marked_inputs=marked,
        api_version=str(reveal(state.get(API_VERSION)) or live.get("apiVersion") or ""),
        field_manager=str(reveal(state.get(FIELD_MANAGER)) or ""),
    )


def _renamed(tree: Any, new_name: Callable[[str], str | None]) -> Any:
    if isinstance(tree, dict):
        return {new_name(key) or key: _renamed(value, new_name) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_renamed(value, new_name) for value in tree]
    if isinstance(tree, Secret):
        return Secret(_renamed(tree.value, new_name))
    return tree
