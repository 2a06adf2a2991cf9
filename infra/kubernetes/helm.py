"""Helm charts as Pulumi releases, whoever installs them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pulumi
import pulumi_kubernetes as k8s


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A chart, and where it and its images come from."""

    chart: str
    """OCI reference; a name where there is a `repository`."""
    version: str
    repository: str = ""
    """URL of an index of charts."""
    image_values: Mapping[str, Any] = field(default_factory=dict)
    """Values that point its images at a mirror; empty: the chart's own registries."""


def merged(values: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Values with more of them laid over, mapping by mapping, as Helm does it."""
    found = dict(values)
    for key, value in more.items():
        below = found.get(key)
        both = isinstance(below, Mapping) and isinstance(value, Mapping)
        found[key] = merged(below, value) if both else value  # type: ignore[arg-type]
    return found


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
    """A release that is there as a whole or not at all; it may take ten minutes."""
    repository = k8s.helm.v3.RepositoryOptsArgs(repo=chart.repository) if chart.repository else None
    return k8s.helm.v3.Release(
        name,
        name=release_name,
        chart=chart.chart,
        version=chart.version,
        namespace=namespace,
        repository_opts=repository,
        values=merged(values, chart.image_values),
        skip_crds=skip_crds,
        atomic=True,
        timeout=600,
        opts=opts,
    )
