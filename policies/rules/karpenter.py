"""Autoscalers must not disrupt nodes that run training."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from .gpu_pools import gpu_pool
from .model import UNKNOWN, Config, Resource, ResourceRule, Violation, dig, elements, number, show
from .names import SPOT_NOTICE_S
from .resource_types import HELM_RELEASE, KARPENTER_POOL

_THRESHOLD: Final = "scale-down-gpu-utilization-threshold"
_MOST_USED: Final = 0.05
_DURATION: Final = re.compile(r"([0-9]+)([hms])")
_SECONDS: Final = {"h": 3600, "m": 60, "s": 1}


def _check_value(path: str, got: Any, allowed: str, remedy: str) -> Iterator[Violation]:
    if got not in (allowed, UNKNOWN):
        yield Violation(path=path, got=show(got), expected=show(allowed), remedy=remedy)


def _is_within(budget: Any, percent: int, most_nodes: float | None) -> bool:
    """Whether the budget applies always, for all reasons, and allows at most `percent` disrupted."""
    nodes = dig(budget, "nodes")
    if UNKNOWN in (budget, nodes):
        return True
    if dig(budget, "schedule") or elements(dig(budget, "reasons")):
        return False
    if isinstance(nodes, str) and nodes.endswith("%"):
        share = number(nodes.removesuffix("%"))
        return share is not None and share <= percent
    count = number(nodes)
    # Karpenter rounds a percentage up, so one node of a small pool may always be disrupted.
    most = math.ceil((most_nodes or 0) * percent / 100)
    return count is not None and count <= most


def _check_budgets(spec: Any, percent: int) -> Iterator[Violation]:
    budgets = dig(spec, "disruption", "budgets")
    if budgets is UNKNOWN or (budgets is None and percent >= 10):
        return  # Karpenter's default budget is 10 %.
    most_nodes = number(dig(spec, "limits", "nodes"))
    if not any(_is_within(budget, percent, most_nodes) for budget in elements(budgets)):
        yield Violation(
            path="spec.disruption.budgets",
            got=show(budgets),
            expected=f"a budget of at most {percent}% without schedule and reasons",
            remedy=f'add {{"nodes": "{percent}%"}}: otherwise an AMI upgrade disrupts many gangs at once',
        )


def _check_drain_time(spec: Any) -> Iterator[Violation]:
    """Check terminationGracePeriod, after which Karpenter deletes the node regardless of its pods."""
    value = dig(spec, "template", "spec", "terminationGracePeriod")
    parts = _DURATION.findall(value) if isinstance(value, str) else []
    if parts and sum(int(count) * _SECONDS[unit] for count, unit in parts) < SPOT_NOTICE_S:
        yield Violation(
            path="spec.template.spec.terminationGracePeriod",
            got=show(value),
            expected=f"at least {SPOT_NOTICE_S}s, the maximum save time of a run on spot",
            remedy="raise it: otherwise drained nodes are deleted before their pods have saved",
        )


def _check_autoscaler(props: Mapping[str, Any]) -> Iterator[Violation]:
    """Check the GPU utilization below which the Cluster Autoscaler drains a node."""
    chart, arguments = props.get("chart"), dig(props, "values", "extraArgs")
    if "cluster-autoscaler" not in str(chart) or arguments is UNKNOWN:
        return
    threshold = dig(arguments, _THRESHOLD)
    share = number(threshold)
    if threshold is UNKNOWN or dig(arguments, "scale-down-enabled") in (False, "false", UNKNOWN):
        return
    if share is None or share > _MOST_USED:
        yield Violation(
            path=f"values.extraArgs.{_THRESHOLD}",
            got="none (default 0.5)" if threshold is None else show(threshold),
            expected=f"at most {_MOST_USED}, less than one GPU of a node",
            remedy="lower it: otherwise runs that use half of a node are evicted",
        )


def _check(resource: Resource, config: Config) -> Iterable[Violation]:
    if resource.type == HELM_RELEASE:
        yield from _check_autoscaler(resource.props)
    if resource.type != KARPENTER_POOL or gpu_pool(resource) is None:
        return
    spec: Mapping[str, Any] = dig(resource.props, "spec")
    yield from _check_value(
        "spec.disruption.consolidationPolicy",
        dig(spec, "disruption", "consolidationPolicy"),
        "WhenEmpty",
        "set it: consolidation evicts pods, and a gang loses its work since the last checkpoint",
    )
    yield from _check_value(
        "spec.template.spec.expireAfter",
        dig(spec, "template", "spec", "expireAfter"),
        "Never",
        "set it: by default nodes expire after 720 hours, with the gangs on them",
    )
    yield from _check_budgets(spec, config["maxBudgetPercent"])
    yield from _check_drain_time(spec)


KARPENTER_DISRUPTION: Final = ResourceRule(
    name="karpenter-disruption",
    description="Training nodes are removed only when empty, few at a time, and never by age.",
    check=_check,
    schema={
        "maxBudgetPercent": {
            "type": "integer",
            "minimum": 0,
            "maximum": 100,
            "default": 10,
            "description": "Maximum percentage of a pool's nodes that may be disrupted at once",
        }
    },
)
