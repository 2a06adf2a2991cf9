"""GPU placement: requests, tolerations, labels and queue of pods on GPU nodes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from .model import UNKNOWN, Config, Resource, ResourceRule, Violation, dig, elements, mapping, show
from .names import GPU_RESOURCE, GPU_TAINT, QUEUE_LABEL, WORKLOAD_GPU, WORKLOAD_LABEL
from .taints import Taint, taint_schema, tolerating, tolerations_known
from .workloads import DAEMON_SET, TRAIN_JOB, Container, PodTemplate, pod_templates

_GPU_RESOURCES: Final = re.compile(re.escape(GPU_RESOURCE) + r"(\.shared)?|nvidia\.com/mig-.+")
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_QUEUE_REMEDY: Final = f"label it {QUEUE_LABEL}: TEAM, so that the queue admits it"


@dataclass(frozen=True)
class _Gpus:
    """GPU limits and requests of one container, by resource name."""

    limits: Mapping[str, Any]
    requests: Mapping[str, Any]


def _gpu_amounts(values: Any) -> dict[str, Any]:
    return {
        name: amount
        for name, amount in mapping(values).items()
        if _GPU_RESOURCES.fullmatch(name) and str(amount) != "0"
    }


def gpus(container: Container) -> _Gpus | None:
    """Return the container's GPU limits and requests; None if it has neither."""
    found = _Gpus(
        _gpu_amounts(container.resources.get("limits")),
        _gpu_amounts(container.resources.get("requests")),
    )
    return found if found.limits or found.requests else None


def _check_limits(container: Container) -> Iterator[Violation]:
    asked = gpus(container) or _Gpus({}, {})
    for name in sorted({*asked.limits, *asked.requests}):
        limit, request = asked.limits.get(name), asked.requests.get(name, asked.limits.get(name))
        if UNKNOWN in (limit, request) or str(limit) == str(request):
            continue
        yield Violation(
            path=f"{container.path}.resources",
            got=f"{name} limit {show(limit)}, request {show(request)}",
            expected="a limit equal to the request",
            remedy=f"set limits[{show(name)}] and requests[{show(name)}] to the same number",
        )


def _requires_label(spec: Mapping[str, Any]) -> bool | None:
    """Whether the pod requires the label of GPU nodes; None if not known yet."""
    selector = dig(spec, "nodeSelector")
    selected = dig(spec, "nodeSelector", WORKLOAD_LABEL)
    required = dig(spec, "affinity", "nodeAffinity", _REQUIRED)
    terms = dig(required, "nodeSelectorTerms")
    if selected == WORKLOAD_GPU:
        return True
    if elements(terms) and all(_term_requires(term) for term in elements(terms)):
        return True
    return None if UNKNOWN in (selector, selected, required, terms) else False


def _term_requires(term: Any) -> bool:
    """Terms are alternatives, expressions inside one must all hold."""
    return any(
        dig(expression, "key") == WORKLOAD_LABEL
        and dig(expression, "operator") == "In"
        and list(elements(dig(expression, "values"))) == [WORKLOAD_GPU]
        for expression in elements(dig(term, "matchExpressions"))
    )


def _check_gpu_pod(template: PodTemplate, taint: Taint) -> Iterator[Violation]:
    """Check toleration and placement of a pod that requests GPUs."""
    spec, path = template.spec, template.path
    if template.complete and tolerations_known(spec) and tolerating(spec, taint) is None:
        yield Violation(
            path=f"{path}.tolerations",
            got="no toleration of the GPU taint",
            expected=f"a toleration of {taint}",
            remedy="add the tolerations of the node pool: otherwise the pod is unschedulable",
        )
    if template.complete and _requires_label(spec) is False:
        yield Violation(
            path=f"{path}.nodeSelector",
            got=show(spec.get("nodeSelector") or {}),
            expected=f"{WORKLOAD_LABEL}: {WORKLOAD_GPU}, here or as required node affinity",
            remedy="add the labels of the node pool",
        )
    if spec.get("nodeName") not in (None, "", UNKNOWN):
        yield Violation(
            path=f"{path}.nodeName",
            got=show(spec.get("nodeName")),
            expected="no nodeName",
            remedy="remove it: it bypasses the scheduler and the queue",
        )


def _check_queue_label(template: PodTemplate) -> Iterator[Violation]:
    labels = template.owner_labels
    if UNKNOWN in (labels, dig(labels, QUEUE_LABEL)) or dig(labels, QUEUE_LABEL):
        return
    # The TrainJob itself is queued, whatever its runtime adds to its pods.
    if template.complete or template.kind == TRAIN_JOB:
        yield Violation(
            path=template.owner_labels_path,
            got=f"no {QUEUE_LABEL}",
            expected="the LocalQueue of the team",
            remedy=_QUEUE_REMEDY,
        )


def _takes_gpus_from_runtime(template: PodTemplate) -> bool:
    """Whether it is a TrainJob without trainer resources, which inherits its runtime's GPUs."""
    trainer = template.kind == TRAIN_JOB and template.path.endswith("spec.trainer")
    return trainer and not any(container.resources for container in template.containers)


def _check_idle_pod(template: PodTemplate, taint: Taint) -> Iterator[Violation]:
    """Reject pods without GPUs that tolerate the GPU taint, except DaemonSets."""
    index = tolerating(template.spec, taint)
    if index is None or template.kind == DAEMON_SET or not template.complete:
        return
    yield Violation(
        path=f"{template.path}.tolerations[{index}]",
        got=f"{show(template.spec['tolerations'][index])} on a pod without GPUs",
        expected=f"tolerations of {taint} only on pods that request GPUs",
        remedy=f'remove it, or set resources.limits["{GPU_RESOURCE}"]',
    )


def _check(resource: Resource, config: Config) -> Iterable[Violation]:
    taint = Taint.parse(config["gpuTaint"])
    templates = list(pod_templates(resource))
    with_gpus = [t for t in templates if any(gpus(container) for container in t.containers)]
    for template in with_gpus:
        yield from _check_gpu_pod(template, taint)
        for container in template.containers:
            yield from _check_limits(container)
    owners = [*with_gpus, *(t for t in templates if _takes_gpus_from_runtime(t))]
    for owner in {template.owner_labels_path: template for template in owners}.values():
        yield from _check_queue_label(owner)
    if not with_gpus:
        # A gang of GPU pods may include one without GPUs, such as the MPI launcher.
        for template in templates:
            yield from _check_idle_pod(template, taint)


GPU_PLACEMENT: Final = ResourceRule(
    name="gpu-placement",
    description="Pods on GPU nodes request GPUs, and pods that request GPUs are queued and go there.",
    check=_check,
    schema={"gpuTaint": taint_schema(GPU_TAINT, "Taint of every GPU node")},
)
