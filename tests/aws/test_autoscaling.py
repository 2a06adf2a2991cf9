"""Cluster Autoscaler: node template tags, permissions, and atomic scale-up of gangs."""

from __future__ import annotations

import dataclasses

import pulumi
import pytest

from infra.addons import mirror
from infra.addons.cluster_autoscaler import AUTOSCALER_TAGS
from infra.domain.pools import Nodes
from infra.queueing import scale_up
from infra.queueing.scale_up import GangScaleUp
from infra.sites.aws.autoscaling import (
    ClusterAutoscaler,
    autoscaler_policy,
    cluster_role,
    template_tags,
)
from infra.sites.aws.node_pools import NodePools
from infra.sites.aws.outputs import Place
from tests.aws import pools
from tests.aws.iam_evaluation import Request, allowed
from tests.aws.moto_cloud import ACCOUNT, REGION, Cloud, Deployed, deploy

RELEASE = "kubernetes:helm.sh/v3:Release"
POOLS = (pools.SPOT, pools.ONDEMAND)
CHART = mirror.chart("clusterAutoscaler", ""), AUTOSCALER_TAGS["1.35"]


def program(place: Place, opts: pulumi.ResourceOptions) -> None:
    """Groups, the autoscaler, and Kueue's check after it."""
    nodes = NodePools("nodes", POOLS, place, opts)
    groups = {pool.name: nodes.autoscaling_group(pool.name) for pool in POOLS}
    autoscaler = ClusterAutoscaler("autoscaler", POOLS, groups, place.cluster, *CHART, opts)
    after = pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(depends_on=[autoscaler]))
    GangScaleUp("scale-up", after)


@pytest.fixture(scope="module")
def made() -> Deployed:
    return pools.deployed_once(program)[1]


def test_each_tag_is_on_the_auto_scaling_group_of_its_pool(made: Deployed) -> None:
    for pool in POOLS:
        node_group = made.one("aws:eks/nodeGroup:NodeGroup", f"nodes-{pool.name}")
        group = node_group.outputs["resources"][0]["autoscalingGroups"][0]["name"]
        tags = {
            one.inputs["tag"]["key"]: one.inputs["tag"]["value"]
            for one in made.all("aws:autoscaling/tag:Tag")
            if one.inputs["autoscalingGroupName"] == group
        }
        assert tags == template_tags(pool)


def test_tag_on_an_unknown_auto_scaling_group_fails(cloud: Cloud) -> None:
    cluster, groups = pools.place(cloud).cluster, {"spot": "some-other-group"}
    with pytest.raises(LookupError, match="some-other-group is behind no node group"):
        deploy(
            lambda opts: ClusterAutoscaler(
                "autoscaler", (pools.SPOT,), groups, cluster, *CHART, opts
            ),
            cloud,
        )


def may(action: str, resource: str, **context: str) -> bool:
    request = Request(action=action, resource=resource, account=ACCOUNT, context=context)
    policy = autoscaler_policy(ACCOUNT, REGION, "training")
    return allowed(request, identity=[policy], owner=ACCOUNT)


@pytest.mark.parametrize(
    "action",
    ["autoscaling:SetDesiredCapacity", "autoscaling:TerminateInstanceInAutoScalingGroup"],
)
def test_autoscaler_may_resize_groups_of_its_cluster_only(action: str) -> None:
    group = (
        f"arn:aws:autoscaling:{REGION}:{ACCOUNT}:autoScalingGroup:1-2:autoScalingGroupName/eks-spot"
    )
    tag = "aws:ResourceTag/k8s.io/cluster-autoscaler"
    assert may(action, group, **{f"{tag}/training": "owned"})
    assert not may(action, group, **{f"{tag}/other": "owned"})
    assert not may(action, group)


def test_autoscaler_cannot_change_instances_or_tags_directly() -> None:
    assert not may("ec2:TerminateInstances", f"arn:aws:ec2:{REGION}:{ACCOUNT}:instance/i-1")
    assert not may("autoscaling:CreateOrUpdateTags", "*")
    assert may("autoscaling:DescribeTags", "*", **{"aws:RequestedRegion": REGION})


def test_provisioning_request_api_and_rbac_precede_the_autoscaler(
    made: Deployed,
) -> None:
    needed = pools.needs(made, made.one(RELEASE))
    assert {"autoscaler-api", "autoscaler-cluster-role", "autoscaler-policy"} <= needed
    binding = made.one("kubernetes:rbac.authorization.k8s.io/v1:ClusterRoleBinding").inputs
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": "cluster-autoscaler", "namespace": "kube-system"}
    ]
    assert binding["roleRef"]["name"] == cluster_role()["metadata"]["name"]


def test_kueue_admission_check_depends_on_the_provisioning_request_api(made: Deployed) -> None:
    assert "autoscaler-api" in made.one("trainyard:infra:GangScaleUp").depends_on


def test_only_managed_gpu_pools_have_an_admission_check() -> None:
    by_karpenter = dataclasses.replace(pools.ONDEMAND, name="k", nodes=Nodes.KARPENTER)
    assert scale_up.checks_strategy([pools.SPOT, by_karpenter, pools.CPU]) == {
        "admissionChecks": [{"name": "gang-scale-up", "onFlavors": ["spot"]}]
    }
    assert scale_up.checks_strategy([by_karpenter]) == {}


def test_rejected_provisioning_request_is_retried_for_more_than_a_day() -> None:
    retry = scale_up.provisioning_config()["spec"]["retryStrategy"]
    assert retry["backoffLimitCount"] * retry["backoffMaxSeconds"] > 7 * 86_400
