"""Cluster Autoscaler, which infra/sites/aws/autoscaling.py installs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from infra.addons.model import WHOLE, AddOn, Image, Section
from infra.domain import naming

AUTOSCALER_TAGS: Final[Mapping[str, str]] = {
    "1.34": "v1.34.1",
    "1.35": "v1.35.0",
    "1.36": "v1.36.1",
}
"""Cluster Autoscaler's image tag by version of Kubernetes: it simulates that version's scheduler. The chart's
own image is that of `app_version`."""

CLUSTER_AUTOSCALER: Final = AddOn(
    name="clusterAutoscaler",
    section=Section.AUTOSCALER,
    chart="cluster-autoscaler",
    repository="https://kubernetes.github.io/autoscaler",
    version="9.59.0",
    app_version="1.35.0",
    namespace="kube-system",
    kubernetes=("1.34", "1.36"),
    apis={"ProvisioningRequest": naming.PROVISIONING_REQUEST_API},
    images=tuple(
        Image(
            registry="registry.k8s.io",
            repository="autoscaling/cluster-autoscaler",
            tag=tag,
            values={"image.repository": WHOLE},
        )
        for tag in AUTOSCALER_TAGS.values()
    ),
)
