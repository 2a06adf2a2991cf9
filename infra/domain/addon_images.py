"""Images that add-ons run, and where their charts say from which registry they come.

A mirror must have all of them. A tag that is empty is the chart's own choice: `helm template` shows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, kw_only=True)
class Image:
    """An image, and the values of its add-on's chart that say where it comes from."""

    registry: str
    """Host, such as registry.k8s.io."""
    repository: str
    """Path in the registry."""
    tag: str = ""
    """Tag, or digest as sha256:...; empty: the one that the chart names."""
    values: Mapping[str, str] = field(default_factory=dict)
    """By dotted path in the chart's values, what to write there: text with {registry}, {repository}, and
    {parent}, which is the repository without its last part. None for images that our own manifests name."""

    @property
    def reference(self) -> str:
        """As a pod names it."""
        return f"{self.registry}/{self.repository}{self.version}"

    @property
    def version(self) -> str:
        """What follows the repository in a reference."""
        if not self.tag:
            return ""
        return f"@{self.tag}" if self.tag.startswith("sha256:") else f":{self.tag}"


_WHOLE: Final = "{registry}/{repository}"
_PARENT: Final = "{registry}/{parent}"

PAUSE: Final = Image(
    registry="registry.k8s.io",
    repository="pause",
    tag="sha256:ee6521f290b2168b6e0935a181d4cff9be1ac3f505666ef0e3c98fae8199917a",
)
"""pause 3.10, what YuniKorn's placeholder pods run; by digest like every image of a team's pods."""

AUTOSCALER_TAGS: Final[Mapping[str, str]] = {
    "1.33": "v1.33.1",
    "1.34": "v1.34.1",
    "1.35": "v1.35.0",
}
"""Of Cluster Autoscaler, by version of Kubernetes: it simulates that version's scheduler."""


_EXPORTER: Final = "4.6.0-4.8.3-distroless"
"""Of dcgm-exporter: DCGM's version, its own, and the image's kind."""


def _nvidia(key: str, repository: str, tag: str = "") -> Image:
    """An operand of the GPU Operator, whose chart names path and image apart."""
    return Image(
        registry="nvcr.io", repository=repository, tag=tag, values={f"{key}.repository": _PARENT}
    )


def _monitoring(registry: str, repository: str, tag: str = "") -> Image:
    """A part of kube-prometheus-stack, which has one value for the registry of all."""
    return Image(
        registry=registry,
        repository=repository,
        tag=tag,
        values={"global.imageRegistry": "{registry}"},
    )


def _volcano(part: str) -> Image:
    return Image(
        registry="docker.io",
        repository=f"volcanosh/vc-{part}",
        tag="v1.15.1",
        values={"basic.image_registry": "{registry}"},
    )


IMAGES: Final[Mapping[str, tuple[Image, ...]]] = {
    "kueue": (
        Image(
            registry="registry.k8s.io",
            repository="kueue/kueue",
            tag="v0.20.3",
            values={"controllerManager.manager.image.repository": _WHOLE},
        ),
    ),
    "jobset": (
        Image(
            registry="registry.k8s.io",
            repository="jobset/jobset",
            tag="v0.12.0",
            values={"image.repository": _WHOLE},
        ),
    ),
    "kubeflowTrainer": (
        Image(
            registry="ghcr.io",
            repository="kubeflow/trainer/trainer-controller-manager",
            tag="v2.3.0",
            values={"image.registry": "{registry}"},
        ),
    ),
    "trainingOperator": (
        # Its releases tag images by commit; this is the one that 1.9.3 names.
        Image(
            registry="ghcr.io",
            repository="kubeflow/training-v1/training-operator",
            tag="v1-d6eb98e",
        ),
    ),
    "mpiOperator": (
        Image(registry="docker.io", repository="mpioperator/mpi-operator", tag="0.8.2"),
    ),
    "volcano": (
        _volcano("controller-manager"),
        _volcano("scheduler"),
        _volcano("webhook-manager"),
    ),
    "yunikorn": (
        Image(
            registry="docker.io",
            repository="apache/yunikorn",
            tag="scheduler-1.9.0",
            values={"image.repository": _WHOLE},
        ),
        PAUSE,
    ),
    "externalSecrets": (
        Image(
            registry="ghcr.io",
            repository="external-secrets/external-secrets",
            tag="v2.13.0",
            values={
                "image.repository": _WHOLE,
                "webhook.image.repository": _WHOLE,
                "certController.image.repository": _WHOLE,
            },
        ),
    ),
    "policyController": (
        Image(
            registry="ghcr.io",
            repository="sigstore/policy-controller/policy-controller",
            values={"webhook.image.repository": _WHOLE},
        ),
        # Runs once, when the release is removed.
        Image(
            registry="cgr.dev",
            repository="chainguard/kubectl",
            values={"leasescleanup.image.repository": _WHOLE},
        ),
    ),
    "karpenter": (
        Image(
            registry="public.ecr.aws",
            repository="karpenter/controller",
            tag="1.15.0",
            values={"controller.image.repository": _WHOLE},
        ),
    ),
    "clusterAutoscaler": tuple(
        Image(
            registry="registry.k8s.io",
            repository="autoscaling/cluster-autoscaler",
            tag=tag,
            values={"image.repository": _WHOLE},
        )
        for tag in AUTOSCALER_TAGS.values()
    ),
    "gpuOperator": (
        # The validator has been a part of the operator's image since 25.10.
        Image(
            registry="nvcr.io",
            repository="nvidia/gpu-operator",
            tag="v26.7.0",
            values={"operator.repository": _PARENT, "validator.repository": _PARENT},
        ),
        _nvidia("driver", "nvidia/driver"),
        _nvidia("driver.manager", "nvidia/cloud-native/k8s-driver-manager"),
        _nvidia("toolkit", "nvidia/k8s/container-toolkit"),
        _nvidia("devicePlugin", "nvidia/k8s-device-plugin"),
        _nvidia("gfd", "nvidia/k8s-device-plugin"),
        _nvidia("migManager", "nvidia/cloud-native/k8s-mig-manager"),
        _nvidia("dcgm", "nvidia/cloud-native/dcgm"),
        _nvidia("dcgmExporter", "nvidia/k8s/dcgm-exporter", _EXPORTER),
        Image(
            registry="registry.k8s.io",
            repository="nfd/node-feature-discovery",
            values={"node-feature-discovery.image.repository": _WHOLE},
        ),
    ),
    "devicePlugin": (
        Image(
            registry="nvcr.io",
            repository="nvidia/k8s-device-plugin",
            tag="v0.18.0",
            values={"image.repository": _WHOLE},
        ),
    ),
    "dcgmExporter": (
        Image(
            registry="nvcr.io",
            repository="nvidia/k8s/dcgm-exporter",
            tag=_EXPORTER,
            values={"image.repository": _WHOLE},
        ),
    ),
    "efaDevicePlugin": (
        # AWS's own registry, which nodes on EKS may read.
        Image(
            registry="602401143452.dkr.ecr.us-west-2.amazonaws.com",
            repository="eks/aws-efa-k8s-device-plugin",
            values={"image.repository": _WHOLE},
        ),
    ),
    "kubePrometheusStack": (
        _monitoring("quay.io", "prometheus-operator/prometheus-operator", "v0.93.1"),
        _monitoring("quay.io", "prometheus-operator/prometheus-config-reloader", "v0.93.1"),
        _monitoring("quay.io", "prometheus/prometheus"),
        _monitoring("quay.io", "prometheus/alertmanager"),
        _monitoring("quay.io", "prometheus/node-exporter"),
        _monitoring("quay.io", "kiwigrid/k8s-sidecar"),
        _monitoring("docker.io", "grafana/grafana"),
        _monitoring("registry.k8s.io", "kube-state-metrics/kube-state-metrics"),
        _monitoring("ghcr.io", "jkroepke/kube-webhook-certgen"),
    ),
    "fluentBit": (
        Image(
            registry="cr.fluentbit.io",
            repository="fluent/fluent-bit",
            tag="5.0.6",
            values={"image.repository": _WHOLE},
        ),
    ),
}
"""By add-on; those that are not named run none, or images that EKS brings from its own registry."""
