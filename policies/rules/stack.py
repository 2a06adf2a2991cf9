"""Look-ups in the resources of a whole stack."""

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
"""By which a TrainJob changes the pods of its runtime, in Kubeflow Trainer's older and newer API."""


@dataclass(frozen=True)
class Stack:
    """The resources of one stack."""

    resources: Sequence[Resource]

    def kueue(self, kind: str) -> Iterable[Resource]:
        """Kueue's objects of one kind, whatever their API version."""
        for resource in self.resources:
            if resource.type.startswith(_KUEUE) and resource.type.endswith(f":{kind}"):
                yield resource

    def config_map(self, namespace: str, name: str) -> Mapping[str, Any]:
        """The ConfigMap's `data`, empty if the stack has no such ConfigMap."""
        for resource in self.resources:
            if (
                resource.type == "kubernetes:core/v1:ConfigMap"
                and name_of(resource) == name
                and namespace_of(resource.props) == namespace
            ):
                return mapping(resource.props.get("data"))
        return {}

    def complete_templates(self, resource: Resource) -> Iterator[PodTemplate]:
        """Pod templates that say all of their pods; of a TrainJob those of its runtime."""
        if resource.type.endswith(f":{TRAIN_JOB}"):
            yield from self._runtime_templates(resource)
        else:
            yield from (template for template in pod_templates(resource) if template.complete)

    def _runtime_templates(self, job: Resource) -> Iterator[PodTemplate]:
        """What a TrainJob takes as it is; nothing where it overrides pods, or the runtime is elsewhere."""
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
        """Names of the namespaces whose teams are of this tier."""
        return {
            name_of(resource)
            for resource in self.resources
            if resource.type == _NAMESPACE
            and dig(resource.props, "metadata", "labels", TIER_LABEL) == tier
        }

    def namespaces_of_queue(self, cluster_queue: str) -> set[str]:
        """Names of the namespaces whose LocalQueues lead to a ClusterQueue."""
        return {
            namespace_of(local.props)
            for local in self.kueue("LocalQueue")
            if dig(local.props, "spec", "clusterQueue") == cluster_queue
        }

    def flavors_of_queue(self, namespace: str, queue: Any) -> set[str]:
        """Names of the ResourceFlavors that a LocalQueue leads to."""
        return {
            flavor
            for local in self.kueue("LocalQueue")
            if name_of(local) == queue and namespace_of(local.props) == namespace
            for cluster in self.kueue(CLUSTER_QUEUE)
            if name_of(cluster) == dig(local.props, "spec", "clusterQueue")
            for flavor, _ in flavor_quotas(cluster)
        }

    def spot_flavors(self, spot_taint: Taint) -> set[str]:
        """Names of the flavors whose nodes can be reclaimed."""
        return {
            name_of(flavor)
            for flavor in self.kueue(RESOURCE_FLAVOR)
            if dig(flavor.props, "spec", "nodeLabels", CAPACITY_LABEL) == CAPACITY_SPOT
            or _tainted(flavor, spot_taint)
        }


def name_of(resource: Resource) -> str:
    """The object's name in the cluster."""
    return str(dig(resource.props, "metadata", "name"))


def flavor_quotas(cluster_queue: Resource) -> Iterable[tuple[str, Mapping[str, Any]]]:
    """Per flavor of a ClusterQueue or Cohort: its name, and the nominal quota of each resource."""
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
