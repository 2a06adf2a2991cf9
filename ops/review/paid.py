"""What node pools have besides their own resource: launch templates, and what was paid for reservations."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from infra.domain import naming
from ops.review.steps import Preview

TEMPLATE: Final = "aws:ec2/launchTemplate:LaunchTemplate"

Inputs = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What belongs to node pools on one side of a change."""

    templates: Mapping[str, Inputs] = field(default_factory=dict)
    """Launch templates by pool."""
    usd_paid: Mapping[str, float | None] = field(default_factory=dict)
    """USD per hour that was paid for a reserved node, by pool; None: the stack file does not say."""


def before_and_after(preview: Preview) -> tuple[Surroundings, Surroundings]:
    """Return what surrounds the pools before and after a change.

    What was paid for a reservation is in the stack's configuration, of which a preview has the new one, and in the
    record that each team may read, of which it has both. Without a record, the price did not change.
    """
    old = [(step.kind, step.old) for step in preview.steps if step.old]
    new = [(step.kind, step.new) for step in preview.steps if step.new]
    after = _recorded(new) | _configured(preview.node_pools)
    return (
        Surroundings(templates=_templates(old), usd_paid=after | _recorded(old)),
        Surroundings(templates=_templates(new), usd_paid=after),
    )


def tagged_pool(template: Inputs) -> str:
    """Return the pool whose nodes a launch template makes, by the tags of its instances; empty for others."""
    tags: dict[str, str] = {}
    for one in template.get("tagSpecifications") or ():
        tags |= one.get("tags") or {}
    return str(tags.get(naming.POOL) or "")


def _templates(resources: Iterable[tuple[str, Inputs]]) -> dict[str, Inputs]:
    return {tagged_pool(inputs): inputs for kind, inputs in resources if kind == TEMPLATE}


def _configured(pools: str) -> dict[str, float | None]:
    """Return what the stack file says was paid; nothing for text that is not valid."""
    try:
        return _paid(json.loads(pools or "[]"), "usdPerNodeHour")
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}


def _recorded(resources: Iterable[tuple[str, Inputs]]) -> dict[str, float | None]:
    """Return what the records of teams say was paid; nothing for text that is not valid."""
    found: dict[str, float | None] = {}
    for kind, inputs in resources:
        if kind != "kubernetes:core/v1:ConfigMap":
            continue
        try:
            text = (inputs.get("data") or {}).get(naming.PLATFORM_RECORD_KEY) or "{}"
            pools = (json.loads(text).get("platform") or {}).get("pools") or []
            found |= _paid(pools, "usd_per_node_hour")
        except (ValueError, TypeError, KeyError, AttributeError):
            continue
    return found


def _paid(pools: Iterable[Mapping[str, Any]], key: str) -> dict[str, float | None]:
    reserved = {str(one["name"]): one["reservation"] for one in pools if one.get("reservation")}
    return {
        name: None if one.get(key) is None else float(one[key]) for name, one in reserved.items()
    }
