"""Strings that modules share: labels, taints, names of objects, type tokens."""

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
SYSTEM_NODES: Final = "system"
"""Value of `node-type` on nodes of the cluster's own controllers."""
POOL: Final = f"{DOMAIN}/pool"
CAPACITY: Final = f"{DOMAIN}/capacity"
KARPENTER_CAPACITY: Final = "karpenter.sh/capacity-type"
"""Label that Karpenter sets by how it bought a node: spot, on-demand or reserved."""
EKS_CAPACITY: Final = "eks.amazonaws.com/capacityType"
"""Label that managed node groups set by how they buy: SPOT, ON_DEMAND or CAPACITY_BLOCK."""
POD_IDENTITY_AGENT: Final = "169.254.170.23"
"""Address from which pods on EKS get the credentials of their role."""
ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"
HOSTNAME: Final = "kubernetes.io/hostname"
RACK: Final = f"{DOMAIN}/rack"
"""Label of simulated nodes; clouds have other labels, see infra.domain.topology."""
INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"
OS: Final = "kubernetes.io/os"
ARCH: Final = "kubernetes.io/arch"

GPU_TRAINING: Final = "gpu-training"
"""Value of `workload-type` and of the taint on GPU nodes."""

# Annotations that choose the kubelet of a simulated node: KWOK or the sandbox's node agent.
KWOK_NODE: Final = "kwok.x-k8s.io/node"
NODE_RUNTIME: Final = f"{DOMAIN}/node-runtime"

# Taints. The stack file chooses the key of the GPU nodes' taint.
SPOT_TAINT: Final = "spot"

# Resources.
GPU: Final = "nvidia.com/gpu"
EFA: Final = "vpc.amazonaws.com/efa"

RDMA_RESOURCES: Final = "rdma/"
"""Prefix of the resources by which pods get adapters of a RoCE network."""

# Node labels that select the configuration of NVIDIA's pods.
DEVICE_PLUGIN_CONFIG: Final = "nvidia.com/device-plugin.config"
MIG_CONFIG: Final = "nvidia.com/mig.config"

# Labels of objects.
RUN_ID: Final = f"{DOMAIN}/run-id"
RUN: Final = f"{DOMAIN}/run"
SWEEP: Final = f"{DOMAIN}/sweep"
"""The sweep that a run belongs to."""
SWEEP_COMPONENT: Final = "sweep"
"""Component label of the ConfigMap with a sweep's state."""
SWEEP_PREFIX: Final = "sweep-"
"""Of the name of that ConfigMap, before the sweep's."""
WORKER_OF: Final = f"{DOMAIN}/worker-of"
"""The name of the gang's object, only on pods that need exclusive nodes."""
GROUP: Final = f"{DOMAIN}/group"
"""Number of a replica group, from 0, on the objects of a run with groups, its Workloads and its pods."""
GROUPS: Final = f"{DOMAIN}/groups"
GROUPS_MIN: Final = f"{DOMAIN}/groups-min"
"""Numbers of the run's groups, of all and of those that it needs, on the object of each group."""
RUN_VERSION: Final = f"{DOMAIN}/run-version"
LAUNCHED_BY: Final = f"{DOMAIN}/launched-by"
"""Annotation of what a member of a team submitted: the API server's name of that user."""
UNFINISHED: Final = f"{DOMAIN}/unfinished"
"""Label of a submitted run's objects until the run itself exists."""
RUN_MANIFEST: Final = f"{DOMAIN}/run-manifest"
RUN_FILE: Final = f"{DOMAIN}/run-file"
"""Annotations of the ConfigMap of a submitted run, as JSON: its object, and the document of its run file."""
STOPPED: Final = f"{DOMAIN}/stopped"
"""Label of the parts of a stopped run that can be resumed."""
TEAM: Final = f"{DOMAIN}/team"
TIER: Final = f"{DOMAIN}/tier"
LAUNCHER: Final = f"{DOMAIN}/launcher"
DATASET: Final = f"{DOMAIN}/dataset"
VALIDATION: Final = f"{DOMAIN}/validation"
"""The check of the node validation that an object belongs to: smoke, collective, train-single, ..."""
DEV: Final = f"{DOMAIN}/dev"
"""Label of dev pods and their Jobs; its value is `true`."""
DEV_PREFIX: Final = "devpod-"
"""Names of dev pods, and only theirs, begin with it."""
DEV_QUOTA: Final = "dev-pods"
"""ResourceQuota of a team's dev pods."""
COMPONENT: Final = "app.kubernetes.io/component"
PART_OF: Final = "app.kubernetes.io/part-of"
MANAGED_BY: Final = "app.kubernetes.io/managed-by"
JOB_NAME: Final = "batch.kubernetes.io/job-name"
JOB_INDEX: Final = "batch.kubernetes.io/job-completion-index"
"""Labels that the Job controller puts on pods."""

# Kueue.
QUEUE_NAME: Final = "kueue.x-k8s.io/queue-name"
WORKLOAD_PRIORITY: Final = "kueue.x-k8s.io/priority-class"
MAX_EXEC_SECONDS: Final = "kueue.x-k8s.io/max-exec-time-seconds"
PREFERRED_TOPOLOGY: Final = "kueue.x-k8s.io/podset-preferred-topology"
REQUIRED_TOPOLOGY: Final = "kueue.x-k8s.io/podset-required-topology"
KUEUE_API: Final = "kueue.x-k8s.io/v1beta2"
KUEUE_NAMESPACE: Final = "kueue-system"
JOBSET_NAMESPACE: Final = "jobset-system"

# APIs of other add-ons that more than one package uses; infra/addons has the rest.
EXTERNAL_SECRETS_API: Final = "external-secrets.io/v1"
KARPENTER_NODE_CLASS_API: Final = "karpenter.k8s.aws/v1"
KARPENTER_NODE_POOL_API: Final = "karpenter.sh/v1"
PROMETHEUS_API: Final = "monitoring.coreos.com/v1"
PROVISIONING_REQUEST_API: Final = "autoscaling.x-k8s.io/v1"

# Pulumi's Kubernetes provider.
SKIP_AWAIT: Final = "pulumi.com/skipAwait"
DATASET_CONTAINER: Final = "dataset"
WEIGHTS_CONTAINER: Final = "weights"
"""Init containers of a run that wait for the preparation of its dataset, and for its model."""
DATASET_COMPONENT: Final = "dataset-preparation"
WEIGHTS_COMPONENT: Final = "weights-fetch"
"""Component labels of the Jobs that they wait for."""
RESULTS_COPY: Final = "results-copy"
"""A team's CronJob that copies results to its bucket, and the component label of its Jobs and pods."""
PREPARATION_ENV: Final = "TRAINYARD_PREPARATION"
"""Variable of such a container: name of the Job."""
REPLACE_UNREADY: Final = "pulumi.com/replaceUnready"
"""The next update replaces a failed Job; without this it would fail again."""

# Tags of AWS resources.
KARPENTER_DISCOVERY: Final = "karpenter.sh/discovery"
"""Tag of what Karpenter may use; its value is the cluster's name."""

# Objects with the same name in every stack.
VALIDATION_NAMESPACE: Final = f"{PROJECT}-validation"
RUN_PAGE_NAMESPACE: Final = f"{PROJECT}-page"
RUN_PAGE_ACCOUNT: Final = "run-page"
"""Namespace and service account of the run page in the cluster; also its Role in namespaces of teams."""
COSTS_NAMESPACE: Final = f"{PROJECT}-costs"
COSTS_ACCOUNT: Final = "costs"
"""The same of the program that records costs and enforces budgets."""
COSTS_METRICS_PORT: Final = 8643
STEERING_NAMESPACE: Final = f"{PROJECT}-steering"
STEERING_ACCOUNT: Final = "steering"
"""The same of the program that moves runs between the pools of their queue."""
STEERING_METRICS_PORT: Final = 8644
ELASTIC_NAMESPACE: Final = f"{PROJECT}-elastic"
ELASTIC_ACCOUNT: Final = "elastic-runs"
"""The same of the program that releases groups of ended runs."""
STEERING: Final = f"{DOMAIN}/steering"
"""Annotation of a Workload: what that program remembers of the run."""
CORDONED: Final = f"{DOMAIN}/cordoned"
"""Annotation of a Node: since when and why that program has cordoned it, as JSON."""
ALLOWED_FLAVORS: Final = "kueue.x-k8s.io/workload-allowed-resource-flavors"
"""Annotation of a Workload, read by Kueue's gate ConcurrentAdmission: the flavors that it may have."""
DEADLINE: Final = f"{DOMAIN}/deadline"
"""Annotation of a run's pod template: the deadline of its file."""
PLATFORM_RECORD: Final = f"{PROJECT}-platform"
PLATFORM_RECORD_KEY: Final = "platform.json"
"""ConfigMap of each team, and its key: what `trainyard run submit` renders the team's runs for."""
STACK_FACTS: Final = f"{PROJECT}-stack"
"""ConfigMap in that namespace: contents of the stack, for commands on live stacks."""
SERVICE_ACCOUNT: Final = "llm-trainer"
TRAINING_USER: Final = 1000
"""User and group of training pods and of their files; the image has this user."""
SIGNED_IMAGES: Final = "policy.sigstore.dev/include"
"""Label of namespaces whose images must be signed, defined by policy-controller."""
IMAGE_POLICY: Final = "trainyard-training-images"
"""ClusterImagePolicy that requires a signature of every image."""
IMAGE_POLICY_API: Final = "policy.sigstore.dev/v1beta1"
SIGNATURES_NAMESPACE: Final = "cosign-system"
SIGNATURES_ACCOUNT: Final = "policy-controller"
"""Namespace and service account of policy-controller."""
EXTERNAL_SECRETS: Final = "external-secrets"
"""Namespace and service account of External Secrets."""
LOG_SHIPPER: Final = "fluent-bit"
"""Service account of the log shipper."""
RENDEZVOUS_PORTS: Final = (29400, 29500)
"""First and last port; training.spec assigns each run one, and operators of launchers use the last."""
MPI_SSH_PORT: Final = 2222
"""Not 22, which sshd cannot bind without root."""
METRICS_PORT: Final = 9400
METRICS_PORT_NAME: Final = "metrics"
"""Port on which rank 0 of a run serves metrics to Prometheus."""
MONITORING_NAMESPACE: Final = "monitoring"
"""Namespace of Prometheus, the only one that may reach that port of runs."""
PROMETHEUS_PORT: Final = 9090
PROMETHEUS_URL: Final = f"http://prometheus-operated.{MONITORING_NAMESPACE}:{PROMETHEUS_PORT}"
"""Service that the Prometheus Operator creates for its instances."""
GPU_OPERATOR_NAMESPACE: Final = "gpu-operator"
"""Namespace of the GPU operator, and of the device plugin and the DCGM exporter without it."""
CHECKPOINTS_CLAIM: Final = "checkpoints"
DATASETS_CLAIM: Final = "datasets"
TOPOLOGY: Final = "zone-rack-host"
"""Kueue's Topology of simulated nodes; others: infra.domain.topology."""
EFS_STORAGE_CLASS: Final = "efs"
BLOCK_STORAGE_CLASS: Final = "block"
"""Class of ReadWriteOnce volumes."""
SIMULATED_STORAGE_CLASS: Final = "sandbox-shared"
SIMULATED_PROVISIONER: Final = "sandbox.trainyard.dev/shared"

# Groups of the identity provider.
AUDITOR_GROUP: Final = f"{PROJECT}:auditor"
DEPLOYER_GROUP: Final = f"{PROJECT}:deployer"
VIEWER_GROUP: Final = f"{PROJECT}:viewer"
"""Of the role that previews pull requests; it reads no team's namespace."""

DNS_LABEL_MAX: Final = 63
_DNS_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_QUALIFIED: Final = re.compile(r"[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?")
_SUBDOMAIN_MAX: Final = 253
_RESERVED_DOMAINS: Final = ("kubernetes.io", "k8s.io", "karpenter.sh", "k8s.aws", "amazonaws.com")


def is_dns_label(name: str) -> bool:
    """Whether `name` is a DNS label (RFC 1123), as Kubernetes requires for names in host names."""
    return len(name) <= DNS_LABEL_MAX and _DNS_LABEL.fullmatch(name) is not None


def is_label_value(text: str) -> bool:
    """Whether `text` is a valid, non-empty label value."""
    return len(text) <= DNS_LABEL_MAX and _QUALIFIED.fullmatch(text) is not None


def is_label_key(key: str) -> bool:
    """Whether `key` is a valid key of a label or taint: NAME or DOMAIN/NAME."""
    domain, slash, name = key.rpartition("/")
    return is_label_value(name) and (not slash or is_subdomain(domain))


def is_subdomain(name: str) -> bool:
    """Whether `name` is a DNS subdomain (RFC 1123)."""
    return len(name) <= _SUBDOMAIN_MAX and all(map(is_dns_label, name.split(".")))


def is_reserved_domain(domain: str) -> bool:
    """Whether labels and taints of this domain are reserved by Kubernetes, Karpenter or AWS.

    Kubelets and Karpenter reject node labels of such domains.
    """
    return any(domain == own or domain.endswith(f".{own}") for own in _RESERVED_DOMAINS)


def namespace(team: str) -> str:
    return f"team-{team}"


def cluster_queue(team: str) -> str:
    """Return the ClusterQueue of a team; its LocalQueue has the team's name."""
    return f"team-{team}"


def local_queue(team: str) -> str:
    return team


def group(team: str, role: str) -> str:
    """Return the group of people with `role` (researcher, lead) in a team."""
    return f"{PROJECT}:{team}:{role}"


def infra_type(component: str) -> str:
    return f"{PROJECT}:infra:{component}"


def training_type(component: str) -> str:
    return f"{PROJECT}:training:{component}"


def object_labels(component: str, team: str | None = None) -> dict[str, str]:
    labels = {PART_OF: PROJECT, MANAGED_BY: "pulumi", COMPONENT: component}
    return labels | {TEAM: team} if team else labels
