"""Only the scheduler places pods, and only where they belong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from infra.domain import naming
from infra.kubernetes import pod_templates
from infra.kubernetes.admission_policy import Rule, policy, resources, text, texts
from infra.kubernetes.controller_accounts import DAEMON_SET, is_one_of
from infra.kubernetes.objects import Manifest

_CONDITIONS: Final = [
    f"node.kubernetes.io/{condition}"
    for condition in (
        "not-ready",
        "unreachable",
        "memory-pressure",
        "disk-pressure",
        "pid-pressure",
        "network-unavailable",
    )
]
"""Taints that say how a node is: Kubernetes itself makes pods tolerate them."""

_AFFINITIES: Final = ("podAffinity", "podAntiAffinity")
_EXCLUSIVE: Final = "alpha.jobset.sigs.k8s.io/exclusive-topology"
"""By this annotation JobSet keeps the JobSets of all namespaces away from a whole zone or rack."""


def _own_pods_only(pod: str) -> str:
    """CEL: affinities of a pod are to pods of its own namespace. An anti-affinity to those of others keeps
    them off every node of its topology's domain, GPU nodes too, for as long as the pod is there."""
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    terms = " + ".join(
        f"{pod}.spec.?affinity.?{kind}.?{required}.orValue([]) + "
        f"{pod}.spec.?affinity.?{kind}.?{preferred}.orValue([]).map(w, w.podAffinityTerm)"
        for kind in _AFFINITIES
    )
    own = "t.?namespaces.orValue([]).all(n, n == request.namespace)"
    return f"({terms}).all(t, !has(t.namespaceSelector) && {own})"


def _not_exclusive() -> str:
    """CEL: a JobSet does not ask for what `_own_pods_only` would refuse to its pods."""
    jobs = "dyn(object).spec.?replicatedJobs.orValue([]).map(j, j.template)"
    return (
        "request.kind.kind != 'JobSet' || "
        f"([dyn(object)] + {jobs}).all(o, !({text(_EXCLUSIVE)} in "
        "o.?metadata.?annotations.orValue({})))"
    )


def _exact(key: str, value: str) -> str:
    return (
        f"(t.?key.orValue('') == {text(key)} && t.?operator.orValue('Equal') == 'Equal' && "
        f"t.?value.orValue('') == {text(value)} && t.?effect.orValue('') == 'NoSchedule')"
    )


def _tolerated(taint_key: str) -> str:
    """CEL: `t` tolerates one of our taints exactly, a device's own taint, or a node's condition."""
    devices = [key for key in (naming.GPU, naming.EFA) if key != taint_key]
    return " || ".join(
        [
            f"t.?key.orValue('') in {texts(_CONDITIONS)}",
            _exact(taint_key, naming.GPU_TRAINING),
            _exact(naming.SPOT_TAINT, "true"),
            # The API server adds these to pods that ask for the device, where it is configured so.
            f"(t.?key.orValue('') in {texts(devices)} && t.?effect.orValue('') == 'NoSchedule')",
            f"(t.?key.orValue('') == 'node.kubernetes.io/unschedulable' && {is_one_of(DAEMON_SET)})",
        ]
    )


def placement_policy(taint_key: str) -> Manifest:
    """No pod names its node, its runtime, another team's pods, or a taint that is none of its business."""
    ours = f"{taint_key}={naming.GPU_TRAINING}:NoSchedule and {naming.SPOT_TAINT}=true:NoSchedule"
    return policy(
        "placement",
        matches=pod_templates.everything_with_pods(),
        conditions=pod_templates.NEW_PODS,
        variables=pod_templates.PODS,
        rules=[
            Rule(
                holds="variables.pods.all(p, p.spec.?nodeName.orValue('') == '')",
                message="the scheduler chooses the node; remove nodeName, or use nodeSelector",
            ),
            Rule(
                holds=(
                    "variables.pods.all(p, p.spec.?tolerations.orValue([]).all(t, "
                    f"{_tolerated(taint_key)}))"
                ),
                message=f"tolerations are for {ours}, by key and value; remove the others",
            ),
            Rule(
                holds="variables.pods.all(p, p.spec.?runtimeClassName.orValue('') == '')",
                message="a runtime class can bring tolerations of its own; remove runtimeClassName",
            ),
            Rule(
                holds=f"variables.pods.all(p, {_own_pods_only('p')})",
                message=(
                    "no pod keeps other teams' pods off nodes; remove namespaces and "
                    "namespaceSelector from its affinities"
                ),
            ),
            Rule(
                holds=_not_exclusive(),
                message=f"no JobSet keeps other teams' off nodes; remove {_EXCLUSIVE}",
            ),
        ],
    )


def require_scheduler_binding(schedulers: Sequence[str]) -> Manifest:
    """Binding a pod to a node is placing it."""
    return policy(
        "binding",
        matches=[resources("", "pods/binding", "bindings", operations=("CREATE",))],
        rules=[
            Rule(
                holds=is_one_of(schedulers),
                message="only the scheduler binds pods to nodes; use nodeSelector or affinity",
            )
        ],
    )
