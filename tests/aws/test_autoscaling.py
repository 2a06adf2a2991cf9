"""Cluster Autoscaler: node template tags, permissions, and atomic scale-up of gangs."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pulumi
import pytest

from infra.addons import mirror
from infra.addons.cluster_autoscaler import AUTOSCALER_TAGS
from infra.addons.registry import ADD_ONS
from infra.domain import naming
from infra.domain.pools import Nodes
from infra.queueing import scale_up
from infra.queueing.scale_up import GangScaleUp
from infra.sites.aws import provisioning_request
from infra.sites.aws.autoscaling import (
    ClusterAutoscaler,
    ClusterAutoscalerArgs,
    autoscaler_policy,
    template_tags,
)
from infra.sites.aws.node_pools import NodePools, NodePoolsArgs
from tests.aws import pools
from tests.aws.iam_evaluation import Request, allowed
from tests.aws.moto_cloud import ACCOUNT, REGION, Cloud, Deployed, deploy

RELEASE = "kubernetes:helm.sh/v3:Release"
POOLS = (pools.SPOT, pools.ONDEMAND)
CHART: Any = {
    "chart": mirror.chart("clusterAutoscaler", ""),
    "image_tag": AUTOSCALER_TAGS["1.35"],
}

_TEMPLATE = "k8s.io/cluster-autoscaler/node-template"


def program(place: pools.Place, opts: pulumi.ResourceOptions) -> None:
    """Groups, the autoscaler, and Kueue's check after it."""
    nodes = NodePools("nodes", NodePoolsArgs(**place.common(*POOLS)), opts)
    args = ClusterAutoscalerArgs(
        cluster=place.cluster,
        pools=POOLS,
        autoscaling_groups={pool.name: nodes.autoscaling_group(pool.name) for pool in POOLS},
        **CHART,
    )
    autoscaler = ClusterAutoscaler("autoscaler", args, opts)
    after = pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(depends_on=[autoscaler]))
    GangScaleUp("scale-up", after)


@pytest.fixture(scope="module")
def made() -> Deployed:
    return pools.deployed_once(program)[1]


def test_node_template_tags_describe_nodes_of_empty_groups() -> None:
    assert template_tags(pools.ONDEMAND) == {
        f"{_TEMPLATE}/label/accelerator": "nvidia",
        f"{_TEMPLATE}/label/gpu.vendor": "nvidia",
        f"{_TEMPLATE}/label/gpu.model": "h100",
        f"{_TEMPLATE}/label/workload-type": "gpu-training",
        f"{_TEMPLATE}/label/node-type": "gpu-ondemand",
        f"{_TEMPLATE}/label/trainyard.dev/pool": "ondemand",
        f"{_TEMPLATE}/label/trainyard.dev/capacity": "on-demand",
        f"{_TEMPLATE}/label/team": "any",
        f"{_TEMPLATE}/taint/dedicated": "gpu-training:NoSchedule",
        f"{_TEMPLATE}/resources/nvidia.com/gpu": "8",
        f"{_TEMPLATE}/resources/vpc.amazonaws.com/efa": "32",
    }


def test_spot_groups_have_the_spot_taint_tag_and_cpu_groups_no_device_tags() -> None:
    assert template_tags(pools.SPOT)[f"{_TEMPLATE}/taint/spot"] == "true:NoSchedule"
    assert not [key for key in template_tags(pools.CPU) if "resources" in key or "taint" in key]


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
    args = ClusterAutoscalerArgs(
        cluster=pools.place(cloud).cluster,
        pools=(pools.SPOT,),
        autoscaling_groups={"spot": "some-other-group"},
        **CHART,
    )
    with pytest.raises(LookupError, match="some-other-group is behind no node group"):
        deploy(lambda opts: ClusterAutoscaler("autoscaler", args, opts), cloud)


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


def test_the_roles_policy_is_written_for_the_cluster(made: Deployed) -> None:
    policy = json.loads(made.one("aws:iam/rolePolicy:RolePolicy").inputs["policy"])
    assert policy == autoscaler_policy(ACCOUNT, REGION, "training")


def test_autoscaler_matches_the_cluster_version_and_handles_provisioning_requests(
    made: Deployed,
) -> None:
    release = made.one(RELEASE).inputs
    assert release["version"] == ADD_ONS["clusterAutoscaler"].version
    values = release["values"]
    assert values["image"] == {"tag": "v1.35.0"}
    assert values["autoDiscovery"] == {"clusterName": "training"}
    assert values["extraArgs"]["enable-provisioning-requests"] is True
    account = values["rbac"]["serviceAccount"]["name"]
    association = made.one("aws:eks/podIdentityAssociation:PodIdentityAssociation").inputs
    assert (association["namespace"], association["serviceAccount"]) == (
        release["namespace"],
        account,
    )


def test_every_eks_version_has_an_autoscaler() -> None:
    assert set(AUTOSCALER_TAGS) == {"1.34", "1.35", "1.36"}
    for version, tag in AUTOSCALER_TAGS.items():
        assert tag.startswith(f"v{version}.")


def test_nodes_with_pods_are_not_scaled_down(made: Deployed) -> None:
    arguments = made.one(RELEASE).inputs["values"]["extraArgs"]
    for threshold in ("scale-down-utilization-threshold", "scale-down-gpu-utilization-threshold"):
        # One GPU of eight is more than this.
        assert 0 < float(arguments[threshold]) < 1 / 8
    assert arguments["ignore-daemonsets-utilization"] is True


def test_provisioning_request_api_and_rbac_precede_the_autoscaler(
    made: Deployed,
) -> None:
    needed = pools.needs(made, made.one(RELEASE))
    assert {"autoscaler-api", "autoscaler-cluster-role", "autoscaler-policy"} <= needed
    binding = made.one("kubernetes:rbac.authorization.k8s.io/v1:ClusterRoleBinding").inputs
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": "cluster-autoscaler", "namespace": "kube-system"}
    ]
    assert binding["roleRef"]["name"] == provisioning_request.cluster_role()["metadata"]["name"]


def test_kueue_admission_check_depends_on_the_provisioning_request_api(made: Deployed) -> None:
    assert "autoscaler-api" in made.one("trainyard:infra:GangScaleUp").depends_on


def test_provisioning_request_api_has_the_version_that_kueue_uses() -> None:
    crd = provisioning_request.definition()
    assert crd["metadata"]["name"] == "provisioningrequests.autoscaling.x-k8s.io"
    served = {one["name"]: one for one in crd["spec"]["versions"] if one["served"]}
    assert served["v1"]["storage"] is True
    assert served["v1"]["subresources"] == {"status": {}}


def test_gangs_are_scaled_up_atomically(made: Deployed) -> None:
    config: Any = made.one(f"kubernetes:{naming.KUEUE_API}:ProvisioningRequestConfig").inputs
    check: Any = made.one(f"kubernetes:{naming.KUEUE_API}:AdmissionCheck")
    spec = config["spec"]
    assert spec["provisioningClassName"] == "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
    assert spec["managedResources"] == ["nvidia.com/gpu"]
    assert check.inputs["spec"]["controllerName"] == "kueue.x-k8s.io/provisioning-request"
    assert check.inputs["spec"]["parameters"]["name"] == config["metadata"]["name"]
    assert "scale-up-config" in check.depends_on


def test_only_managed_gpu_pools_have_an_admission_check() -> None:
    by_karpenter = dataclasses.replace(pools.ONDEMAND, name="k", nodes=Nodes.KARPENTER)
    assert scale_up.checks_strategy([pools.SPOT, by_karpenter, pools.CPU]) == {
        "admissionChecks": [{"name": "gang-scale-up", "onFlavors": ["spot"]}]
    }
    assert scale_up.checks_strategy([by_karpenter]) == {}


def test_rejected_provisioning_request_is_retried_for_more_than_a_day() -> None:
    retry = scale_up.provisioning_config()["spec"]["retryStrategy"]
    assert retry["backoffLimitCount"] * retry["backoffMaxSeconds"] > 7 * 86_400
