"""Match pods to nodes and flavors by the scheduler's rules, as far as runs use them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Final

from infra.domain import naming, quantity
from ops import objects
from ops.objects import Json

_BLOCKING_EFFECTS: Final = ("NoSchedule", "NoExecute")

OTHER_LABELS: Final = "do not have the labels that the run requires"
TAINTED: Final = "have the taint "
"""Prefix of a reason that names taints."""


def matches(pod_spec: Json, labels: Mapping[str, str], *, known_keys_only: bool = False) -> bool:
    """Whether a pod's node selector and required node affinity accept these labels.

    `known_keys_only`: ignore terms on keys that `labels` lacks, as Kueue does with a flavor's labels.
    """
    for key, value in (pod_spec.get("nodeSelector") or {}).items():
        if labels.get(key) != value and (key in labels or not known_keys_only):
            return False
    affinity = (pod_spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = required.get("nodeSelectorTerms") or []
    return not terms or any(
        all(
            _holds(expression, labels)
            for expression in term.get("matchExpressions") or []
            if expression["key"] in labels or not known_keys_only
        )
        for term in terms
    )


def _holds(expression: Json, labels: Mapping[str, str]) -> bool:
    key, operator, values = (
        expression["key"],
        expression["operator"],
        expression.get("values") or [],
    )
    if operator == "In":
        return labels.get(key) in values
    if operator == "NotIn":
        return labels.get(key) not in values
    if operator == "Exists":
        return key in labels
    if operator == "DoesNotExist":
        return key not in labels
    number = labels.get(key, "")
    if not number.isdigit():
        return False
    return int(number) > int(values[0]) if operator == "Gt" else int(number) < int(values[0])


def untolerated_taints(pod_spec: Json, taints: Iterable[Json], *more: Json) -> list[str]:
    """Return untolerated taints as `KEY=VALUE:EFFECT`; `more`: tolerations added at admission."""
    tolerations = [*(pod_spec.get("tolerations") or []), *more]
    return [
        _taint_text(taint)
        for taint in taints
        if taint["effect"] in _BLOCKING_EFFECTS
        and not any(_tolerates(t, taint) for t in tolerations)
    ]


def _taint_text(taint: Json) -> str:
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint['key']}{value}:{taint['effect']}"


def _tolerates(toleration: Json, taint: Json) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", taint["key"])
    same_value = toleration.get("value", "") == taint.get("value", "")
    return bool(toleration.get("key") == taint["key"] and same_value)


def flavor_mismatch(pod_spec: Json, flavor: Json) -> str:
    """Return why a run can never be admitted to a flavor; empty if it can."""
    spec = flavor.get("spec") or {}
    if not matches(pod_spec, spec.get("nodeLabels") or {}, known_keys_only=True):
        return "the run's node affinity excludes it"
    taints = untolerated_taints(
        pod_spec, spec.get("nodeTaints") or [], *(spec.get("tolerations") or [])
    )
    return f"the run does not tolerate {', '.join(taints)}" if taints else ""


def node_rejections(pod_spec: Json, nodes: Iterable[Json], *more: Json) -> Counter[str]:
    """Count GPU nodes by rejection reason; nodes that fit count under ``""``.

    `more`: tolerations added at admission. Pods that already run on the nodes are ignored.
    """
    return Counter(
        _node_rejection(pod_spec, node, more)
        for node in nodes
        if has_gpus(node) or gpu_not_visible(node)
    )


def places(pod_spec: Json, nodes: Iterable[Json], *more: Json) -> int:
    """Return how many such pods the nodes could hold together, if they were idle.

    `more`: tolerations added at admission.
    """
    return sum(
        _places_on(pod_spec, node) for node in nodes if not _node_rejection(pod_spec, node, more)
    )


def _places_on(pod_spec: Json, node: Json) -> int:
    room = objects.status(node).get("allocatable") or {}
    wanted = {r: value for r, value in objects.requests(pod_spec).items() if value}
    return min(
        (int(quantity.parse(room.get(r, "0")) // value) for r, value in wanted.items()), default=0
    )


def has_gpus(node: Json) -> bool:
    offered = objects.status(node).get("allocatable") or {}
    return bool(quantity.parse(offered.get(naming.GPU, "0")))


def gpu_not_visible(node: Json) -> bool:
    """Whether it is labeled as a GPU node but has no allocatable GPU."""
    labelled = (
        objects.label(node, naming.ACCELERATOR) == "nvidia"
        or objects.label(node, naming.WORKLOAD_TYPE) == naming.GPU_TRAINING
    )
    return labelled and not has_gpus(node)


def _node_rejection(pod_spec: Json, node: Json, more: tuple[Json, ...]) -> str:
    if not matches(pod_spec, objects.meta(node).get("labels") or {}):
        return OTHER_LABELS
    if not objects.condition_is_true(node, "Ready"):
        return "are not ready"
    spec = node.get("spec") or {}
    if spec.get("unschedulable"):
        return "are cordoned"
    if taints := untolerated_taints(pod_spec, spec.get("taints") or [], *more):
        return f"{TAINTED}{', '.join(taints)}"
    if gpu_not_visible(node):
        return f"have no allocatable {naming.GPU}"
    room = objects.status(node).get("allocatable") or {}
    for resource, wanted in objects.requests(pod_spec).items():
        if wanted > quantity.parse(room.get(resource, "0")):
            return f"are too small: each pod requests {format_amount(wanted)} {resource}"
    return ""


def format_amount(value: Decimal) -> str:
    """Format a number without exponent and trailing zeros; 2^30 and more as Gi."""
    if value >= 2**30:
        return f"{value / 2**30:.4g}Gi"
    return f"{value.normalize():f}"
