"""A valid stack file of a cluster on AWS, which tests modify."""

from __future__ import annotations

from typing import Any

ROLE = "arn:aws:iam::111122223333:role/"


def stack_values() -> dict[str, Any]:
    """Its values: a managed EFA pool, a Karpenter spot pool, a CPU pool, FSx."""
    return {
        "cluster": {
            "provider": "eks",
            "name": "training",
            "admins": [f"{ROLE}platform-admin"],
            "deployers": [f"{ROLE}trainyard-deployer"],
        },
        "aws": {"region": "us-east-1", "account": "111122223333"},
        "network": {"cidr": "10.20.0.0/16", "zones": ["us-east-1a", "us-east-1b"]},
        "taintKey": "dedicated",
        "cohort": "trainyard",
        "nodePools": [
            {
                "name": "ondemand",
                "capacity": "on-demand",
                "instanceTypes": ["p4d.24xlarge"],
                "min": 4,
                "max": 4,
                "zone": "us-east-1a",
                "network": "efa",
                "nodes": "managed",
            },
            {
                "name": "spot",
                "capacity": "spot",
                "instanceTypes": ["p4d.24xlarge", "p3dn.24xlarge"],
                "max": 50,
                "zone": "us-east-1a",
                "nodes": "karpenter",
            },
            {
                "name": "cpu",
                "workload": "cpu",
                "capacity": "on-demand",
                "instanceTypes": ["m6i.4xlarge"],
                "max": 2,
                "zone": "us-east-1b",
                "nodes": "managed",
            },
        ],
        "storage": {
            "fsx": {"zone": "us-east-1a"},
            "checkpoints": "5Ti",
            "datasets": "2Ti",
            "buckets": {"prefix": "acme-training"},
        },
        "autoscaler": "karpenter",
        "operators": {
            "kueue": {"provided": False},
            "gpuOperator": {"provided": False},
            "efaDevicePlugin": {"provided": False},
        },
        "teams": [
            {
                "name": "production",
                "tier": "production",
                "guaranteed": {"ondemand": 2},
                "quota": {"cpu": "512", "memory": "4Ti", "gpus": 32},
            }
        ],
    }
