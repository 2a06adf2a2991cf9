"""Every string that two modules share: labels, taints, names of objects, type tokens."""

from __future__ import annotations

import re
from typing import Final

DOMAIN: Final = "trainyard.dev"
PROJECT: Final = "trainyard"

# Labels of nodes.
ACCELERATOR: Final = "accelerator"
GPU_VENDOR: Final = "gpu.vendor"
GPU_MODEL: Final = "gpu.model"
WORKLOAD_TYPE: Final = "workload-type"
NODE_TYPE: Final = "node-type"
POOL: Final = f"{DOMAIN}/pool"
CAPACITY: Final = f"{DOMAIN}/capacity"
POD_IDENTITY_AGENT: Final = "169.254.170.23"
"""Where pods on EKS get the credentials of their role."""
ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"
HOSTNAME: Final = "kubernetes.io/hostname"
RACK: Final = f"{DOMAIN}/rack"
"""Of simulated nodes; clouds have labels of their own, see infra.domain.topology."""
INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"
OS: Final = "kubernetes.io/os"
ARCH: Final = "kubernetes.io/arch"

GPU_TRAINING: Final = "gpu-training"
"""Value of `workload-type` and of the taint on GPU nodes."""

# Annotations that choose who plays the kubelet of a simulated node.
KWOK_NODE: Final = "kwok.x-k8s.io/node"
NODE_RUNTIME: Final = f"{DOMAIN}/node-runtime"

# Taints. The key of the first is the stack's choice.
SPOT_TAINT: Final = "spot"

# Resources.
GPU: Final = "nvidia.com/gpu"
EFA: Final = "vpc.amazonaws.com/efa"

RDMA_RESOURCES: Final = "rdma/"
"""Beginning of the resources by which pods get adapters of a RoCE network."""

# Labels by which NVIDIA's pods on a node find their configuration.
DEVICE_PLUGIN_CONFIG: Final = "nvidia.com/device-plugin.config"
MIG_CONFIG: Final = "nvidia.com/mig.config"

# Labels of objects.
RUN_ID: Final = f"{DOMAIN}/run-id"
RUN: Final = f"{DOMAIN}/run"
WORKER_OF: Final = f"{DOMAIN}/worker-of"
"""The run id again, only on pods that need a node to themselves."""
RUN_VERSION: Final = f"{DOMAIN}/run-version"
TEAM: Final = f"{DOMAIN}/team"
TIER: Final = f"{DOMAIN}/tier"
RDMA: Final = f"{DOMAIN}/rdma"
"""On namespaces whose pods may lock memory; see infra/tenancy/admission/pod_security.py."""
LAUNCHER: Final = f"{DOMAIN}/launcher"
DATASET: Final = f"{DOMAIN}/dataset"
VALIDATION: Final = f"{DOMAIN}/validation"
"""Which check of the platform an object belongs to: smoke, collective, train-single, ..."""
COMPONENT: Final = "app.kubernetes.io/component"
PART_OF: Final = "app.kubernetes.io/part-of"
MANAGED_BY: Final = "app.kubernetes.io/managed-by"

# Kueue.
QUEUE_NAME: Final = "kueue.x-k8s.io/queue-name"
WORKLOAD_PRIORITY: Final = "kueue.x-k8s.io/priority-class"
MAX_EXEC_SECONDS: Final = "kueue.x-k8s.io/max-exec-time-seconds"
PREFERRED_TOPOLOGY: Final = "kueue.x-k8s.io/podset-preferred-topology"
REQUIRED_TOPOLOGY: Final = "kueue.x-k8s.io/podset-required-topology"
PODSET_GROUP: Final = "kueue.x-k8s.io/podset-group-name"
KUEUE_API: Final = "kueue.x-k8s.io/v1beta2"
KUEUE_NAMESPACE: Final = "kueue-system"

# APIs of other add-ons that more than one package writes or reads; infra/addons has all others.
EXTERNAL_SECRETS_API: Final = "external-secrets.io/v1"
KARPENTER_NODE_CLASS_API: Final = "karpenter.k8s.aws/v1"
KARPENTER_NODE_POOL_API: Final = "karpenter.sh/v1"
PROMETHEUS_API: Final = "monitoring.coreos.com/v1"
PROVISIONING_REQUEST_API: Final = "autoscaling.x-k8s.io/v1"

# Pulumi's Kubernetes provider.
SKIP_AWAIT: Final = "pulumi.com/skipAwait"
REPLACE_UNREADY: Final = "pulumi.com/replaceUnready"
"""A Job that failed is replaced by the next update; without it that update could only fail again."""

# Tags of AWS resources.
KARPENTER_DISCOVERY: Final = "karpenter.sh/discovery"
"""On what Karpenter may use; the value is the cluster's name."""

# Objects that have one name in every stack.
VALIDATION_NAMESPACE: Final = f"{PROJECT}-validation"
STACK_FACTS: Final = f"{PROJECT}-stack"
"""ConfigMap there: what the stack consists of, for commands on live stacks."""
SERVICE_ACCOUNT: Final = "llm-trainer"
TRAINING_USER: Final = 1000
"""User and group of training pods and of what they write; the image has this user."""
SIGNED_IMAGES: Final = "policy.sigstore.dev/include"
"""On namespaces whose images must be signed; the name is policy-controller's own."""
SIGNATURES_NAMESPACE: Final = "cosign-system"
SIGNATURES_ACCOUNT: Final = "policy-controller"
"""Namespace and service account of policy-controller."""
EXTERNAL_SECRETS: Final = "external-secrets"
"""Namespace and service account of External Secrets."""
LOG_SHIPPER: Final = "fluent-bit"
"""Service account of what ships logs of runs."""
RENDEZVOUS_PORTS: Final = (29400, 29500)
"""First and last; training.spec gives each run one of them, and operators of launchers use the last."""
MPI_SSH_PORT: Final = 2222
"""sshd cannot bind 22 without root."""
METRICS_PORT: Final = 9400
METRICS_PORT_NAME: Final = "metrics"
"""Where the leading rank of a run tells Prometheus how it goes, on its pod's address."""
MONITORING_NAMESPACE: Final = "monitoring"
"""Of Prometheus: the only one that may ask runs on that port."""
GPU_OPERATOR_NAMESPACE: Final = "gpu-operator"
"""Of the GPU operator, and of the device plugin and DCGM's exporter where those are installed alone."""
CHECKPOINTS_CLAIM: Final = "checkpoints"
DATASETS_CLAIM: Final = "datasets"
TOPOLOGY: Final = "zone-rack-host"
"""Kueue's levels of simulated nodes; those of others: infra.domain.topology."""
EFS_STORAGE_CLASS: Final = "efs"
BLOCK_STORAGE_CLASS: Final = "block"
"""Volumes that one node writes."""
SIMULATED_STORAGE_CLASS: Final = "sandbox-shared"
SIMULATED_PROVISIONER: Final = "sandbox.trainyard.dev/shared"

# Groups that an identity provider puts people in.
AUDITOR_GROUP: Final = f"{PROJECT}:auditor"
DEPLOYER_GROUP: Final = f"{PROJECT}:deployer"

DNS_LABEL_MAX: Final = 63
_DNS_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_QUALIFIED: Final = re.compile(r"[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?")
_SUBDOMAIN_MAX: Final = 253
_RESERVED_DOMAINS: Final = ("kubernetes.io", "k8s.io", "karpenter.sh", "k8s.aws", "amazonaws.com")


def is_dns_label(name: str) -> bool:
    """Whether `name` may name a Kubernetes object that ends up in a host name (RFC 1123)."""
    return len(name) <= DNS_LABEL_MAX and _DNS_LABEL.fullmatch(name) is not None


def is_label_value(text: str) -> bool:
    """Whether Kubernetes takes `text` as the value of a label; the empty one is left to who needs it."""
    return len(text) <= DNS_LABEL_MAX and _QUALIFIED.fullmatch(text) is not None


def is_label_key(key: str) -> bool:
    """Whether Kubernetes takes `key` as the key of a label or a taint: NAME or DOMAIN/NAME."""
    domain, slash, name = key.rpartition("/")
    return is_label_value(name) and (not slash or is_subdomain(domain))


def is_subdomain(name: str) -> bool:
    """Whether `name` is DNS labels with dots between them (RFC 1123)."""
    return len(name) <= _SUBDOMAIN_MAX and all(map(is_dns_label, name.split(".")))


def is_reserved_domain(domain: str) -> bool:
    """Whether labels and taints of this domain are Kubernetes' own, or those of what makes nodes.

    Kubelets and Karpenter refuse to give nodes labels of them.
    """
    return any(domain == own or domain.endswith(f".{own}") for own in _RESERVED_DOMAINS)


def namespace(team: str) -> str:
    """The namespace of a team."""
    return f"team-{team}"


def cluster_queue(team: str) -> str:
    """The ClusterQueue of a team; its LocalQueue is called like the team itself."""
    return f"team-{team}"


def local_queue(team: str) -> str:
    """The LocalQueue in the team's namespace."""
    return team


def group(team: str, role: str) -> str:
    """The group of people who have `role` (researcher, lead) in a team."""
    return f"{PROJECT}:{team}:{role}"


def infra_type(component: str) -> str:
    """Pulumi's type token of a component of the platform."""
    return f"{PROJECT}:infra:{component}"


def training_type(component: str) -> str:
    """Pulumi's type token of a component of a run."""
    return f"{PROJECT}:training:{component}"


def object_labels(component: str, team: str | None = None) -> dict[str, str]:
    """Labels of every namespaced object that the platform creates."""
    labels = {PART_OF: PROJECT, MANAGED_BY: "pulumi", COMPONENT: component}
    return labels | {TEAM: team} if team else labels
