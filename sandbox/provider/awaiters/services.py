"""Readiness of Services and Ingresses."""

from __future__ import annotations

from sandbox.provider.awaiters.progress import READY, Progress, waiting
from sandbox.provider.cluster import Cluster
from sandbox.provider.objects import Kind, Object, at, name_of, namespace_of

_ENDPOINT_SLICE = Kind("discovery.k8s.io", "v1", "EndpointSlice")


def service(cluster: Cluster, obj: Object) -> Progress:
    """It leads to a ready pod, and a load balancer has an address.

    Services that lead to no pods by design are ready at once: external names, headless ones and
    those without a selector.
    """
    spec = obj.get("spec") or {}
    if spec.get("type") == "LoadBalancer" and not at(obj, ("status", "loadBalancer", "ingress")):
        return waiting("the load balancer has no address yet")
    if (
        spec.get("type") == "ExternalName"
        or spec.get("clusterIP") == "None"
        or not spec.get("selector")
    ):
        return READY
    slices = cluster.list(
        _ENDPOINT_SLICE,
        namespace_of(obj),
        labelSelector=f"kubernetes.io/service-name={name_of(obj)}",
    )
    for endpoints in slices:
        for endpoint in endpoints.get("endpoints") or []:
            if at(endpoint, ("conditions", "ready"), True):
                return READY
    return waiting("no ready pod matches its selector")


def ingress(cluster: Cluster, obj: Object) -> Progress:
    """The controller has given it an address."""
    if at(obj, ("status", "loadBalancer", "ingress")):
        return READY
    return waiting("no ingress controller has given it an address")
