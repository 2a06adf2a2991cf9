"""Production runs use spot capacity only if the run opts in."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from .model import UNKNOWN, Config, Resource, StackRule, Violation, dig, elements
from .names import (
    CAPACITY_LABEL,
    CAPACITY_SPOT,
    EKS_CAPACITY_LABEL,
    KARPENTER_CAPACITY_LABEL,
    POOL_LABEL,
    QUEUE_LABEL,
    RUN_RECORD_FILE,
    SPOT_TAINT,
    TIER_LABEL,
    TIER_PRODUCTION,
)
from .stack import RESOURCE_FLAVOR, Stack, name_of
from .taints import Taint, taint_schema, tolerating
from .workloads import DAEMON_SET, PodTemplate

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_SPOT_LABEL_VALUES: Final[Mapping[str, set[Any]]] = {
    CAPACITY_LABEL: {CAPACITY_SPOT},
    KARPENTER_CAPACITY_LABEL: {CAPACITY_SPOT},
    EKS_CAPACITY_LABEL: {"SPOT"},
}
"""Label values of spot nodes: the platform's, Karpenter's and EKS's."""


def _spot_values(stack: Stack, spot: Taint) -> Mapping[str, set[Any]]:
    """Return by node label the values that only spot nodes have."""
    names = stack.spot_flavors(spot)
    pools = {
        dig(flavor.props, "spec", "nodeLabels", POOL_LABEL)
        for flavor in stack.kueue(RESOURCE_FLAVOR)
        if name_of(flavor) in names
    }
    return {POOL_LABEL: pools, **_SPOT_LABEL_VALUES}


def _excludes_spot(spec: Mapping[str, Any], spot_values: Mapping[str, set[Any]]) -> bool:
    """Whether the pod's node selector or required affinity excludes spot nodes."""
    for label, reclaimed in spot_values.items():
        chosen = dig(spec, "nodeSelector", label)
        if chosen is not None and chosen not in reclaimed:
            return True
    terms = dig(spec, "affinity", "nodeAffinity", _REQUIRED, "nodeSelectorTerms")
    if terms is UNKNOWN:
        return True
    return bool(terms) and all(_term_excludes_spot(term, spot_values) for term in elements(terms))


def _term_excludes_spot(term: Any, spot_values: Mapping[str, set[Any]]) -> bool:
    for expression in elements(dig(term, "matchExpressions")):
        reclaimed = spot_values.get(str(dig(expression, "key")), set())
        given = elements(dig(expression, "values"))
        if UNKNOWN in given:
            return True
        values = {value for value in given if isinstance(value, str)}
        if dig(expression, "operator") == "In" and reclaimed and not values & reclaimed:
            return True
        if dig(expression, "operator") == "NotIn" and reclaimed and reclaimed <= values:
            return True
    return False


def _may_use_spot(template: PodTemplate, stack: Stack, spot: Taint) -> bool:
    if tolerating(template.spec, spot) is not None:
        return True
    queue = dig(template.owner_labels, QUEUE_LABEL)
    return bool(stack.flavors_of_queue(template.namespace, queue) & stack.spot_flavors(spot))


def _run_record(template: PodTemplate, stack: Stack) -> Mapping[str, Any]:
    """Return the run record that the pod mounts; empty if none can be read."""
    for volume in elements(template.spec.get("volumes")):
        name = dig(volume, "configMap", "name")
        text = stack.config_map(template.namespace, str(name)).get(RUN_RECORD_FILE)
        if isinstance(text, str):
            try:
                record = json.loads(text)
            except json.JSONDecodeError:
                return {}
            return record if isinstance(record, Mapping) else {}
    return {}


def _opted_in(template: PodTemplate, stack: Stack) -> bool:
    """Whether the run record opts in to spot, or is not known yet."""
    for volume in elements(template.spec.get("volumes")):
        name = dig(volume, "configMap", "name")
        if name is UNKNOWN or UNKNOWN in stack.config_map(template.namespace, str(name)).values():
            return True
    return CAPACITY_SPOT in elements(_run_record(template, stack).get("capacity_types"))


def _check(resources: Sequence[Resource], config: Config) -> Iterable[Violation]:
    stack, spot = Stack(resources), Taint.parse(config["spotTaint"])
    spot_values, wanted = _spot_values(stack, spot), config["tier"]
    namespaces = stack.namespaces_of_tier(wanted)
    for resource in resources:
        for template in stack.complete_templates(resource):
            of_tier = dig(template.owner_labels, TIER_LABEL) == wanted
            if not (of_tier or template.namespace in namespaces):
                continue
            if template.kind == DAEMON_SET:
                continue
            if _opted_in(template, stack) or _excludes_spot(template.spec, spot_values):
                continue
            if not _may_use_spot(template, stack, spot):
                continue
            yield Violation(
                path=template.path,
                got=f"a run of tier {wanted} that may be placed on spot",
                expected="on-demand capacity, unless the run opts in to spot",
                remedy="set allowSpot: true in its run file, or keep it off the spot pools",
                urn=resource.urn,
            )


SPOT_FOR_PRODUCTION: Final = StackRule(
    name="spot-for-production",
    description="A production run uses spot only if its run file sets allowSpot: true.",
    check=_check,
    schema={
        "tier": {
            "type": "string",
            "default": TIER_PRODUCTION,
            "description": "Tier whose runs must opt in, as in the label trainyard.dev/tier",
        },
        "spotTaint": taint_schema(SPOT_TAINT, "Taint of nodes that can be reclaimed"),
    },
)
