"""Lookups in the resources of a stack."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from .model import Resource, dig, elements, mapping
from .names import CAPACITY_LABEL, CAPACITY_SPOT, TIER_LABEL
from .taints import Taint, tolerating
from .workloads import TRAIN_JOB, PodTemplate, namespace_of, pod_templates

CLUSTER_QUEUE: Final = "ClusterQueue"
COHORT: Final = "Cohort"
RESOURCE_FLAVOR: Final = "ResourceFlavor"
_KUEUE: Final = "kubernetes:kueue.x-k8s.io/"
_NAMESPACE: Final = "kubernetes:core/v1:Namespace"
_RUNTIMES: Final = (":TrainingRuntime", ":ClusterTrainingRuntime")
_OVERRIDES: Final = ("podTemplateOverrides", "runtimePatches")
"""TrainJob fields that override the runtime's pods, in the older and newer API of Kubeflow Trainer."""


@dataclass(frozen=True)
class Stack:
    """The resources of one stack."""

    resources: Sequence[Resource]

    def kueue(self, kind: str) -> Iterable[Resource]:
        """Yield Kueue's objects of one kind, in any API version."""
        for resource in self.resources:
            if resource.type.startswith(_KUEUE) and resource.type.endswith(f":{kind}"):
                yield resource

    def config_map(self, namespace: str, name: str) -> Mapping[str, Any]:
        """Return the ConfigMap's `data`; empty if the stack does not have it."""
        for resource in self.resources:
            if (
                resource.type == "kubernetes:core/v1:ConfigMap"
                and name_of(resource) == name
                and namespace_of(resource.props) == namespace
            ):
                return mapping(resource.props.get("data"))
        return {}

    def complete_templates(self, resource: Resource) -> Iterator[PodTemplate]:
        """Yield complete pod templates; those of its runtime for a TrainJob."""
        if resource.type.endswith(f":{TRAIN_JOB}"):
            yield from self._runtime_templates(resource)
        else:
            yield from (template for template in pod_templates(resource) if template.complete)

    def _runtime_templates(self, job: Resource) -> Iterator[PodTemplate]:
        """Yield the runtime's templates, unless the job overrides them or the runtime is elsewhere."""
        spec, namespace = job.props.get("spec"), namespace_of(job.props)
        if any(dig(spec, key) for key in _OVERRIDES):
            return
        for runtime in self.resources:
            named = name_of(runtime) == dig(spec, "runtimeRef", "name")
            local = runtime.type.endswith(_RUNTIMES[0])
            if not (named and runtime.type.endswith(_RUNTIMES)):
                continue
            if local and namespace_of(runtime.props) != namespace:
                continue
            for template in pod_templates(runtime):
                yield replace(
                    template,
                    kind=TRAIN_JOB,
                    path=f"{name_of(runtime)}: {template.path}",
                    owner_labels=dig(job.props, "metadata", "labels"),
                    namespace=namespace,
                    complete=True,
                )

    def namespaces_of_tier(self, tier: str) -> set[str]:
        """Return the namespaces of teams of this tier."""
        return {
            name_of(resource)
            for resource in self.resources
            if resource.type == _NAMESPACE
            and dig(resource.props, "metadata", "labels", TIER_LABEL) == tier
        }

    def namespaces_of_queue(self, cluster_queue: str) -> set[str]:
        """Return the namespaces whose LocalQueues point to a ClusterQueue."""
        return {
            namespace_of(local.props)
            for local in self.kueue("LocalQueue")
            if dig(local.props, "spec", "clusterQueue") == cluster_queue
        }

    def flavors_of_queue(self, namespace: str, queue: Any) -> set[str]:
        """Return the ResourceFlavors of a LocalQueue's ClusterQueue."""
        return {
            flavor
            for local in self.kueue("LocalQueue")
            if name_of(local) == queue and namespace_of(local.props) == namespace
            for cluster in self.kueue(CLUSTER_QUEUE)
            if name_of(cluster) == dig(local.props, "spec", "clusterQueue")
            for flavor, _ in flavor_quotas(cluster)
        }

    def spot_flavors(self, spot_taint: Taint) -> set[str]:
        """Return the flavors of spot nodes."""
        return {
            name_of(flavor)
            for flavor in self.kueue(RESOURCE_FLAVOR)
            if dig(flavor.props, "spec", "nodeLabels", CAPACITY_LABEL) == CAPACITY_SPOT
            or _tainted(flavor, spot_taint)
        }


def name_of(resource: Resource) -> str:
    """Return the object's name in the cluster."""
    return str(dig(resource.props, "metadata", "name"))


def flavor_quotas(cluster_queue: Resource) -> Iterable[tuple[str, Mapping[str, Any]]]:
    """Yield each flavor of a ClusterQueue or Cohort with its nominal quota by resource."""
    for group in elements(dig(cluster_queue.props, "spec", "resourceGroups")):
        for flavor in elements(dig(group, "flavors")):
            yield (
                str(dig(flavor, "name")),
                {
                    str(dig(entry, "name")): dig(entry, "nominalQuota")
                    for entry in elements(dig(flavor, "resources"))
                },
            )


def _tainted(flavor: Resource, taint: Taint) -> bool:
    spec = mapping(flavor.props.get("spec"))
    if tolerating(spec, taint) is not None:
        return True
    return any(dig(entry, "key") == taint.key for entry in elements(spec.get("nodeTaints")))
