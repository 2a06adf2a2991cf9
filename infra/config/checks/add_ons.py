"""Add-ons: made for the cluster's version of Kubernetes, and what a mirror is there for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from infra.addons.model import AddOn
from infra.addons.registry import ADD_ONS
from infra.config.checks.partial import PartialStack
from infra.config.errors import ConfigIssue, shown

_NODES: Final = {"karpenter": "karpenter", "cluster-autoscaler": "clusterAutoscaler"}
"""The add-on of each autoscaler."""


def installed(parts: PartialStack) -> list[str]:
    """Add-ons that the stack brings, as far as it can be read."""
    named: Any = parts.raw.get("operators")
    operators = named if isinstance(named, dict) else {}
    wanted = {
        name
        for name, chosen in operators.items()
        if isinstance(chosen, dict) and chosen.get("provided") is False
    }
    if parts.raw.get("signatures") is not None:
        wanted.add("policyController")
    if parts.provider == "eks":
        wanted.add(_NODES.get(str(parts.raw.get("autoscaler")), ""))
    return [name for name in ADD_ONS if name in wanted]


def _version(parts: PartialStack) -> str | None:
    """The cluster's version of Kubernetes; None where the file does not say it in a form that counts."""
    if parts.eks:
        return parts.eks.version
    cluster: Any = parts.raw.get("cluster")
    version = cluster.get("version") if isinstance(cluster, dict) else None
    return str(version) if re.fullmatch(r"[0-9]+\.[0-9]+", str(version)) else None


def check_addon_versions(parts: PartialStack) -> Iterator[ConfigIssue]:
    """Require a cluster version that each installed add-on supports."""
    version = _version(parts)
    if version is None:
        return
    for name in installed(parts):
        if not ADD_ONS[name].supports(version):
            yield ConfigIssue(
                path="cluster.version",
                code="addon-version",
                problem=f"{name} {ADD_ONS[name].version} does not support Kubernetes {version}",
                valid=f"it supports {_range(ADD_ONS[name])}",
                action="choose such a version, or install your own version of the add-on "
                "and set provided: true",
            )


def _range(add_on: AddOn) -> str:
    first, last = add_on.kubernetes
    return f"{first} to {last}" if last else f"{first} or newer"


def check_addon_images(parts: PartialStack) -> Iterator[ConfigIssue]:
    """Require an image by digest for add-ons without a chart, and for no others."""
    named: Any = parts.raw.get("operators")
    for name, chosen in named.items() if isinstance(named, dict) else ():
        if name not in ADD_ONS or not isinstance(chosen, dict):
            continue
        given, path = chosen.get("image"), f"operators.{name}.image"
        if given is not None and (ADD_ONS[name].chart or chosen.get("provided") is not False):
            yield ConfigIssue(
                path=path,
                code="addon-image-unused",
                problem=f"{shown(given)} is not used: the chart or the cluster has its own image",
                valid="an image is valid only for an add-on that is installed without a chart",
                action="remove it",
            )
        elif given is None and not ADD_ONS[name].chart and chosen.get("provided") is False:
            [image] = ADD_ONS[name].images
            yield ConfigIssue(
                path=path,
                code="missing",
                problem="missing",
                valid=f"must be {image.registry}/{image.repository}@sha256:DIGEST, or a copy of it",
                action=f"add it: `crane digest {image.reference}` prints the digest",
            )


def check_mirror_used(parts: PartialStack) -> Iterator[ConfigIssue]:
    """Reject a mirror of a stack that installs no add-on."""
    named = parts.raw.get("mirror")
    if isinstance(named, str) and named and not installed(parts):
        yield ConfigIssue(
            path="mirror",
            code="mirror-unused",
            problem=f"{shown(named)} is not used",
            valid="requires an add-on that the stack installs, whose chart and images "
            "come from the mirror",
            action="remove it",
        )
