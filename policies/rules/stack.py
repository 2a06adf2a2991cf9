"""Lookups in the resources of a stack."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from infra.domain import naming

from .gpu_pools import SPOT_TAINT
from .model import Resource, dig, elements, mapping
from .resource_types import CONFIG_MAP
from .workloads import TRAIN_JOB, PodTemplate, namespace_of, pod_templates, tolerates

CLUSTER_QUEUE: Final = "ClusterQueue"
COHORT: Final = "Cohort"
RESOURCE_FLAVOR: Final = "ResourceFlavor"
_KUEUE: Final = f"kubernetes:{naming.KUEUE_API}:"
_NAMESPACE: Final = "kubernetes:core/v1:Namespace"


@dataclass(frozen=True)
class Stack:
    resources: Sequence[Resource]

    def kueue(self, kind: str) -> Iterable[Resource]:
        return (r for r in self.resources if r.type == f"{_KUEUE}{kind}")

    def config_map(self, namespace: str, name: str) -> Mapping[str, Any]:
        """Return the ConfigMap's `data`; empty if the stack does not have it."""
        for resource in self.resources:
            if (
                resource.type == CONFIG_MAP
                and name_of(resource) == name
                and namespace_of(resource.props) == namespace
            ):
                return mapping(resource.props.get("data"))
        return {}

    def complete_templates(self, resource: Resource) -> Iterator[PodTemplate]:
        """Yield complete pod templates; those of its runtime in the same namespace for a TrainJob."""
        if not resource.type.endswith(f":{TRAIN_JOB}"):
            yield from (template for template in pod_templates(resource) if template.complete)
            return
        spec, namespace = resource.props.get("spec"), namespace_of(resource.props)
        for runtime in self.resources:
            if (
                runtime.type.endswith(":TrainingRuntime")
                and name_of(runtime) == dig(spec, "runtimeRef", "name")
                and namespace_of(runtime.props) == namespace
            ):
                for template in pod_templates(runtime):
                    yield replace(
                        template,
                        kind=TRAIN_JOB,
                        path=f"{name_of(runtime)}: {template.path}",
                        owner_labels=dig(resource.props, "metadata", "labels"),
                    )

    def namespaces_of_tier(self, tier: str) -> set[str]:
        return {
            name_of(resource)
            for resource in self.resources
            if resource.type == _NAMESPACE
            and dig(resource.props, "metadata", "labels", naming.TIER) == tier
        }

    def namespaces_of_queue(self, cluster_queue: str) -> set[str]:
        return {
            namespace_of(local.props)
            for local in self.kueue("LocalQueue")
            if dig(local.props, "spec", "clusterQueue") == cluster_queue
        }

    def flavors_of_queue(self, namespace: str, queue: Any) -> set[str]:
        return {
            flavor
            for local in self.kueue("LocalQueue")
            if name_of(local) == queue and namespace_of(local.props) == namespace
            for cluster in self.kueue(CLUSTER_QUEUE)
            if name_of(cluster) == dig(local.props, "spec", "clusterQueue")
            for flavor, _ in flavor_quotas(cluster)
        }

    def spot_flavors(self) -> list[Resource]:
        """Return the flavors of spot nodes: their tolerations are those of the pool's taints."""
        flavors = self.kueue(RESOURCE_FLAVOR)
        return [r for r in flavors if tolerates(mapping(r.props.get("spec")), SPOT_TAINT)]


def name_of(resource: Resource) -> str:
    return str(dig(resource.props, "metadata", "name"))


def flavor_quotas(cluster_queue: Resource) -> Iterable[tuple[str, Mapping[str, Any]]]:
    """Yield each flavor of a ClusterQueue or Cohort with its nominal quota by resource."""
    for group in elements(dig(cluster_queue.props, "spec", "resourceGroups")):
        for flavor in elements(dig(group, "flavors")):
            resources = elements(dig(flavor, "resources"))
            quotas = {str(dig(one, "name")): dig(one, "nominalQuota") for one in resources}
            yield str(dig(flavor, "name")), quotas
