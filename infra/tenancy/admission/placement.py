"""Only the scheduler places pods, and only on nodes that they may use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from infra.domain import naming
from infra.domain.pools import Taint
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
"""Taints of node conditions, which Kubernetes itself makes pods tolerate."""

_AFFINITIES: Final = ("podAffinity", "podAntiAffinity")
_EXCLUSIVE: Final = "alpha.jobset.sigs.k8s.io/exclusive-topology"
"""With this annotation JobSet keeps the JobSets of all namespaces out of a zone or rack."""


def _own_pods_only(pod: str) -> str:
    """Return CEL: a pod's affinities refer to pods of its own namespace. An anti-affinity to other namespaces
    would keep their pods off every node of the topology domain."""
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
    """Return CEL: a JobSet does not request what `_own_pods_only` would reject for its pods."""
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


def _tolerated(gpu_taint: Taint) -> str:
    """Return CEL: `t` tolerates exactly a pool's taint, a device's taint, or a node condition."""
    devices = [key for key in (naming.GPU, naming.EFA) if key != gpu_taint.key]
    return " || ".join(
        [
            f"t.?key.orValue('') in {texts(_CONDITIONS)}",
            _exact(gpu_taint.key, gpu_taint.value),
            _exact(naming.SPOT_TAINT, "true"),
            # The API server adds these to pods that ask for the device, where it is configured so.
            f"(t.?key.orValue('') in {texts(devices)} && t.?effect.orValue('') == 'NoSchedule')",
            f"(t.?key.orValue('') == 'node.kubernetes.io/unschedulable' && {is_one_of(DAEMON_SET)})",
        ]
    )


def placement_policy(gpu_taint: Taint) -> Manifest:
    """Forbid pods that name a node, a runtime class, other teams' pods, or foreign taints."""
    ours = f"{gpu_taint.key}={gpu_taint.value}:NoSchedule and {naming.SPOT_TAINT}=true:NoSchedule"
    return policy(
        "placement",
        matches=pod_templates.everything_with_pods(),
        conditions=pod_templates.NEW_PODS,
        variables=pod_templates.PODS,
        rules=[
            Rule(
                holds="variables.pods.all(p, p.spec.?nodeName.orValue('') == '')",
                message=(
                    "nodeName is not allowed; only the scheduler chooses nodes; "
                    "remove it, or use nodeSelector"
                ),
            ),
            Rule(
                holds=(
                    "variables.pods.all(p, p.spec.?tolerations.orValue([]).all(t, "
                    f"{_tolerated(gpu_taint)}))"
                ),
                message=f"a toleration is not allowed; valid are {ours}, by key and value; remove the others",
            ),
            Rule(
                holds="variables.pods.all(p, p.spec.?runtimeClassName.orValue('') == '')",
                message="runtimeClassName is not allowed, because a runtime class can add tolerations; remove it",
            ),
            Rule(
                holds=f"variables.pods.all(p, {_own_pods_only('p')})",
                message=(
                    "affinities may refer only to pods of their own namespace; remove namespaces and "
                    "namespaceSelector from them"
                ),
            ),
            Rule(
                holds=_not_exclusive(),
                message=f"exclusive placement is not allowed, because it affects other teams; remove {_EXCLUSIVE}",
            ),
        ],
    )


def require_scheduler_binding(schedulers: Sequence[str]) -> Manifest:
    """Let only these users bind pods to nodes."""
    return policy(
        "binding",
        matches=[resources("", "pods/binding", "bindings", operations=("CREATE",))],
        rules=[
            Rule(
                holds=is_one_of(schedulers),
                message="only the scheduler may bind pods to nodes; use nodeSelector or affinity",
            )
        ],
    )
