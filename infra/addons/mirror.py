"""Mirror: one registry for all charts and images, for closed networks.

A chart called NAME is at `oci://MIRROR/charts/NAME`; an image keeps its path, below the mirror in place of its
registry: registry.k8s.io/kueue/kueue:v1 becomes MIRROR/kueue/kueue:v1. `python -m infra.cli.mirror` lists both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from infra.addons.model import Image
from infra.addons.registry import ADD_ONS
from infra.kubernetes.helm import Chart, merged, nested
from infra.kubernetes.objects import Manifest

_CONTAINERS = ("containers", "initContainers")


@dataclass(frozen=True, kw_only=True, order=True)
class Copy:
    """A chart or image that the mirror must have."""

    kind: str
    """`chart` or `image`."""
    source: str
    target: str
    version: str
    """Tag or digest; empty: the one that the chart names."""


def chart(add_on: str, mirror: str) -> Chart:
    source = ADD_ONS[add_on]
    if not mirror:
        return Chart(chart=source.chart, version=source.version, repository=source.repository)
    values: dict[str, Any] = {}
    for image in source.images:
        for path, text in image.values.items():
            values = merged(values, nested(path, _filled(text, image, mirror)))
    return Chart(chart=_chart(source.chart, mirror), version=source.version, image_values=values)


def image(reference: str, mirror: str) -> str:
    """Return an image reference such as docker.io/library/alpine:3, in the mirror unless that is empty."""
    if not mirror or reference.startswith(f"{mirror}/"):
        return reference
    return f"{mirror}/{reference.partition('/')[2]}"


def manifest(of: Manifest, mirror: str) -> Manifest:
    """Return an object with its containers' images in the mirror unless that is empty."""
    return _walked(of, mirror) if mirror else of


def copies(add_ons: Iterable[str], mirror: str) -> list[Copy]:
    """Return all charts and images of these add-ons, charts first, without duplicates."""
    found: set[Copy] = set()
    for name in add_ons:
        source = ADD_ONS[name]
        if source.chart:
            found.add(
                Copy(
                    kind="chart",
                    source=_source(source.chart, source.repository),
                    target=_chart(source.chart, mirror),
                    version=source.version,
                )
            )
        for one in source.images:
            path = f"{one.registry}/{one.repository}"
            target = image(path, mirror)
            found.add(Copy(kind="image", source=path, target=target, version=one.tag))
    return sorted(found)


def _source(chart_name: str, repository: str) -> str:
    return f"{repository}/{chart_name}" if repository else chart_name


def _chart(reference: str, mirror: str) -> str:
    return f"oci://{mirror}/charts/{reference.rpartition('/')[2]}"


def _filled(text: str, of: Image, mirror: str) -> str:
    parent = of.repository.rpartition("/")[0]
    return text.format(registry=mirror, repository=of.repository, parent=parent)


def _walked(value: Any, mirror: str) -> Any:
    if isinstance(value, Mapping):
        return {key: _entry(key, inner, mirror) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_walked(inner, mirror) for inner in value]
    return value


def _entry(key: str, value: Any, mirror: str) -> Any:
    if key in _CONTAINERS and isinstance(value, list):
        return [{**one, "image": image(one["image"], mirror)} for one in value]
    return _walked(value, mirror)
