"""Helm charts as Pulumi releases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pulumi
import pulumi_kubernetes as k8s


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A chart, and the registries of it and its images."""

    chart: str
    """OCI reference; a name where there is a `repository`."""
    version: str
    repository: str = ""
    """URL of a chart index."""
    image_values: Mapping[str, Any] = field(default_factory=dict)
    """Values that set its images' registry to a mirror; empty: the chart's registries."""


def merged(values: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Return values merged with more, recursively by mapping as Helm does."""
    found = dict(values)
    for key, value in more.items():
        below = found.get(key)
        both = isinstance(below, Mapping) and isinstance(value, Mapping)
        found[key] = merged(below, value) if both else value  # type: ignore[arg-type]
    return found


def _has_null(values: Any) -> bool:
    if isinstance(values, Mapping):
        return any(_has_null(value) for value in values.values())
    return values is None


def release(
    name: str,
    chart: Chart,
    *,
    release_name: str,
    namespace: str,
    values: Mapping[str, Any],
    opts: pulumi.ResourceOptions,
    skip_crds: bool | None = None,
) -> k8s.helm.v3.Release:
    """Create an atomic release with a timeout of ten minutes."""
    complete = merged(values, chart.image_values)
    repository = k8s.helm.v3.RepositoryOptsArgs(repo=chart.repository) if chart.repository else None
    return k8s.helm.v3.Release(
        name,
        name=release_name,
        chart=chart.chart,
        version=chart.version,
        namespace=namespace,
        repository_opts=repository,
        values=complete,
        # Without it the plugin drops null, which removes a chart's default.
        allow_null_values=True if _has_null(complete) else None,
        skip_crds=skip_crds,
        atomic=True,
        timeout=600,
        opts=opts,
    )
