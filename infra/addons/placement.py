"""Where controllers run: on system nodes, which no pod of a team tolerates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from infra.addons.model import Installable
from infra.addons.registry import ADD_ONS
from infra.kubernetes import system_nodes
from infra.kubernetes.helm import merged, nested
from infra.kubernetes.objects import Manifest


def place(plan: Installable, *, selected: bool) -> Installable:
    """Return the plan with controllers that tolerate the taint of system nodes.

    `selected`: they also select these nodes, which not every existing cluster has.
    """
    values = plan.values
    for one in ADD_ONS[plan.add_on].placed:
        if _at(values, one.tolerations.rpartition(".")[0]).get("enabled") is False:
            continue
        values = merged(values, nested(one.tolerations, list(system_nodes.TOLERATIONS)))
        if selected:
            values = merged(values, nested(one.node_selector, dict(system_nodes.LABELS)))
    objects = tuple(map(_selecting, plan.objects)) if selected else plan.objects
    return replace(plan, values=values, objects=objects)


def _at(values: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """Return the mapping at a dotted path, empty where there is none."""
    for key in path.split(".") if path else ():
        values = values.get(key, {})
    return values


def _selecting(manifest: Manifest) -> Manifest:
    """Return a Deployment whose pods select system nodes; other objects as they are."""
    if manifest["kind"] != "Deployment":
        return manifest
    pods = {"template": {"spec": {"nodeSelector": dict(system_nodes.LABELS)}}}
    return merged(manifest, {"spec": pods})
