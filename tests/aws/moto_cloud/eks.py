"""EKS: pulumi_eks' remote cluster component, and node groups."""

from __future__ import annotations

import json
from typing import Any

from moto.eks.models import eks_backends
from pulumi.runtime.mocks import MockMonitor

from tests.aws.moto_cloud import iam
from tests.aws.moto_cloud.cloud import ACCOUNT, REGION, Cloud, name_of, specification, tag_map
from tests.aws.moto_cloud.registry import Inputs, Outputs, creates


@creates("eks:index:Cluster")
def remote_cluster(inputs: Inputs, cloud: Cloud) -> tuple[str, Outputs]:
    """What the component's own provider creates: service role, cluster, security group.

    Only what this project asks of it: a cluster whose nodes and add-ons are made elsewhere.
    """
    if inputs.get("createOidcProvider") or not inputs.get("skipDefaultNodeGroup"):
        raise NotImplementedError("the tests' cloud makes neither OIDC provider nor default nodes")
    if "roleMappings" in inputs or "userMappings" in inputs:
        raise NotImplementedError("the tests' cloud has no aws-auth")
    name = name_of(inputs)
    role = _service_role(inputs, cloud)
    subnets = cloud.subnets(inputs.get("subnetIds") or inputs["privateSubnetIds"])
    _check_subnets(subnets, inputs.get("vpcId"))
    group = cloud.ec2.create_security_group(
        GroupName=f"eks-cluster-sg-{name}",
        Description="EKS created security group applied to ENI",
        VpcId=subnets[0]["VpcId"],
        TagSpecifications=specification("security-group", inputs),
    )["GroupId"]
    made = cloud.client("eks").create_cluster(**_request(name, role, subnets, inputs, cloud))
    backend = eks_backends[ACCOUNT][REGION].clusters[name]
    backend.resources_vpc_config["clusterSecurityGroupId"] = group
    return name, _component_outputs(inputs, made["cluster"], group)


def _service_role(inputs: Inputs, cloud: Cloud) -> str:
    if "serviceRole" in inputs:
        arn: str = inputs["serviceRole"]["arn"]
        cloud.role(arn, trusting="eks.amazonaws.com")
        return arn
    trust = {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Action": ["sts:AssumeRole", "sts:TagSession"],
                "Principal": {"Service": "eks.amazonaws.com"},
            }
        ],
    }
    made = cloud.iam.create_role(
        RoleName=f"{inputs['__name']}-eksRole-role", AssumeRolePolicyDocument=json.dumps(trust)
    )["Role"]
    iam.attach(made["RoleName"], "arn:aws:iam::aws:policy/AmazonEKSClusterPolicy", cloud)
    return str(made["Arn"])


def _check_subnets(subnets: list[dict[str, Any]], vpc: str | None) -> None:
    if vpcs := {one["VpcId"] for one in subnets} - {vpc}:
        raise ValueError(f"subnets of {sorted(vpcs)} in a cluster of {vpc}")
    if len({one["AvailabilityZone"] for one in subnets}) < 2:
        raise ValueError("EKS wants subnets in two zones at least")


def _request(
    name: str, role: str, subnets: list[dict[str, Any]], inputs: Inputs, cloud: Cloud
) -> dict[str, Any]:
    public = inputs.get("endpointPublicAccess", True)
    access: dict[str, Any] = {
        "subnetIds": [one["SubnetId"] for one in subnets],
        "endpointPublicAccess": public,
        "endpointPrivateAccess": inputs.get("endpointPrivateAccess", False),
    }
    if public:
        access["publicAccessCidrs"] = inputs.get("publicAccessCidrs", ["0.0.0.0/0"])
    types = inputs.get("enabledClusterLogTypes", [])
    request: dict[str, Any] = {
        "name": name,
        "version": inputs["version"],
        "roleArn": role,
        "resourcesVpcConfig": access,
        "logging": {"clusterLogging": [{"types": types, "enabled": True}]},
        "tags": tag_map(inputs) | inputs.get("clusterTags", {}),
    }
    if "kubernetesServiceIpAddressRange" in inputs:
        service = inputs["kubernetesServiceIpAddressRange"]
        request["kubernetesNetworkConfig"] = {"serviceIpv4Cidr": service}
    if "encryptionConfigKeyArn" in inputs:
        cloud.key(inputs["encryptionConfigKeyArn"])
        provider = {"keyArn": inputs["encryptionConfigKeyArn"]}
        request["encryptionConfig"] = [{"resources": ["secrets"], "provider": provider}]
    return request


def _component_outputs(inputs: Inputs, cluster: dict[str, Any], group: str) -> Outputs:
    state = {
        "name": cluster["name"],
        "arn": cluster["arn"],
        "createdAt": str(cluster["createdAt"]),
        "endpoint": cluster["endpoint"],
        "version": cluster["version"],
        "certificateAuthority": {"data": cluster["certificateAuthority"]["data"]},
        "vpcConfig": {
            "clusterSecurityGroupId": group,
            "subnetIds": cluster["resourcesVpcConfig"]["subnetIds"],
            "vpcId": inputs.get("vpcId", ""),
        },
    }
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "kubernetes", "cluster": {"server": cluster["endpoint"]}}],
    }
    return {
        "eksCluster": _reference(inputs, "aws:eks/cluster:Cluster", cluster["name"], state),
        "clusterSecurityGroupId": group,
        "nodeSecurityGroupId": group,
        "kubeconfig": kubeconfig,
        "kubeconfigJson": json.dumps(kubeconfig),
        "oidcIssuer": "",
        "oidcProviderArn": "",
    }


def _reference(inputs: Inputs, type_: str, id_: str, state: dict[str, Any]) -> dict[str, Any]:
    """A reference to a child of the remote component, with its state where Pulumi looks it up."""
    monitor: MockMonitor = inputs["__monitor"]
    urn = monitor.make_urn("", type_, f"{inputs['__name']}-eksCluster")
    monitor.resources[urn] = MockMonitor.ResourceRegistration(urn, id_, state)
    return {
        "4dabf18193072939515e22adb298388d": "5cf8f73096256a8f31e491e813e4eb8e",
        "urn": urn,
        "id": id_,
    }


@creates("aws:eks/nodeGroup:NodeGroup")
def node_group(inputs: Inputs, cloud: Cloud) -> tuple[str, Outputs]:
    cluster = cloud.cluster(inputs["clusterName"])
    cloud.role(inputs["nodeRoleArn"], trusting="ec2.amazonaws.com")
    subnets = cloud.subnets(inputs["subnetIds"])
    own = cloud.subnets(cluster["resourcesVpcConfig"]["subnetIds"])
    _check_subnets_of_nodes(subnets, own[0]["VpcId"])
    name = inputs.get("nodeGroupName", inputs["__name"])
    made = cloud.client("eks").create_nodegroup(
        clusterName=inputs["clusterName"],
        nodegroupName=name,
        nodeRole=inputs["nodeRoleArn"],
        subnets=inputs["subnetIds"],
        tags=tag_map(inputs),
        **_node_group_request(inputs, cloud),
    )["nodegroup"]
    return f"{inputs['clusterName']}:{name}", {
        "arn": made["nodegroupArn"],
        "nodeGroupName": name,
        "status": made["status"],
        "resources": [{"autoscalingGroups": made["resources"]["autoScalingGroups"]}],
    }


def _check_subnets_of_nodes(subnets: list[dict[str, Any]], vpc: str) -> None:
    if strangers := [one["SubnetId"] for one in subnets if one["VpcId"] != vpc]:
        raise ValueError(f"subnets {strangers} are not in the cluster's VPC {vpc}")


_SAME = ("amiType", "capacityType", "instanceTypes", "labels", "version", "releaseVersion")
_EFFECTS = ("NO_SCHEDULE", "NO_EXECUTE", "PREFER_NO_SCHEDULE")


def _node_group_request(inputs: Inputs, cloud: Cloud) -> dict[str, Any]:
    request: dict[str, Any] = {key: inputs[key] for key in _SAME if key in inputs}
    scaling = inputs["scalingConfig"]
    if not scaling["minSize"] <= scaling["desiredSize"] <= scaling["maxSize"]:
        raise ValueError(f"node group sizes are out of order: {scaling}")
    request["scalingConfig"] = scaling
    if taints := inputs.get("taints"):
        if wrong := [one["effect"] for one in taints if one["effect"] not in _EFFECTS]:
            raise ValueError(f"taint effects {wrong} are none of {_EFFECTS}")
        request["taints"] = taints
    if template := inputs.get("launchTemplate"):
        key = "id" if "id" in template else "name"
        ask = {"id": "LaunchTemplateIds", "name": "LaunchTemplateNames"}[key]
        cloud.ec2.describe_launch_templates(**{ask: [template[key]]})
        request["launchTemplate"] = {key: template[key], "version": str(template["version"])}
    if update := inputs.get("updateConfig"):
        request["updateConfig"] = update
    if repair := inputs.get("nodeRepairConfig"):
        request["nodeRepairConfig"] = repair
    return request
