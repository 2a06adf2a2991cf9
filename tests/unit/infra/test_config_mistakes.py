"""Every mistake in a stack file is one issue: changes of a valid stack by path, and the issue's path and code."""

from __future__ import annotations

import copy
import re
from typing import Any, Final

import pytest

from infra.config import parse
from tests.golden.example_runs import IMAGE
from tests.golden.example_runs import stack_values as existing
from tests.unit.infra.config_issues import check_issues
from tests.unit.infra.example_eks import stack_values as eks

GONE: Final = object()
"""In place of a value: the key is removed."""

Changes = dict[str, Any]
"""New values by path; the index after the last element of a list appends one."""
Cases = dict[str, dict[str, tuple[Changes, str]]]
"""By group of messages and name: changes, and `PATH: CODE` of each issue; CODE alone is one of the last change."""

DIGEST = "@sha256:" + "1" * 64
ISSUER = "https://token.actions.githubusercontent.com"
SUBJECT = "https://github.com/acme/training/.github/workflows/image.yml@refs/heads/main"
KEY = "arn:aws:kms:us-east-1:111122223333:key/01234567-89ab-cdef-0123-456789abcdef"

VPC = {
    "vpcId": "vpc-0a1b2c3d4e5f60718",
    "cidr": "10.9.0.0/16",
    "privateSubnets": {"us-east-1a": "subnet-0a1b2c3d", "us-east-1b": "subnet-1a1b2c3d"},
}
BLOCK = {"kind": "capacity-block", "id": "cr-0123456789abcdef0"}
TIMED = {
    "kind": "capacity-block",
    "id": "cr-0123456789abcdef0",
    "start": "2027-03-01T11:30:00Z",
    "end": "2027-03-03T11:30:00Z",
}
LONG_NAME = {
    "name": "a" * 40,
    "capacity": "on-demand",
    "max": 4,
    "instanceTypes": ["p4d.24xlarge"],
    "zone": "us-east-1a",
}
VOLCANO: Changes = {
    "operators.kueue": GONE,
    "operators.volcano": {"provided": True},
    "scheduler": "volcano",
}
YUNIKORN: Changes = {
    "operators.kueue": GONE,
    "operators.yunikorn": {"provided": True},
    "scheduler": "yunikorn",
}
NATIVE: Changes = {
    "cluster.version": "1.37",
    "operators.kueue": GONE,
    "teams[0].guaranteed": GONE,
    "teams[1].guaranteed": GONE,
    "scheduler": "native",
}
ON_EXISTING: Cases = {
    "stacks": {
        "unknown key": ({"nodePool": []}, "unknown-key"),
        "key in snake case": ({"teams[0].fair_weight": 2}, "unknown-key"),
        "missing key": ({"nodePools[0].zone": GONE}, "missing"),
        "no pool": (
            {
                "nodePools": [],
                "teams": [
                    {
                        "name": "research",
                        "tier": "research",
                        "quota": {"cpu": "512", "memory": "4Ti", "gpus": 32},
                    }
                ],
            },
            "nodePools: too-few",
        ),
        "wrong type": ({"nodePools[0].max": "4"}, "wrong-type"),
        "not a choice": ({"nodePools[1].capacity": "sopt"}, "unknown-value"),
        "min above max": ({"nodePools[0].min": 8}, "min-above-max"),
        "negative size": ({"nodePools[0].min": -1}, "out-of-range"),
        "bad quantity": ({"storage.checkpoints": "5Tb"}, "quantity"),
        "bad DNS name": ({"teams[1].name": "Prod_Team"}, "dns-label"),
        "duplicate team": ({"teams[1].name": "research"}, "duplicate"),
        "duplicate pool": ({"nodePools[2].name": "spot"}, "duplicate"),
        "unknown instance type": (
            {"nodePools[0].instanceTypes": ["p4d.24xlarg"]},
            "nodePools[0].instanceTypes[0]: unknown-instance-type",
        ),
        "CPU type in a GPU pool": (
            {"nodePools[2].workload": "gpu-training"},
            "nodePools[2].instanceTypes[0]: type-without-gpu",
        ),
        "GPU type in a CPU pool": (
            {"nodePools[2].instanceTypes": ["g6.xlarge"]},
            "nodePools[2].instanceTypes[0]: type-with-gpu",
        ),
        "EFA on a type without it": (
            {"nodePools[1].instanceTypes": ["p3.16xlarge"]},
            "nodePools[1].instanceTypes[0]: type-without-efa",
        ),
        "label that the pool decides": (
            {"nodePools[0].labels": {"node-type": "mine"}},
            "nodePools[0].labels.node-type: reserved-label",
        ),
        "guarantee of an unknown pool": (
            {"teams[0].guaranteed": {"sport": 1}},
            "teams[0].guaranteed.sport: unknown-name",
        ),
        "guarantee of a CPU pool": (
            {"teams[0].guaranteed": {"cpu": 1}},
            "teams[0].guaranteed.cpu: cpu-pool",
        ),
        "guarantees above the pool": (
            {"teams[0].guaranteed": {"ondemand": 3}},
            "teams[1].guaranteed.ondemand: guarantees-above-pool",
        ),
        "lending more than its own": (
            {"teams[0].lending": {"spot": 5}},
            "teams[0].lending.spot: lending-above-guarantee",
        ),
        "borrowing more than there is": (
            {"teams[0].borrowing": {"spot": 47}},
            "teams[0].borrowing.spot: borrowing-above-pool",
        ),
        "cost cap for production": ({"teams[1].onDemandUsdPerHour": 50.0}, "cost-cap-tier"),
        "cost cap that buys nothing": (
            {"teams[0].onDemandUsdPerHour": 21.5},
            "cost-cap-below-node",
        ),
        "cost cap below the guarantee": (
            {"teams[0].guaranteed": {"ondemand": 2}, "teams[0].onDemandUsdPerHour": 40.0},
            "cost-cap-below-guarantee",
        ),
        "cost cap without a price": (
            {
                "nodePools[0].zone": "eu-north-1a",
                "nodePools[1].zone": "eu-north-1a",
                "nodePools[2].zone": "eu-north-1a",
                "teams[0].onDemandUsdPerHour": 100.0,
            },
            "price-unknown",
        ),
        "quota above all pools": ({"teams[0].quota.gpus": 433}, "quota-above-pools"),
        "no storage class for real nodes": ({"storage.storageClass": GONE}, "missing"),
        "image by tag": (
            {"images": {"trainer": "registry.example.com/trainer:v1"}},
            "images.trainer: image-reference",
        ),
        "registry with a tag": (
            {"images": {}, "registries": ["registry.example.com/trainer@v1"]},
            "registries[0]: registry",
        ),
        "image of a registry that is not allowed": (
            {"registries": ["registry.example.com/train"]},
            "images.trainer: registry-not-allowed",
        ),
        "a team with the capability of locking memory": ({"teams[0].rdma": True}, "unknown-key"),
        "secret in no variable that a shell could have": (
            {"teams[0].secrets": [{"name": "hub", "env": ["hf-token"]}]},
            "teams[0].secrets[0].env[0]: variable",
        ),
        "duplicate secret": (
            {"teams[0].secrets": [{"name": "hub", "env": ["A"]}, {"name": "hub", "env": ["B"]}]},
            "teams[0].secrets[1].name: duplicate",
        ),
        "member in a group of the cluster's own": (
            {"teams[0].members": {"leads": ["system:masters"]}},
            "teams[0].members.leads[0]: reserved-group",
        ),
        "two members in one": (
            {"teams[0].members": {"leads": ["ml,ops"]}},
            "teams[0].members.leads[0]: member",
        ),
        "member who is researcher and lead": (
            {"teams[0].members": {"researchers": ["ml"], "leads": ["ml"]}},
            "teams[0].members.leads[0]: duplicate",
        ),
        "IAM role on another cluster": (
            {"teams[0].members": {"leads": ["arn:aws:iam::111122223333:role/ml"]}},
            "teams[0].members.leads[0]: role-without-eks",
        ),
        "two secrets in one variable": (
            {
                "teams[0].secrets": [
                    {"name": "hub", "env": ["A"]},
                    {"name": "bus", "env": ["B", "A"]},
                ]
            },
            "teams[0].secrets[1].env[1]: duplicate",
        ),
        "store of a secret that is there": (
            {"teams[0].secrets": [{"name": "hub", "env": ["A"], "store": "vault"}]},
            "teams[0].secrets[0].store: store-without-key",
        ),
        "remote secret without a store": (
            {
                "operators.externalSecrets": {"provided": True},
                "teams[0].secrets": [{"name": "hub", "env": ["A"], "remoteKey": "acme/hub"}],
            },
            "teams[0].secrets[0].store: missing",
        ),
        "remote secret that nobody fetches": (
            {
                "teams[0].secrets": [
                    {"name": "hub", "env": ["A"], "remoteKey": "acme/hub", "store": "vault"}
                ]
            },
            "teams[0].secrets[0].remoteKey: operator-required",
        ),
        "signatures by nobody": ({"signatures": {}}, "single-signer"),
        "signatures by two": (
            {"signatures": {"keyless": {"issuer": ISSUER, "subject": SUBJECT}, "kmsKey": KEY}},
            "single-signer",
        ),
        "signatures by a key that nobody may read": (
            {"signatures": {"kmsKey": KEY}},
            "signatures.kmsKey: aws-only",
        ),
        "signatures by anybody": (
            {"signatures": {"keyless": {"issuer": ISSUER, "subject": "https://github.com/*"}}},
            "signatures.keyless.subject: identity",
        ),
        "checkout as an image of real nodes": (
            {"images": {"trainer": "registry.example.com/trainer@source"}},
            "images.trainer: source-image",
        ),
        "bad CIDR": ({"egressCidrs": ["10.0.0.0/33"]}, "egressCidrs[0]: cidr"),
        "egress to the metadata service": (
            {"egressCidrs": ["10.0.0.0/8", "169.254.169.254/32"]},
            "egressCidrs[1]: egress-to-metadata",
        ),
        "plaintext secret by its value": (
            {"nodePools[0].labels": {"owner": "AKIAIOSFODNN7EXAMPLE"}},
            "nodePools[0].labels.owner: plaintext-secret",
        ),
        "plaintext secret by its key": (
            {"nodePools[0].labels": {"registry-password": "hunter2"}},
            "nodePools[0].labels.registry-password: plaintext-secret",
        ),
    },
    "values": {
        "a team whose namespace has no room": (
            {
                "teams[2]": {
                    "name": "t" * 59,
                    "tier": "research",
                    "guaranteed": {},
                    "quota": {"cpu": "512", "memory": "4Ti", "gpus": 32},
                }
            },
            "teams[2].name: name-too-long",
        ),
        "a taint of spaces": ({"taintKey": "for gpus"}, "label-key"),
        "the taint of spot nodes": ({"taintKey": "spot"}, "taint-key"),
        "a taint of Kubernetes": ({"taintKey": "node.kubernetes.io/unreachable"}, "taint-key"),
        "a label's value of two lines": (
            {"nodePools[0].labels": {"rack": "a\nb"}},
            "nodePools[0].labels.rack: label-value",
        ),
        "a label's key of a path": (
            {"nodePools[0].labels": {"a/b/c": "d"}},
            "nodePools[0].labels.a/b/c: label-key",
        ),
        "the only team": (
            {
                "teams": [
                    {
                        "name": "research",
                        "tier": "reserch",
                        "guaranteed": {"spot": 4},
                        "quota": {"cpu": "512", "memory": "4Ti", "gpus": 32},
                    }
                ]
            },
            "teams[0].tier: unknown-value",
        ),
        "more nodes than a cluster has": (
            {"nodePools[0].max": 9223372036854775808},
            "out-of-range",
        ),
        "memory in thousandths of a byte": ({"teams[0].quota.memory": "900m"}, "out-of-range"),
        "a volume beyond 64 bits": ({"storage.datasets": "9000Pi"}, "out-of-range"),
        "a registry with a tag after a colon": (
            {"images": {}, "registries": ["registry.example.com/trainer:v1"]},
            "registries[0]: registry",
        ),
        "an image with an empty part": (
            {"images": {"trainer": f"registry.example.com//trainer{DIGEST}"}},
            "images.trainer: image-reference",
        ),
        "an interface with a space": (
            {"nodePools[2].fabric": {"interface": "eth0 eth1"}},
            "nodePools[2].fabric.interface: interface",
        ),
        "an unknown form of version": (
            {"cluster.version": "1.\xb2", "operators.kueue": {"provided": False}},
            "cluster.version: kubernetes-version",
        ),
        "a key that is a number": (
            {"images": {"trainer": IMAGE, 1: f"registry.example.com/other{DIGEST}"}},
            "images[1]: wrong-type",
        ),
        "a key of two lines": ({"a\nb": 1}, "a\nb: unknown-key"),
    },
    "gpus": {
        "an exporter and no plugin": (
            {"operators.dcgmExporter": {"provided": False}},
            "operator-required",
        ),
        "a driver of an operator that is not there": (
            {"gpus": {"driver": "operator"}},
            "gpus.driver: operator-required",
        ),
        "sharing of an unknown pool": (
            {
                "operators.gpuOperator": {"provided": False},
                "gpus": {"sharing": {"spto": {"timeSlicing": 2}}},
            },
            "gpus.sharing.spto: unknown-name",
        ),
        "two ways at once": (
            {
                "operators.gpuOperator": {"provided": False},
                "teams[1].borrowing": {"spot": 0},
                "gpus": {"sharing": {"spot": {"timeSlicing": 2, "mps": 2}}},
            },
            "gpus.sharing.spot: sharing-mode",
        ),
        "no way": (
            {"operators.gpuOperator": {"provided": False}, "gpus": {"sharing": {"spot": {}}}},
            "gpus.sharing.spot: sharing-mode",
        ),
        "time-slicing across teams": (
            {
                "operators.gpuOperator": {"provided": False},
                "teams[1].tier": "research",
                "teams[1].guaranteed": {},
                "gpus": {"sharing": {"spot": {"timeSlicing": 4}}},
            },
            "gpus.sharing.spot.timeSlicing: sharing-across-teams",
        ),
        "MPS on a pool of production": (
            {
                "operators.gpuOperator": {"provided": False},
                "teams[0].borrowing": {"ondemand": 0},
                "gpus": {"sharing": {"ondemand": {"mps": 2}}},
            },
            "gpus.sharing.ondemand.mps: sharing-with-production",
        ),
        "time-slicing by nobody": (
            {"teams[1].borrowing": {"spot": 0}, "gpus": {"sharing": {"spot": {"timeSlicing": 4}}}},
            "gpus.sharing.spot.timeSlicing: operator-required",
        ),
        "MIG by the plain plugin": (
            {
                "operators.devicePlugin": {"provided": False},
                "gpus": {"sharing": {"spot": {"mig": "1g.5gb"}}},
            },
            "gpus.sharing.spot.mig: operator-required",
        ),
        "a profile of other GPUs": (
            {
                "operators.gpuOperator": {"provided": False},
                "gpus": {"sharing": {"spot": {"mig": "1g.6gb"}}},
            },
            "gpus.sharing.spot.mig: mig-profile",
        ),
        "MIG on GPUs that have none": (
            {
                "nodePools[1].instanceTypes": ["g6.xlarge"],
                "nodePools[1].network": "tcp",
                "operators.gpuOperator": {"provided": False},
                "gpus": {"sharing": {"spot": {"mig": "1g.5gb"}}},
            },
            "gpus.sharing.spot.mig: mig-profile",
        ),
        "one share": (
            {
                "operators.gpuOperator": {"provided": False},
                "teams[1].borrowing": {"spot": 0},
                "gpus": {"sharing": {"spot": {"timeSlicing": 1}}},
            },
            "gpus.sharing.spot.timeSlicing: out-of-range",
        ),
        "RoCE without its adapters": (
            {"nodePools[0].network": "roce"},
            "nodePools[0].fabric.rdmaResource: missing",
        ),
        "an adapter of another kind": (
            {
                "nodePools[0].network": "roce",
                "nodePools[0].fabric": {"rdmaResource": "nvidia.com/hostdev"},
            },
            "nodePools[0].fabric.rdmaResource: rdma-resource",
        ),
        "adapters without RoCE": (
            {"nodePools[1].fabric": {"adapters": ["mlx5_0"]}},
            "nodePools[1].fabric.adapters: fabric-network",
        ),
        "settings of the network by a secret": (
            {"teams[0].secrets": [{"name": "mine", "env": ["WANDB_API_KEY", "NCCL_ALGO"]}]},
            "teams[0].secrets[0].env[1]: reserved-variable",
        ),
    },
    "logs": {
        "no place": ({"operators.fluentBit": {"provided": False}, "logs": {}}, "log-destination"),
        "two places": (
            {
                "operators.fluentBit": {"provided": False},
                "logs": {"loki": {"url": "https://logs.example.com"}, "cloudwatch": {}},
            },
            "log-destination",
        ),
        "CloudWatch without AWS": (
            {"operators.fluentBit": {"provided": False}, "logs": {"cloudwatch": {}}},
            "logs.cloudwatch: aws-only",
        ),
        "a place that nobody ships to": (
            {"logs": {"loki": {"url": "https://logs.example.com"}}},
            "log-shipper-missing",
        ),
        "a shipper of somebody else's": (
            {
                "operators.fluentBit": {"provided": True},
                "logs": {"loki": {"url": "https://logs.example.com"}},
            },
            "log-shipper-missing",
        ),
        "a shipper without a place": (
            {"operators.fluentBit": {"provided": False}},
            "logs: log-destination",
        ),
        "logs in plain text": (
            {
                "operators.fluentBit": {"provided": False},
                "logs": {"loki": {"url": "http://logs.example.com"}},
            },
            "logs.loki.url: plaintext-url",
        ),
        "a password in the URL": (
            {
                "operators.fluentBit": {"provided": False},
                "logs": {"loki": {"url": "https://user:word@logs.example.com"}},
            },
            "logs.loki.url: url",
        ),
        "a drill in an unknown image": (
            {"teams[1].restoreDrill": {"image": "trainr"}},
            "teams[1].restoreDrill.image: unknown-name",
        ),
        "a drill in an image from elsewhere": (
            {
                "teams[1].restoreDrill": {"enabled": True, "image": f"docker.io/trainer{DIGEST}"},
                "registries": ["registry.example.com/trainer"],
            },
            "teams[1].restoreDrill.image: registry-not-allowed",
        ),
        "a drill at no time": (
            {"teams[1].restoreDrill": {"schedule": "nightly"}},
            "teams[1].restoreDrill.schedule: cron-schedule",
        ),
        "a drill of no run": (
            {"teams[1].restoreDrill": {"runs": 0}},
            "teams[1].restoreDrill.runs: out-of-range",
        ),
        "a drill in no bucket": (
            {"teams[1].restoreDrill": {"stores": ["/checkpoints"]}},
            "teams[1].restoreDrill.stores[0]: s3-uri",
        ),
        "a drill that no node could hold": (
            {"teams[1].restoreDrill": {"largest": "64Gi"}},
            "teams[1].restoreDrill.largest: restore-drill-too-large",
        ),
    },
    "schedulers": {
        "no such scheduler": ({"scheduler": "volcanoo"}, "unknown-value"),
        "Kueue without its operator": ({"operators.kueue": GONE}, "operator-required"),
        "Volcano without its operator": (
            {"operators.kueue": GONE, "scheduler": "volcano"},
            "operators.volcano: operator-required",
        ),
        "two schedulers": (
            {"operators.yunikorn": {"provided": True}, "scheduler": "yunikorn"},
            "operators.kueue: second-scheduler",
        ),
        "a second scheduler beside Kubernetes' own": (
            {**NATIVE, "operators.volcano": {"provided": True}},
            "operators.volcano: second-scheduler",
        ),
        "native without a version": (
            {
                "operators.kueue": GONE,
                "teams[0].guaranteed": GONE,
                "teams[1].guaranteed": GONE,
                "scheduler": "native",
            },
            "cluster.version: native-version",
        ),
        "native in a version of another form": (
            {**NATIVE, "cluster.version": "1.35"},
            "cluster.version: native-version",
        ),
        "a version that nothing depends on": ({"cluster.version": "1.37"}, "version-unused"),
        "a version that is a number": (
            {**NATIVE, "cluster.version": 1.37},
            "cluster.version: wrong-type",
        ),
        "weights that Volcano's queues do not know": (
            {**VOLCANO, "teams[0].fairWeight": 3},
            "teams[0].fairWeight: kueue-only",
        ),
        "a limit of borrowing that YuniKorn's queues do not know": (
            {**YUNIKORN, "teams[0].borrowing": {"spot": 1}},
            "teams[0].borrowing: kueue-only",
        ),
        "guarantees without queues": (
            {**NATIVE, "teams[1].guaranteed": {"ondemand": 1}},
            "teams[1].guaranteed: no-queues",
        ),
    },
    "validation": {
        "no image": ({"images": {}, "validation": {}}, "validation.image: unknown-name"),
        "image from elsewhere": (
            {
                "validation": {"image": f"elsewhere.example.com/trainer{DIGEST}"},
                "registries": ["registry.example.com"],
            },
            "validation.image: registry-not-allowed",
        ),
        "long name": (
            {
                "nodePools[3]": {
                    "name": "a" * 40,
                    "capacity": "on-demand",
                    "min": 0,
                    "max": 4,
                    "instanceTypes": ["p4d.24xlarge"],
                    "zone": "us-east-1a",
                    "network": "efa",
                },
                "validation": {},
            },
            "nodePools[3].name: name-too-long",
        ),
        "bandwidth of an unknown pool": (
            {"validation": {"minGBps": {"spott": 40}}},
            "validation.minGBps.spott: no-collective-check",
        ),
        "weekly without nodes": (
            {"validation": {"weekly": True}},
            "validation.weekly: weekly-without-nodes",
        ),
        "no bandwidth": (
            {"validation": {"minGBps": {"spot": 0}}},
            "validation.minGBps.spot: out-of-range",
        ),
        "unknown key": ({"validation": {"daily": True}}, "validation.daily: unknown-key"),
    },
}
ON_EKS: Cases = {
    "values": {
        "all secrets of the account": (
            {
                "operators.externalSecrets": {"provided": False},
                "teams[0].secrets": [{"name": "hub", "env": ["HF_TOKEN"], "remoteKey": "*"}],
            },
            "teams[0].secrets[0].remoteKey: remote-key",
        ),
        "a variable of IAM as a secret": (
            {
                "operators.externalSecrets": {"provided": False},
                "teams[0].secrets": [
                    {"name": "hub", "env": ["HF_TOKEN"], "remoteKey": "${aws:username}"}
                ],
            },
            "teams[0].secrets[0].remoteKey: remote-key",
        ),
        "a label that kubelets refuse": (
            {"nodePools[0].labels": {"node-role.kubernetes.io/gpu": "yes"}},
            "nodePools[0].labels.node-role.kubernetes.io/gpu: reserved-domain",
        ),
        "a tag's key with a sign": ({"aws.tags": {"${owner}": "a"}}, "aws.tags.${owner}: tag"),
        "more tags than AWS takes": ({"aws.tags": {f"k{n}": "v" for n in range(41)}}, "too-many"),
        "a role in letters that IAM lacks": (
            {"cluster.admins": ["arn:aws:iam::111122223333:role/\xe9quipe"]},
            "cluster.admins[0]: role-arn",
        ),
        "checkpoints that wait for ever": (
            {"storage.buckets.oldCheckpointDays": 4000},
            "out-of-range",
        ),
    },
    "gpus": {
        "two that offer GPUs": (
            {"operators.devicePlugin": {"provided": False}},
            "conflicting-operators",
        ),
        "two exporters": ({"operators.dcgmExporter": {"provided": False}}, "conflicting-operators"),
        "nobody offers the GPUs of EKS": ({"operators.gpuOperator": GONE}, "gpu-plugin-missing"),
        "nobody offers the adapters of EKS": (
            {"operators.efaDevicePlugin": GONE},
            "efa-plugin-missing",
        ),
        "image and operator both install drivers": (
            {"gpus": {"driver": "operator"}},
            "gpus.driver: driver-conflict",
        ),
        "shares on nodes of Karpenter": (
            {
                "nodePools[1].instanceTypes": ["p4d.24xlarge"],
                "gpus": {"sharing": {"spot": {"mig": "1g.5gb"}}},
            },
            "gpus.sharing.spot: sharing-on-karpenter",
        ),
        "RoCE on EC2": ({"nodePools[1].network": "roce"}, "roce-nodes"),
        "facts of nodes that the stack makes": (
            {"nodePools[1].fabric": {"mtu": 1500}},
            "fabric-nodes",
        ),
    },
    "aws": {
        "no provider": ({"cluster.provider": GONE}, "missing"),
        "key of the other provider": ({"cluster.context": "mine"}, "unknown-key"),
        "unsupported Kubernetes": ({"cluster.version": "1.29"}, "unknown-value"),
        "Kubernetes version without quotes": ({"cluster.version": 1.35}, "unknown-value"),
        "endpoint for everybody": (
            {"cluster.endpoint": ["0.0.0.0/0"]},
            "cluster.endpoint[0]: public-endpoint",
        ),
        "endpoint for half of everybody": (
            {"cluster.endpoint": ["128.0.0.0/1"]},
            "cluster.endpoint[0]: public-endpoint",
        ),
        "endpoint for everybody by IPv6": (
            {"cluster.endpoint": ["203.0.113.0/24", "::/0"]},
            "cluster.endpoint[1]: public-endpoint",
        ),
        "endpoint for private addresses": (
            {"cluster.endpoint": ["10.0.0.0/8"]},
            "cluster.endpoint[0]: private-block",
        ),
        "malformed role": (
            {"cluster.admins": ["arn:aws:iam::111122223333:user/ada"]},
            "cluster.admins[0]: role-arn",
        ),
        "role of another account": (
            {"cluster.deployers": ["arn:aws:iam::444455556666:role/ci"]},
            "cluster.deployers[0]: role-account",
        ),
        "role that is admin and deployer": (
            {"cluster.deployers": ["arn:aws:iam::111122223333:role/platform-admin"]},
            "cluster.deployers[0]: duplicate",
        ),
        "member of another account": (
            {"teams[0].members": {"researchers": ["arn:aws:iam::444455556666:role/research"]}},
            "teams[0].members.researchers[0]: role-account",
        ),
        "member who is an account's root": (
            {"teams[0].members": {"researchers": ["arn:aws:iam::111122223333:root"]}},
            "teams[0].members.researchers[0]: role-arn",
        ),
        "member who is an admin": (
            {
                "teams[0].members": {
                    "researchers": ["arn:aws:iam::111122223333:role/platform-admin"]
                }
            },
            "teams[0].members.researchers[0]: duplicate",
        ),
        "log retention that CloudWatch does not know": (
            {"cluster.logRetentionDays": 100},
            "log-retention",
        ),
        "system nodes with GPUs": (
            {"cluster.systemNodes": {"instanceTypes": ["g6.xlarge"]}},
            "cluster.systemNodes.instanceTypes[0]: system-node-type",
        ),
        "more system nodes than there may be": (
            {"cluster.systemNodes": {"min": 5}},
            "cluster.systemNodes.min: min-above-max",
        ),
        "no aws": ({"aws": GONE}, "missing"),
        "unknown region": ({"aws.region": "us-east-7"}, "unknown-name"),
        "region of GovCloud": ({"aws.region": "us-gov-west-1"}, "unsupported-partition"),
        "account of 11 digits": ({"aws.account": "11112222333"}, "account-id"),
        "account without quotes": ({"aws.account": 111122223333}, "account-id"),
        "tag of AWS' own": ({"aws.tags": {"aws:owner": "me"}}, "aws.tags.aws:owner: tag"),
        "no network": ({"network": GONE}, "missing"),
        "zone of another region": ({"network.zones[2]": "us-west-2c"}, "zone-outside-region"),
        "zone twice": ({"network.zones[2]": "us-east-1b"}, "duplicate"),
        "one zone": (
            {"network.zones": ["us-east-1a"], "nodePools[2].zone": "us-east-1a"},
            "network.zones: zone-count",
        ),
        "public addresses": ({"network.cidr": "52.0.0.0/16"}, "public-cidr"),
        "too few addresses": ({"network.cidr": "10.20.0.0/24"}, "cidr-size"),
        "too many addresses": ({"network.cidr": "10.0.0.0/8"}, "cidr-size"),
        "addresses of Kubernetes Services": ({"network.cidr": "172.20.0.0/16"}, "cidr-overlap"),
        "no addresses": ({"network.cidr": "10.20.0.0"}, "cidr-size"),
        "fewer addresses than nodes": ({"network.cidr": "10.20.0.0/19"}, "cidr-too-small"),
        "addresses with host bits": ({"network.cidr": "10.20.3.0/16"}, "cidr"),
        "IPv6 addresses": ({"network.cidr": "fd00::/16"}, "not-ipv4"),
        "network that is made and brought": (
            {"network.existing": VPC},
            "network.cidr: unknown-key\nnetwork.zones: unknown-key",
        ),
        "brought network with the addresses of Services": (
            {"network": {"existing": VPC | {"cidr": "172.16.0.0/12"}}},
            "network.existing.cidr: cidr-overlap",
        ),
        "secondary block with the addresses of Services": (
            {
                "network": {
                    "existing": VPC | {"secondaryCidrs": ["100.64.0.0/16", "172.20.128.0/17"]}
                }
            },
            "network.existing.secondaryCidrs[1]: cidr-overlap",
        ),
        "secondary block that is listed already": (
            {
                "network": {
                    "existing": VPC
                    | {"secondaryCidrs": ["10.9.0.0/20", "100.64.0.0/16", "100.64.0.0/16"]}
                }
            },
            "network.existing.secondaryCidrs[0]: cidr-overlap\nnetwork.existing.secondaryCidrs[2]: cidr-overlap",
        ),
        "secondary block by IPv6": (
            {"network": {"existing": VPC | {"secondaryCidrs": ["fd00::/56"]}}},
            "network.existing.secondaryCidrs[0]: not-ipv4",
        ),
        "secondary block of a network that is made": (
            {"network.secondaryCidrs": ["100.64.0.0/16"]},
            "unknown-key",
        ),
        "malformed VPC": (
            {"network": {"existing": VPC | {"vpcId": "my-vpc"}}},
            "network.existing.vpcId: vpc-id",
        ),
        "malformed subnet": (
            {
                "network": {
                    "existing": VPC
                    | {
                        "privateSubnets": {
                            "us-east-1a": "subnet-0a1b2c3d",
                            "us-east-1b": "subnet-b",
                        }
                    }
                }
            },
            "network.existing.privateSubnets.us-east-1b: subnet-id",
        ),
        "one subnet for two zones": (
            {
                "network": {
                    "existing": VPC
                    | {
                        "privateSubnets": {
                            "us-east-1a": "subnet-0a1b2c3d",
                            "us-east-1b": "subnet-0a1b2c3d",
                        }
                    }
                }
            },
            "network.existing.privateSubnets.us-east-1b: duplicate",
        ),
        "brought zone of another region": (
            {
                "network": {
                    "existing": VPC
                    | {
                        "privateSubnets": {
                            "us-east-1a": "subnet-0a1b2c3d",
                            "us-east-1b": "subnet-1a1b2c3d",
                            "eu-west-1a": "subnet-2a1b2c3d",
                        }
                    }
                }
            },
            "network.existing.privateSubnets.eu-west-1a: zone-outside-region",
        ),
        "pool outside the network": ({"nodePools[2].zone": "us-east-1c"}, "zone-outside-network"),
        "EFA away from its file system": ({"nodePools[0].zone": "us-east-1b"}, "efa-across-zones"),
        "EFA in two zones": (
            {
                "nodePools[1].zone": "us-east-1b",
                "nodePools[1].network": "efa",
                "storage.fsx": None,
                "storage.efs": {},
            },
            "nodePools[1].zone: efa-across-zones",
        ),
        "simulated nodes on AWS": ({"nodePools[2].nodes": "kwok"}, "nodes-provider"),
        "nodes that nobody makes": ({"nodePools[0].nodes": GONE}, "nodes-provider"),
        "EFA on a type without it": (
            {"nodePools[1].instanceTypes": ["g6.xlarge"], "nodePools[1].network": "efa"},
            "nodePools[1].instanceTypes[0]: type-without-efa",
        ),
        "placement group without EFA": (
            {"nodePools[1].placementGroup": True},
            "placement-group-network",
        ),
        "capacity block on spot": (
            {
                "nodePools[0].capacity": "spot",
                "nodePools[0].reservation": BLOCK,
                "teams[0].tier": "research",
            },
            "nodePools[0].reservation: reservation-on-spot",
        ),
        "reservation of several types": (
            {"nodePools[0].instanceTypes[1]": "p5.48xlarge", "nodePools[0].reservation": BLOCK},
            "nodePools[0].instanceTypes: reservation-types",
        ),
        "capacity block without its end": (
            {"nodePools[0].reservation": BLOCK | {"start": "2027-03-01T11:30:00Z"}},
            "reservation-clock",
        ),
        "capacity block that ends before it starts": (
            {"nodePools[0].reservation": TIMED | {"end": "2027-02-01T11:30:00Z"}},
            "reservation-clock",
        ),
        "clock of another reservation": (
            {
                "nodePools[0].reservation": TIMED
                | {"kind": "on-demand-capacity-reservation", "end": "2027-03-02T11:30:00Z"}
            },
            "reservation-clock",
        ),
        "timed capacity block that nothing scales": (
            {"nodePools[0].min": 0, "nodePools[0].reservation": TIMED},
            "nodePools[0].nodes: timed-block-unscaled",
        ),
        "timed capacity block without an autoscaler": (
            {
                "nodePools[0].min": 0,
                "nodePools[0].reservation": TIMED,
                "nodePools[1].nodes": "managed",
                "nodePools[1].min": 50,
                "autoscaler": "none",
            },
            "nodePools[0].nodes: timed-block-unscaled",
        ),
        "capacity block in local time": (
            {
                "nodePools[0].reservation": TIMED
                | {"start": "2027-03-01T11:30", "end": "2027-03-02T11:30:00Z"}
            },
            "nodePools[0].reservation.start: instant",
        ),
        "malformed reservation": (
            {"nodePools[0].reservation": BLOCK | {"id": "cr-123"}},
            "nodePools[0].reservation.id: reservation-id",
        ),
        "two architectures": (
            {"nodePools[1].instanceTypes": ["p4d.24xlarge", "p6e-gb200.36xlarge"]},
            "mixed-architectures",
        ),
        "update speed of a Karpenter pool": ({"nodePools[1].maxUnavailable": 2}, "pool-option"),
        "topology of nodes that do not exist yet": (
            {"nodePools[1].topology": True},
            "pool-option",
        ),
        "minimum of a Karpenter pool": ({"nodePools[1].min": 1}, "karpenter-min"),
        "root volume too small for an image": ({"nodePools[0].rootGiB": 20}, "out-of-range"),
        "managed pool that nobody enlarges": ({"nodePools[0].min": 2}, "fixed-size-pool"),
        "Karpenter's pool without Karpenter": (
            {"autoscaler": "none"},
            "nodePools[1].nodes: karpenter-autoscaler",
        ),
        "Karpenter without a pool": (
            {"nodePools[1].nodes": "managed", "nodePools[1].min": 50},
            "autoscaler: autoscaler-unused",
        ),
        "no pool for pods without GPUs": (
            {"nodePools[2]": GONE},
            "nodePools: cpu-pool-missing",
        ),
        "Cluster Autoscaler without a pool": (
            {
                "nodePools": [
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
                        "nodes": "karpenter",
                    },
                ],
                "autoscaler": "cluster-autoscaler",
                "teams[0].tier": "research",
                "teams[0].guaranteed": {},
            },
            "autoscaler: autoscaler-unused\nnodePools[0].nodes: karpenter-autoscaler",
        ),
        "production on spot alone": ({"teams[0].guaranteed": {"spot": 4}}, "production-on-spot"),
        "no storage": ({"storage.fsx": GONE}, "storage: storage-missing"),
        "two storages": ({"storage.efs": {}}, "storage: storage-backend"),
        "file system outside the network": (
            {"storage.fsx": {"zone": "us-east-1c"}},
            "storage.fsx.zone: zone-outside-network\nnodePools[0].zone: efa-across-zones",
        ),
        "no buckets": ({"storage.buckets": GONE}, "missing"),
        "bucket prefix with capitals": (
            {"storage.buckets": {"prefix": "Acme_Training"}},
            "storage.buckets.prefix: bucket-prefix",
        ),
        "bucket prefix too long for its suffix": (
            {"storage.buckets": {"prefix": "a" * 52}},
            "storage.buckets.prefix: bucket-prefix",
        ),
        "bucket prefix of S3's own": (
            {"storage.buckets": {"prefix": "xn--acme"}},
            "storage.buckets.prefix: bucket-prefix",
        ),
        "checkout as an image": (
            {"images": {"trainer": "registry.example.com/trainer@source"}},
            "images.trainer: source-image",
        ),
    },
}


ACCEPTED_ON_EXISTING: dict[str, Changes] = {
    "the operator's driver on nodes that have none": {
        "operators.gpuOperator": {"provided": False},
        "gpus": {"driver": "operator"},
    },
    "time-slicing for one research team": {
        "operators.gpuOperator": {"provided": False},
        "teams[1].borrowing": {"spot": 0},
        "gpus": {"sharing": {"spot": {"timeSlicing": 4}}},
    },
    "MIG for everybody": {
        "operators.gpuOperator": {"provided": False},
        "gpus": {"sharing": {"spot": {"mig": "1g.5gb"}}},
    },
    "slices of simulated nodes, which nobody prepares": {
        "nodePools[1].nodes": "kwok",
        "teams[1].borrowing": {"spot": 0},
        "gpus": {"sharing": {"spot": {"timeSlicing": 4}}},
    },
    "RoCE with its adapters": {
        "nodePools[0].network": "roce",
        "nodePools[0].fabric": {"rdmaResource": "rdma/hca", "mtu": 9000},
    },
    "known facts of a plain network": {
        "nodePools[0].network": "tcp",
        "nodePools[0].fabric": {"interface": "eth0", "mtu": 8950},
    },
    "logs to https://logs.example.com/in": {
        "operators.fluentBit": {"provided": False},
        "logs": {"loki": {"url": "https://logs.example.com/in"}},
    },
    "logs to http://loki.observing.svc:3100": {
        "operators.fluentBit": {"provided": False},
        "logs": {"loki": {"url": "http://loki.observing.svc:3100"}},
    },
    "logs to https://10.0.0.7:443": {
        "operators.fluentBit": {"provided": False},
        "logs": {"loki": {"url": "https://10.0.0.7:443"}},
    },
    "a drill of research and none of production": {
        "teams[0].restoreDrill": {"enabled": True},
        "teams[1].restoreDrill": {"enabled": False, "image": "none"},
    },
    "checks by an image of an allowed registry": {
        "validation": {"image": f"elsewhere.example.com/trainer{DIGEST}"},
        "registries": ["registry.example.com", "elsewhere.example.com"],
    },
    "a long name of a pool, without checks": {"nodePools[3]": LONG_NAME},
    "a long name of a simulated pool, which has no checks": {
        "nodePools[3]": LONG_NAME | {"nodes": "kwok"},
        "validation": {},
    },
}
ACCEPTED_ON_EKS: dict[str, Changes] = {
    "the minimal plugin with its exporter": {
        "operators.gpuOperator": GONE,
        "operators.devicePlugin": {"provided": False},
        "operators.dcgmExporter": {"provided": False},
    },
    "logs to CloudWatch by default": {"operators.fluentBit": {"provided": False}},
    "logs to CloudWatch": {
        "operators.fluentBit": {"provided": False},
        "logs": {"cloudwatch": {"retentionDays": 30}},
    },
}


def changed(values: dict[str, Any], changes: Changes) -> dict[str, Any]:
    values = copy.deepcopy(values)
    for path, value in changes.items():
        *places, last = [
            int(n) if n else key for key, n in re.findall(r"([^.\[\]]+)|\[(\d+)\]", path)
        ]
        holder: Any = values
        for place in places:
            holder = holder[place]
        if value is GONE:
            del holder[last]
        elif isinstance(holder, list) and last == len(holder):
            holder.append(value)
        else:
            holder[last] = value
    return values


def names(cases: Cases) -> list[tuple[str, str]]:
    return [(group, name) for group, found in cases.items() for name in found]


def check(cases: Cases, group: str, name: str, values: dict[str, Any]) -> None:
    changes, expected = cases[group][name]
    *_, path = changes
    expected = expected if ": " in expected else f"{path}: {expected}"
    check_issues(group, name, changed(values, changes), expected)


@pytest.mark.parametrize(("group", "name"), names(ON_EXISTING))
def test_mistake_on_an_existing_cluster_is_one_issue(group: str, name: str) -> None:
    check(ON_EXISTING, group, name, existing())


@pytest.mark.parametrize(("group", "name"), names(ON_EKS))
def test_mistake_on_eks_is_one_issue(group: str, name: str) -> None:
    check(ON_EKS, group, name, eks())


@pytest.mark.parametrize("name", ACCEPTED_ON_EXISTING)
def test_valid_counterpart_on_an_existing_cluster_is_accepted(name: str) -> None:
    parse(changed(existing(), ACCEPTED_ON_EXISTING[name]))


@pytest.mark.parametrize("name", ACCEPTED_ON_EKS)
def test_valid_counterpart_on_eks_is_accepted(name: str) -> None:
    parse(changed(eks(), ACCEPTED_ON_EKS[name]))
