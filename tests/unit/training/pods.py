"""Pods of rendered manifests, wherever their objects have them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from infra.domain import naming

Json = dict[str, Any]


def templates(value: Any) -> Iterator[Json]:
    """Yield every pod template in manifests."""
    if isinstance(value, dict):
        if "containers" in value.get("spec", {}):
            yield value
        for inner in value.values():
            yield from templates(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from templates(inner)


def containers(value: Any) -> list[Json]:
    """Return the main containers of every pod."""
    return [one for pod in templates(value) for one in pod["spec"]["containers"]]


def workers(value: Any) -> list[Json]:
    """Return the templates of pods with GPUs."""
    return [pod for pod in templates(value) if naming.GPU in limits(pod)]


def limits(pod: Json) -> Json:
    """Return the limits of a pod's first container."""
    found: Json = pod["spec"]["containers"][0]["resources"]["limits"]
    return found
