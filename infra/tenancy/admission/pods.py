"""What pods in team namespaces may request: resources, volumes, images and places; and Services.

A team uses only the storage that the platform created for it: a pod or JobSet can contain a claim template, of
which a controller creates the claim, without regard to the deployer's permissions and without a quota.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from infra.domain import naming
from infra.domain.pools import Taint
from infra.domain.scheduler import MAX_GRACE_S
from infra.kubernetes import pod_templates
from infra.kubernetes.admission_policy import Rule, policy, resources, text, texts
from infra.kubernetes.controller_accounts import DAEMON_SET, EPHEMERAL_VOLUMES, OWNERS, is_one_of
from infra.kubernetes.objects import Manifest


def forbid_external_services() -> Manifest:
    """Forbid external addresses: with `externalIPs` a Service receives the traffic that all nodes send to that
    address (CVE-2020-8554), such as a bucket's."""
    return policy(
        "services",
        matches=[resources("", "services")],
        rules=[
            Rule(
                holds="object.spec.?externalIPs.orValue([]).size() == 0",
                message="externalIPs are not allowed; Services must be internal; use a headless Service",
            ),
            Rule(
                holds="object.spec.?type.orValue('ClusterIP') == 'ClusterIP'",
                message=(
                    "this Service is reachable from outside; "
                    "it must be of type ClusterIP; set type: ClusterIP"
                ),
            ),
        ],
    )


_FORBIDDEN_KINDS: Final = ("csi", "ephemeral")
"""Kinds of volumes that Pod Security allows and that create storage or call a driver."""

_TEMPLATES: Final = ("volumeClaimPolicies", "volumeClaimTemplates")
"""Fields with claims of a JobSet and a StatefulSet."""

_CLAIM: Final = "request.kind.kind == 'PersistentVolumeClaim'"
_REMEDY: Final = (
    f"mount the claims {naming.CHECKPOINTS_CLAIM} and {naming.DATASETS_CLAIM}, or an emptyDir"
)


def require_platform_volumes() -> Manifest:
    """Forbid volumes and claims that create storage."""
    return policy(
        "volumes",
        matches=[
            *pod_templates.everything_with_pods(),
            resources("", "persistentvolumeclaims", operations=("CREATE",)),
        ],
        conditions=pod_templates.NEW_PODS,
        variables=pod_templates.PODS,
        rules=[
            Rule(
                holds=(
                    f"{_CLAIM} || variables.pods.all(p, p.spec.?volumes.orValue([])"
                    f".all(v, v.all(k, !(k in {texts(_FORBIDDEN_KINDS)}))))"
                ),
                message=f"volumes of type {' and '.join(_FORBIDDEN_KINDS)} are not allowed; {_REMEDY}",
            ),
            Rule(
                holds=(
                    f"{_CLAIM} || {texts(_TEMPLATES)}.all(k, "
                    "!(k in dyn(object).spec) || dyn(object).spec[k].size() == 0)"
                ),
                message=f"claim templates are not allowed; {_REMEDY}; remove {' and '.join(_TEMPLATES)}",
            ),
            Rule(
                holds=f"!({_CLAIM}) || !({is_one_of((*OWNERS, *EPHEMERAL_VOLUMES))})",
                message=f"controllers may not create claims; only the platform does; {_REMEDY}",
            ),
        ],
    )


_COUNTED = ("cpu", "memory", "ephemeral-storage", naming.GPU, naming.EFA)
_COUNTED_KINDS: Final = ("hugepages-", naming.RDMA_RESOURCES)


def _is_requested(resource: str) -> str:
    """Return CEL: container `c` requests some of it.

    A limit alone is not enough: Kueue books the LimitRange's default request for it, or never admits the run if
    that exceeds the limit, while the pod gets the limit as its request.
    """
    asked = f"c.?resources.?requests.?{resource}.orValue('0')"
    return f"quantity(string({asked})).isGreaterThan(quantity('0'))"


def _each(test: str) -> str:
    return f"variables.containers.all(cs, cs.all(c, {test}))"


def require_resource_requests() -> Manifest:
    """Require requests of countable resources on every container, and forbid other ways to devices."""
    beginnings = " || ".join(f"r.startsWith({text(one)})" for one in _COUNTED_KINDS)
    counted = f"r in {texts(_COUNTED)} || {beginnings}"
    return policy(
        "requests",
        matches=pod_templates.everything_with_pods(),
        conditions=pod_templates.NEW_PODS,
        variables=pod_templates.PODS,
        rules=[
            Rule(
                holds=_each(f"{_is_requested('cpu')} && {_is_requested('memory')}"),
                message=(
                    "a container has no request for cpu or memory; all must, including init containers, and a "
                    "limit is not enough; add resources.requests"
                ),
            ),
            Rule(
                holds=_each(
                    " && ".join(
                        f"c.?resources.?{part}.orValue({{}}).all(r, {counted})"
                        for part in ("requests", "limits")
                    )
                ),
                message=(
                    "a requested resource is not counted by queues; "
                    f"valid are {', '.join(_COUNTED)}; remove it"
                ),
            ),
            Rule(
                holds=(
                    "variables.pods.all(p, p.spec.?terminationGracePeriodSeconds.orValue(30) "
                    f"<= {MAX_GRACE_S})"
                ),
                message=(
                    f"terminationGracePeriodSeconds must be at most {MAX_GRACE_S}, so that evicted pods release "
                    "their node; lower it"
                ),
            ),
            Rule(
                holds="variables.pods.all(p, p.spec.?resourceClaims.orValue([]).size() == 0)",
                message=(
                    "resource claims are not allowed, because queues do not count them; "
                    "request nvidia.com/gpu instead"
                ),
            ),
        ],
    )


def forbid_resource_claims() -> Manifest:
    """Forbid resource claims, which neither queues nor quotas count."""
    return policy(
        "claims",
        matches=[resources("resource.k8s.io", "resourceclaims", "resourceclaimtemplates")],
        rules=[
            Rule(
                holds="has(object.metadata.deletionTimestamp)",
                message=(
                    "resource claims are not allowed, because queues do not count them; "
                    "request nvidia.com/gpu instead"
                ),
            )
        ],
    )


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


_DIGEST = "@sha256:[0-9a-f]{64}"
_OF_TRAIN_JOB = "dyn(object).spec.?trainer.?image.orValue('')"


def pattern(registries: Sequence[str]) -> str:
    """Return RE2 for images by digest in or below these registries or repositories.

    Without registries nothing matches.
    """
    allowed = "|".join(re.escape(registry) for registry in registries)
    # A tag before the digest is allowed; the digest decides.
    return f"^({allowed})(/[^@]*)?(:[^/@]+)?{_DIGEST}$" if registries else r"^\b$"


def require_image_digests(registries: Sequence[str]) -> Manifest:
    good = f".matches({text(pattern(registries))})"
    allowed = (
        f"one of {', '.join(registries)}"
        if registries
        else "a registry that the stack file lists (none yet)"
    )
    return policy(
        "images",
        matches=pod_templates.everything_with_pods(),
        conditions=pod_templates.NEW_PODS,
        variables=pod_templates.PODS,
        rules=[
            Rule(
                holds=f"variables.containers.all(cs, cs.all(c, c.?image.orValue(''){good}))",
                message=(
                    "an image is not valid; "
                    f"it must be REPOSITORY@sha256:DIGEST in {allowed}; correct it"
                ),
            ),
            Rule(
                # Its pods are in its runtime, and get this image in place of the runtime's.
                holds=(
                    f"request.kind.kind != 'TrainJob' || {_OF_TRAIN_JOB} == '' || "
                    f"{_OF_TRAIN_JOB}{good}"
                ),
                message=(
                    "spec.trainer.image is not valid; "
                    f"it must be REPOSITORY@sha256:DIGEST in {allowed}; correct it"
                ),
            ),
            Rule(
                holds=(
                    "variables.pods.all(p, p.spec.?volumes.orValue([])"
                    f".all(v, !has(v.image) || v.image.?reference.orValue(''){good}))"
                ),
                message=(
                    "an image volume is not valid; "
                    f"its reference must be REPOSITORY@sha256:DIGEST in {allowed}; correct it"
                ),
            ),
        ],
    )
