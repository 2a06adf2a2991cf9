"""Names that the pack shares with the program it judges.

The pack runs in an environment of its own and must not import the program, so it states them again;
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
"""On nodes that these make: spot or on-demand, and SPOT or ON_DEMAND."""
QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
DEVICE_PLUGIN_CONFIG: Final = "nvidia.com/device-plugin.config"
"""On a node: which configuration of the device plugin it follows, instead of the default one."""
MIG_CONFIG: Final = "nvidia.com/mig.config"
VALIDATION_NAMESPACE: Final = "trainyard-validation"
"""Of the platform's own checks of nodes, whose queue owns nothing and borrows from every pool."""
GPU_RESOURCE: Final = "nvidia.com/gpu"

SANDBOX_REGISTRY: Final = "sandbox.trainyard.dev"
"""Images of the embedded cluster: content digests of the checkout, pulled from nowhere."""

TRAINER_LAUNCH_MODULE: Final = "training.trainer.launch"
"""torchrun with faithful exit codes; it takes torchrun's options."""
RUN_RECORD_FILE: Final = "run.json"
"""Key of the run record in the run's ConfigMap."""

SPOT_NOTICE_S: Final = 120
"""Seconds between a spot reclaim's notice and the end of the node."""
POOL_LABEL: Final = "trainyard.dev/pool"
TIER_LABEL: Final = "trainyard.dev/tier"
TIER_PRODUCTION: Final = "production"

PLATFORM_TAGS: Final = (
    "app.kubernetes.io/part-of",
    "app.kubernetes.io/managed-by",
    "trainyard.dev/stack",
    "trainyard.dev/cluster",
)
"""Keys of the tags that every AWS resource of the platform has."""
TEAM_TAG: Final = "trainyard.dev/team"
