"""Production runs use spot capacity only if the run opts in."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from infra.domain import naming
from infra.domain.pools import Capacity
from infra.domain.tier import PRODUCTION

from .gpu_pools import SPOT_TAINT
from .model import UNKNOWN, Config, Resource, StackRule, Violation, dig, elements, strings
from .stack import Stack, name_of
from .workloads import DAEMON_SET, PodTemplate, tolerates

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_RUN_RECORD: Final = "run.json"
"""Key of the run record in the run's ConfigMap."""


def _excludes_spot(spec: Mapping[str, Any], spot_pools: set[Any]) -> bool:
    """Whether the pod's node selector or required affinity names other pools only, or is not known yet."""
    selected = dig(spec, "nodeSelector", naming.POOL)
    terms = dig(spec, "affinity", "nodeAffinity", _REQUIRED, "nodeSelectorTerms")
    if selected is not None or terms is UNKNOWN:
        return selected not in spot_pools
    return bool(terms) and all(_names_others(term, spot_pools) for term in elements(terms))


def _names_others(term: Any, spot_pools: set[Any]) -> bool:
    return any(
        dig(expression, "key") == naming.POOL
        and dig(expression, "operator") == "In"
        and bool(spot_pools)
        and spot_pools.isdisjoint(strings(dig(expression, "values")))
        for expression in elements(dig(term, "matchExpressions"))
    )


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
        if isinstance(text, str) and Capacity.SPOT in json.loads(text)["capacity_types"]:
            return True
    return False


def _check(resources: Sequence[Resource], _: Config) -> Iterable[Violation]:
    stack = Stack(resources)
    namespaces = stack.namespaces_of_tier(PRODUCTION.name)
    flavors = stack.spot_flavors()
    spot_pools = {dig(flavor.props, "spec", "nodeLabels", naming.POOL) for flavor in flavors}
    for resource in resources:
        for template in stack.complete_templates(resource):
            of_tier = dig(template.owner_labels, naming.TIER) == PRODUCTION.name
            if (
                (of_tier or template.namespace in namespaces)
                and template.kind != DAEMON_SET
                and _may_use_spot(template, stack)
                and not _excludes_spot(template.spec, spot_pools)
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
