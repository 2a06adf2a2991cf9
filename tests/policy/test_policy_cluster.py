"""The rules about the EKS cluster, its nodes' metadata, Karpenter, and state that is protected."""

from __future__ import annotations

from typing import Any

import pytest

from policies.rules.cluster import EKS_ACCESS_ENTRIES, EKS_VERSION, INSTANCE_METADATA
from policies.rules.karpenter import KARPENTER_DISRUPTION
from policies.rules.model import UNKNOWN, Resource
from policies.rules.storage import PROTECTED_STATE
from tests.policy.policy_examples import paths, violations
from tests.unit.snapshots import Text

CLUSTER = "aws:eks/cluster:Cluster"
COMPONENT = "eks:index:Cluster"
NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
NODE_CLASS = "kubernetes:karpenter.k8s.aws/v1:EC2NodeClass"
BUCKET = "aws:s3/bucket:Bucket"


@pytest.mark.parametrize(
    ("kind", "props"),
    [
        (CLUSTER, {"accessConfig": {"authenticationMode": "API"}}),
        (CLUSTER, {"accessConfig": {"authenticationMode": "API_AND_CONFIG_MAP"}}),
        (CLUSTER, {"accessConfig": UNKNOWN}),
        (COMPONENT, {"authenticationMode": "API"}),
        (COMPONENT, {}),
    ],
)
def test_a_cluster_with_access_entries_passes(kind: str, props: dict[str, Any]) -> None:
    assert violations(EKS_ACCESS_ENTRIES, Resource(type=kind, props=props)) == []


@pytest.mark.parametrize(
    ("kind", "props", "where"),
    [
        (
            CLUSTER,
            {"accessConfig": {"authenticationMode": "CONFIG_MAP"}},
            "accessConfig.authenticationMode",
        ),
        (CLUSTER, {}, "accessConfig.authenticationMode"),
        (COMPONENT, {"authenticationMode": "CONFIG_MAP"}, "authenticationMode"),
        (COMPONENT, {"version": "1.35"}, "authenticationMode"),
    ],
)
def test_a_cluster_with_config_map_authentication_is_rejected(
    kind: str, props: dict[str, Any], where: str
) -> None:
    assert paths(violations(EKS_ACCESS_ENTRIES, Resource(type=kind, props=props))) == [where]


def test_the_message_distinguishes_a_stated_mode_from_the_default(text: Text) -> None:
    for props in (
        {"accessConfig": {"authenticationMode": "CONFIG_MAP"}},
        {},
    ):
        (found,) = violations(EKS_ACCESS_ENTRIES, Resource(type=CLUSTER, props=props))
        text(str(found))


@pytest.mark.parametrize("version", ["1.34", "1.35", "1.36", UNKNOWN])
@pytest.mark.parametrize("kind", [CLUSTER, COMPONENT, NODE_GROUP])
def test_a_supported_version_passes(kind: str, version: Any) -> None:
    assert violations(EKS_VERSION, Resource(type=kind, props={"version": version})) == []


@pytest.mark.parametrize("kind", [CLUSTER, COMPONENT, NODE_GROUP])
def test_an_unsupported_version_is_rejected(kind: str, text: Text) -> None:
    old = Resource(type=kind, props={"version": "1.32"})
    text(str(violations(EKS_VERSION, old)[0]))
    assert violations(EKS_VERSION, old, versions=["1.32"]) == []


def test_a_cluster_requires_a_version_and_a_node_group_does_not() -> None:
    unnamed = {"name": "training"}
    assert paths(violations(EKS_VERSION, Resource(type=CLUSTER, props=unnamed))) == ["version"]
    assert violations(EKS_VERSION, Resource(type=NODE_GROUP, props=unnamed)) == []
    assert violations(EKS_VERSION, Resource(type=COMPONENT, props={})) == []


def options(**changes: Any) -> dict[str, Any]:
    return {"httpTokens": "required", "httpPutResponseHopLimit": 1} | changes


def metadata(given: Any) -> list[Resource]:
    return [
        Resource(type=TEMPLATE, props={"metadataOptions": given}),
        Resource(type=NODE_CLASS, props={"spec": {"metadataOptions": given}}),
    ]


@pytest.mark.parametrize(
    "given", [options(), {"httpEndpoint": "disabled"}, UNKNOWN, dict.fromkeys(options(), UNKNOWN)]
)
def test_metadata_with_token_and_one_hop_passes(given: Any) -> None:
    assert [
        v for resource in metadata(given) for v in violations(INSTANCE_METADATA, resource)
    ] == []


@pytest.mark.parametrize(
    ("given", "fields"),
    [
        (options(httpTokens="optional"), ["httpTokens"]),
        (options(httpPutResponseHopLimit=2), ["httpPutResponseHopLimit"]),
        (options(httpPutResponseHopLimit=None), ["httpPutResponseHopLimit"]),
        (None, ["httpTokens", "httpPutResponseHopLimit"]),
    ],
)
def test_metadata_reachable_from_pods_is_rejected(given: Any, fields: list[str]) -> None:
    template, node_class = metadata(given)
    at = [f"metadataOptions.{field}" for field in fields]
    assert paths(violations(INSTANCE_METADATA, template)) == at
    assert paths(violations(INSTANCE_METADATA, node_class)) == [f"spec.{path}" for path in at]


def test_the_hop_limit_is_configurable(text: Text) -> None:
    template, _ = metadata(options(httpPutResponseHopLimit=2))
    assert violations(INSTANCE_METADATA, template, maxHopLimit=2) == []
    text(str(violations(INSTANCE_METADATA, template)[0]))


def test_a_node_group_needs_a_launch_template_for_its_metadata(text: Text) -> None:
    kept = Resource(type=NODE_GROUP, props={"launchTemplate": {"id": UNKNOWN}})
    assert violations(INSTANCE_METADATA, kept) == []
    for bare in ({}, {"launchTemplate": None}):
        (found,) = violations(INSTANCE_METADATA, Resource(type=NODE_GROUP, props=bare))
        text(str(found))


STATE = [
    BUCKET,
    "aws:kms/key:Key",
    "aws:efs/fileSystem:FileSystem",
    "aws:fsx/lustreFileSystem:LustreFileSystem",
    "aws:ebs/volume:Volume",
    "kubernetes:core/v1:PersistentVolume",
    "kubernetes:core/v1:PersistentVolumeClaim",
]


@pytest.mark.parametrize("kind", STATE)
def test_stateful_resources_are_protected_if_configured(kind: str, text: Text) -> None:
    bare, kept = (Resource(type=kind, props={}, protected=on) for on in (False, True))
    assert violations(PROTECTED_STATE, bare) == []
    assert violations(PROTECTED_STATE, kept, required=True) == []
    text(str(violations(PROTECTED_STATE, bare, required=True)[0]))


def test_stateless_resources_require_no_protection() -> None:
    queue = Resource(type="aws:sqs/queue:Queue", props={})
    assert violations(PROTECTED_STATE, queue, required=True) == []


def pool(
    policy: Any = "WhenEmpty",
    expire: Any = "Never",
    budgets: Any = None,
    limits: Any = None,
    instance: str = "p4d.24xlarge",
) -> Resource:
    requirement = {
        "key": "node.kubernetes.io/instance-type",
        "operator": "In",
        "values": [instance],
    }
    disruption = {"consolidationPolicy": policy, "budgets": budgets}
    template = {"spec": {"expireAfter": expire, "requirements": [requirement]}}
    spec = {"disruption": disruption, "limits": limits, "template": template}
    return Resource(type="kubernetes:karpenter.sh/v1:NodePool", props={"spec": spec})


@pytest.mark.parametrize(
    "resource",
    [
        pool(),
        pool(budgets=[{"nodes": "10%"}]),
        pool(budgets=[{"nodes": "50%"}, {"nodes": "0"}]),
        pool(budgets=[{"nodes": "1"}], limits={"nodes": "8"}),
        pool(budgets=[{"nodes": 1}], limits={"nodes": 8}),
        Resource(type=NODE_GROUP, props={"instanceTypes": ["p4d.24xlarge"]}),
        pool(policy=UNKNOWN, expire=UNKNOWN, budgets=UNKNOWN),
        pool("WhenEmptyOrUnderutilized", "720h", [{"nodes": "100%"}], instance="m7i.large"),
    ],
)
def test_karpenter_without_disruption_of_training_passes(resource: Resource) -> None:
    assert violations(KARPENTER_DISRUPTION, resource) == []


@pytest.mark.parametrize(
    ("resource", "where"),
    [
        (pool(policy="WhenEmptyOrUnderutilized"), "spec.disruption.consolidationPolicy"),
        (pool(policy=None), "spec.disruption.consolidationPolicy"),
        (pool(expire="720h"), "spec.template.spec.expireAfter"),
        (pool(expire=None), "spec.template.spec.expireAfter"),
        (pool(budgets=[]), "spec.disruption.budgets"),
        (pool(budgets=[{"nodes": "11%"}]), "spec.disruption.budgets"),
        (pool(budgets=[{"nodes": "few%"}]), "spec.disruption.budgets"),
        (pool(budgets=[{"nodes": "few"}]), "spec.disruption.budgets"),
        (pool(budgets=[{"nodes": "2"}], limits={"nodes": "8"}), "spec.disruption.budgets"),
        (pool(budgets=[{"nodes": "2"}]), "spec.disruption.budgets"),
        (pool(budgets=[{"nodes": "0", "schedule": "@daily"}]), "spec.disruption.budgets"),
        (pool(budgets=[{"nodes": "0", "reasons": ["Drifted"]}]), "spec.disruption.budgets"),
    ],
)
def test_karpenter_that_consolidates_training_nodes_is_rejected(
    resource: Resource, where: str
) -> None:
    assert paths(violations(KARPENTER_DISRUPTION, resource)) == [where]


def test_the_budget_of_disruption_is_the_configured_one() -> None:
    quarter = pool(budgets=[{"nodes": "25%"}])
    assert violations(KARPENTER_DISRUPTION, quarter, maxBudgetPercent=25) == []
    assert paths(violations(KARPENTER_DISRUPTION, pool(), maxBudgetPercent=5)) == [
        "spec.disruption.budgets"
    ]


THRESHOLD = "scale-down-gpu-utilization-threshold"


def autoscaler(arguments: Any, chart: str = "cluster-autoscaler") -> Resource:
    props = {"chart": chart, "values": {"extraArgs": arguments}}
    return Resource(type="kubernetes:helm.sh/v3:Release", props=props)


@pytest.mark.parametrize(
    "resource",
    [
        autoscaler({THRESHOLD: "0.01"}),
        autoscaler({THRESHOLD: 0.05}),
        autoscaler({THRESHOLD: UNKNOWN}),
        autoscaler({"scale-down-enabled": False}),
        autoscaler(UNKNOWN),
        autoscaler({}, chart="kueue"),
    ],
)
def test_a_cluster_autoscaler_that_removes_unused_gpu_nodes_only_passes(resource: Resource) -> None:
    assert violations(KARPENTER_DISRUPTION, resource) == []


@pytest.mark.parametrize(
    ("resource", "got"),
    [
        (autoscaler({THRESHOLD: "0.5"}), '"0.5"'),
        (autoscaler({}), "none (default 0.5)"),
        (autoscaler(None, chart="oci://mirror.example/charts/cluster-autoscaler"), "none (default"),
        (autoscaler(None, chart="./.charts/cluster-autoscaler-9.59.0-0123.tgz"), "none (default"),
    ],
)
def test_a_cluster_autoscaler_that_moves_runs_is_rejected(resource: Resource, got: str) -> None:
    (found,) = violations(KARPENTER_DISRUPTION, resource)
    assert found.path == f"values.extraArgs.{THRESHOLD}"
    assert found.got.startswith(got)


def drained_in(grace: Any) -> Resource:
    gpus = pool()
    gpus.props["spec"]["template"]["spec"]["terminationGracePeriod"] = grace
    return gpus


@pytest.mark.parametrize("grace", [None, UNKNOWN, "30m", "2m", "120s", "1m60s", "1h"])
def test_a_node_that_waits_for_the_longest_save_passes(grace: Any) -> None:
    assert violations(KARPENTER_DISRUPTION, drained_in(grace)) == []


@pytest.mark.parametrize("grace", ["0s", "30s", "1m", "1m59s"])
def test_a_node_that_ends_before_the_longest_save_is_rejected(grace: str, text: Text) -> None:
    (found,) = violations(KARPENTER_DISRUPTION, drained_in(grace))
    text(str(found))
