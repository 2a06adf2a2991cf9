"""Every add-on with its versions: the one table that all of the platform reads.

Versions of charts are exact. A Kubernetes range is what the makers say they support or test; where they
name no last version, none is given. `toolchain` is what the sandbox builds of it (sandbox/toolchain):
it may be older than the chart's, but must serve the same APIs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from infra.domain import naming
from infra.domain.addon_images import IMAGES, Image


@dataclass(frozen=True, kw_only=True)
class AddOn:
    """One add-on."""

    chart: str
    """OCI reference; a name where there is a `repository`; empty: no chart, see its plan."""
    version: str
    """Of the chart; of the add-on itself where it has no chart."""
    app_version: str
    namespace: str
    kubernetes: tuple[str, str]
    """First and last minor version that its makers support; an empty last one: they name none."""
    repository: str = ""
    """URL of an index of charts."""
    apis: Mapping[str, str] = field(default_factory=dict)
    """By kind, the apiVersion of its custom resources that we write or read."""
    toolchain: str = ""
    """Version that the sandbox runs; empty: it runs none."""
    images: tuple[Image, ...] = ()
    """What a mirror must have."""

    def supports(self, minor: str) -> bool:
        """Whether its makers support this version of Kubernetes, such as 1.35."""
        first, last = self.kubernetes
        return _number(first) <= _number(minor) and (not last or _number(minor) <= _number(last))


def _number(minor: str) -> tuple[int, ...]:
    return tuple(int(part) for part in minor.split("."))


_TRAINER: Final = "trainer.kubeflow.org/v1alpha1"
_KUEUE: Final = (
    *("AdmissionCheck", "ClusterQueue", "Cohort", "LocalQueue", "ProvisioningRequestConfig"),
    *("ResourceFlavor", "Topology", "Workload", "WorkloadPriorityClass"),
)
_PROMETHEUS: Final = ("PodMonitor", "Probe", "PrometheusRule", "ServiceMonitor")

ADD_ONS: Final[Mapping[str, AddOn]] = {
    "kueue": AddOn(
        chart="oci://registry.k8s.io/kueue/charts/kueue",
        version="0.20.3",
        app_version="v0.20.3",
        namespace="kueue-system",
        kubernetes=("1.29", ""),
        apis=dict.fromkeys(_KUEUE, naming.KUEUE_API),
        toolchain="0.15.0",
        images=IMAGES["kueue"],
    ),
    "jobset": AddOn(
        chart="oci://registry.k8s.io/jobset/charts/jobset",
        version="0.12.0",
        app_version="v0.12.0",
        namespace="jobset-system",
        kubernetes=("1.29", ""),
        apis={"JobSet": "jobset.x-k8s.io/v1alpha2"},
        toolchain="0.11.0",
        images=IMAGES["jobset"],
    ),
    "kubeflowTrainer": AddOn(
        chart="oci://ghcr.io/kubeflow/charts/kubeflow-trainer",
        version="2.3.0",
        app_version="v2.3.0",
        namespace="kubeflow-system",
        kubernetes=("1.31", ""),
        apis={"TrainJob": _TRAINER, "TrainingRuntime": _TRAINER},
        images=IMAGES["kubeflowTrainer"],
    ),
    "trainingOperator": AddOn(
        chart="",
        version="1.9.3",
        app_version="v1.9.3",
        namespace="kubeflow",
        kubernetes=("1.28", ""),
        apis={"PyTorchJob": "kubeflow.org/v1"},
        images=IMAGES["trainingOperator"],
    ),
    "mpiOperator": AddOn(
        chart="",
        version="0.8.2",
        app_version="0.8.2",
        namespace="mpi-operator",
        kubernetes=("1.32", ""),
        apis={"MPIJob": "kubeflow.org/v2beta1"},
        images=IMAGES["mpiOperator"],
    ),
    "volcano": AddOn(
        chart="volcano",
        version="1.15.1",
        app_version="v1.15.1",
        namespace="volcano-system",
        kubernetes=("1.23", "1.35"),
        repository="https://volcano-sh.github.io/helm-charts",
        apis=dict.fromkeys(("PodGroup", "Queue"), "scheduling.volcano.sh/v1beta1"),
        images=IMAGES["volcano"],
    ),
    "yunikorn": AddOn(
        chart="yunikorn",
        version="1.9.0",
        app_version="1.9.0",
        namespace="yunikorn",
        kubernetes=("1.24", ""),
        repository="https://apache.github.io/yunikorn-release",
        images=IMAGES["yunikorn"],
    ),
    "externalSecrets": AddOn(
        chart="oci://ghcr.io/external-secrets/charts/external-secrets",
        version="2.13.0",
        app_version="v2.13.0",
        namespace=naming.EXTERNAL_SECRETS,
        # Its makers test the newest versions only; 1.33 left their table with 0.20.
        kubernetes=("1.34", ""),
        apis=dict.fromkeys(("ExternalSecret", "SecretStore"), "external-secrets.io/v1"),
        images=IMAGES["externalSecrets"],
    ),
    "policyController": AddOn(
        chart="oci://ghcr.io/sigstore/helm-charts/policy-controller",
        version="0.10.5",
        app_version="0.13.1",
        namespace=naming.SIGNATURES_NAMESPACE,
        kubernetes=("1.27", ""),
        apis={"ClusterImagePolicy": "policy.sigstore.dev/v1beta1"},
        images=IMAGES["policyController"],
    ),
    "karpenter": AddOn(
        # EFA interfaces and placement groups in a node class came with 1.11.
        chart="oci://public.ecr.aws/karpenter/karpenter",
        version="1.15.0",
        app_version="1.15.0",
        # Where the API server's fairness rules put Karpenter's leases among the system's.
        namespace="kube-system",
        kubernetes=("1.26", "1.37"),
        apis={"NodePool": "karpenter.sh/v1", "EC2NodeClass": "karpenter.k8s.aws/v1"},
        images=IMAGES["karpenter"],
    ),
    "karpenterCrd": AddOn(
        # A release of its own: the other chart brings the CRDs, but never upgrades them.
        chart="oci://public.ecr.aws/karpenter/karpenter-crd",
        version="1.15.0",
        app_version="1.15.0",
        namespace="kube-system",
        kubernetes=("1.26", "1.37"),
    ),
    "clusterAutoscaler": AddOn(
        chart="cluster-autoscaler",
        version="9.59.0",
        app_version="1.35.0",
        namespace="kube-system",
        kubernetes=("1.33", "1.35"),
        repository="https://kubernetes.github.io/autoscaler",
        apis={"ProvisioningRequest": "autoscaling.x-k8s.io/v1"},
        images=IMAGES["clusterAutoscaler"],
    ),
    "gpuOperator": AddOn(
        chart="gpu-operator",
        version="v26.7.0",
        app_version="v26.7.0",
        namespace="gpu-operator",
        kubernetes=("1.32", ""),
        repository="https://helm.ngc.nvidia.com/nvidia",
        apis={"ClusterPolicy": "nvidia.com/v1"},
        images=IMAGES["gpuOperator"],
    ),
    "devicePlugin": AddOn(
        chart="nvidia-device-plugin",
        version="0.18.0",
        app_version="0.18.0",
        namespace="gpu-operator",
        kubernetes=("1.10", ""),
        repository="https://nvidia.github.io/k8s-device-plugin",
        images=IMAGES["devicePlugin"],
    ),
    "dcgmExporter": AddOn(
        chart="dcgm-exporter",
        version="4.8.3",
        app_version="4.6.0-4.8.3",
        namespace="gpu-operator",
        kubernetes=("1.19", ""),
        repository="https://nvidia.github.io/dcgm-exporter/helm-charts",
        images=IMAGES["dcgmExporter"],
    ),
    "efaDevicePlugin": AddOn(
        chart="aws-efa-k8s-device-plugin",
        version="v0.5.20",
        app_version="v0.5.13",
        namespace="kube-system",
        kubernetes=("1.24", ""),
        repository="https://aws.github.io/eks-charts",
        images=IMAGES["efaDevicePlugin"],
    ),
    "kubePrometheusStack": AddOn(
        chart="oci://ghcr.io/prometheus-community/charts/kube-prometheus-stack",
        version="89.2.2",
        app_version="v0.93.1",
        namespace="monitoring",
        kubernetes=("1.25", ""),
        apis=dict.fromkeys(_PROMETHEUS, "monitoring.coreos.com/v1"),
        images=IMAGES["kubePrometheusStack"],
    ),
    "fluentBit": AddOn(
        chart="fluent-bit",
        version="0.57.6",
        app_version="5.0.6",
        namespace="logging",
        kubernetes=("1.24", ""),
        repository="https://fluent.github.io/helm-charts",
        images=IMAGES["fluentBit"],
    ),
    "nodeMonitoringAgent": AddOn(
        # EKS brings it in the version that it recommends for the cluster's; see infra/sites/aws/addons.py.
        chart="",
        version="",
        app_version="",
        namespace="kube-system",
        kubernetes=("1.28", ""),
    ),
}
"""By name in the stack file's `operators`, and what other parts of the platform install."""
