"""Names that the pack shares with the program.

The pack runs in its own environment and must not import the program, so it repeats them;
tests/policy/test_policy_pack.py holds them equal to the program's.
"""

from __future__ import annotations

from typing import Final

GPU_TAINT: Final = "dedicated=gpu-training:NoSchedule"
"""Default taint of every GPU node, as KEY=VALUE:EFFECT."""
SPOT_TAINT: Final = "spot=true:NoSchedule"
"""Default second taint of a GPU node that can be reclaimed."""

WORKLOAD_LABEL: Final = "workload-type"
WORKLOAD_GPU: Final = "gpu-training"
ACCELERATOR_LABEL: Final = "accelerator"
ACCELERATOR_NVIDIA: Final = "nvidia"
CAPACITY_LABEL: Final = "trainyard.dev/capacity"
CAPACITY_SPOT: Final = "spot"
KARPENTER_CAPACITY_LABEL: Final = "karpenter.sh/capacity-type"
EKS_CAPACITY_LABEL: Final = "eks.amazonaws.com/capacityType"
"""Capacity type labels of Karpenter (spot, on-demand) and EKS (SPOT, ON_DEMAND)."""
QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
DEVICE_PLUGIN_CONFIG: Final = "nvidia.com/device-plugin.config"
"""Node label that selects a device plugin configuration instead of the default one."""
MIG_CONFIG: Final = "nvidia.com/mig.config"
VALIDATION_NAMESPACE: Final = "trainyard-validation"
"""Namespace of the readiness check, whose queue has no quota and borrows from every pool."""
GPU_RESOURCE: Final = "nvidia.com/gpu"

SANDBOX_REGISTRY: Final = "sandbox.trainyard.dev"
"""Images of the sandbox: content digests of the checkout, not pulled from any registry."""

RUN_RECORD_FILE: Final = "run.json"
"""Key of the run record in the run's ConfigMap."""
PLATFORM_RECORD: Final = "trainyard-platform"
PLATFORM_RECORD_FILE: Final = "platform.json"
"""ConfigMap of each team, and the key in it, with the stack's node pools."""

POOL_LABEL: Final = "trainyard.dev/pool"
TIER_LABEL: Final = "trainyard.dev/tier"
TIER_PRODUCTION: Final = "production"

PLATFORM_TAGS: Final = (
    "app.kubernetes.io/part-of",
    "app.kubernetes.io/managed-by",
    "trainyard.dev/stack",
    "trainyard.dev/cluster",
)
"""Tag keys of every AWS resource of the platform."""
TEAM_TAG: Final = "trainyard.dev/team"
