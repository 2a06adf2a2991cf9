"""Production runs use spot capacity only if the run opts in."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from infra.domain import naming
from infra.domain.pools import Capacity
from infra.domain.prices import PURCHASE_LABELS, Purchase
from infra.domain.tier import PRODUCTION

from .gpu_pools import SPOT_TAINT
from .model import UNKNOWN, Config, Resource, StackRule, Violation, dig, elements, mapping, strings
from .stack import Stack, name_of
from .workloads import DAEMON_SET, PodTemplate, tolerates

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_RUN_RECORD: Final = "run.json"
"""Key of the run record in the run's ConfigMap."""
_SPOT_LABELS: Final[Mapping[str, set[Any]]] = {
    label: {value for value, purchase in values.items() if purchase is Purchase.SPOT}
    for label, values in PURCHASE_LABELS.items()
}
"""Label values of spot nodes: the platform's, Karpenter's and EKS's."""


def _spot_values(stack: Stack) -> Mapping[str, set[Any]]:
    """Return by node label the values that only spot nodes have."""
    flavors = stack.spot_flavors()
    pools = {dig(flavor.props, "spec", "nodeLabels", naming.POOL) for flavor in flavors}
    return {naming.POOL: pools, **_SPOT_LABELS}


def _excludes_spot(spec: Mapping[str, Any], spot_values: Mapping[str, set[Any]]) -> bool:
    """Whether the pod's node selector or required affinity excludes spot nodes."""
    for label, value in mapping(spec.get("nodeSelector")).items():
        if label in spot_values and value not in spot_values[label]:
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
        operator, values = dig(expression, "operator"), {*strings(given)}
        excluded = values.isdisjoint(reclaimed) if operator == "In" else reclaimed <= values
        if reclaimed and excluded and operator in ("In", "NotIn"):
            return True
    return False


def _may_use_spot(template: PodTemplate, stack: Stack) -> bool:
    if tolerates(template.spec, SPOT_TAINT):
        return True
    queue = dig(template.owner_labels, naming.QUEUE_NAME)
    names = {name_of(flavor) for flavor in stack.spot_flavors()}
    return bool(stack.flavors_of_queue(template.namespace, queue) & names)


def _opted_in(template: PodTemplate, stack: Stack) -> bool:
    """Whether the run record that the pod mounts opts in to spot, or is not known yet."""
    for volume in elements(template.spec.get("volumes")):
        name = dig(volume, "configMap", "name")
        text = stack.config_map(template.namespace, str(name)).get(_RUN_RECORD)
        if UNKNOWN in (name, text):
            return True
        try:
            record = json.loads(text) if isinstance(text, str) else {}
        except json.JSONDecodeError:
            continue
        if Capacity.SPOT in elements(dig(record, "capacity_types")):
            return True
    return False


def _check(resources: Sequence[Resource], _: Config) -> Iterable[Violation]:
    stack = Stack(resources)
    spot_values, namespaces = _spot_values(stack), stack.namespaces_of_tier(PRODUCTION.name)
    for resource in resources:
        for template in stack.complete_templates(resource):
            of_tier = dig(template.owner_labels, naming.TIER) == PRODUCTION.name
            if (
                (of_tier or template.namespace in namespaces)
                and template.kind != DAEMON_SET
                and _may_use_spot(template, stack)
                and not _excludes_spot(template.spec, spot_values)
                and not _opted_in(template, stack)
            ):
                yield Violation(
                    template.path,
                    f"a run of tier {PRODUCTION.name} that may be placed on spot",
                    "on-demand capacity, unless the run opts in to spot",
                    "set allowSpot: true in its run file, or keep it off the spot pools",
                    resource.urn,
                )


SPOT_FOR_PRODUCTION: Final = StackRule(
    name="spot-for-production",
    description="A production run uses spot only if its run file sets allowSpot: true.",
    check=_check,
)
