"""Resources of `eks.Cluster` 4.4, with the official component's names.

Pure: inputs of the component in, resources to register out. Values from other resources are unknown in a
preview. Parts of the component that this project does not use are rejected, not silently omitted.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from sandbox.aws_preview import security_groups
from sandbox.aws_preview.child import PlannedResource, Tree, after_cluster, tags
from sandbox.aws_preview.errors import NotSupportedError, remedy
from sandbox.aws_preview.properties import UNKNOWN, Unknown, reveal
from sandbox.toolchain.tools import AWS_PLUGIN_VERSION, EKS_PLUGIN_VERSION

TYPE: Final = "eks:index:Cluster"
_SERVICE_ROLE: Final = "eks:index:ServiceRole"
_NOT_SIMULATED: Final = ("autoMode", "fargate", "storageClasses", "creationRoleProvider")
_NODE_POLICIES: Final = (
    "AmazonEKSWorkerNodePolicy",
    "AmazonEKS_CNI_Policy",
    "AmazonEC2ContainerRegistryReadOnly",
)


def children(name: str, inputs: Mapping[str, Any]) -> list[PlannedResource]:
    """Return every resource of the component, parents and dependencies first.

    Raises:
        NotSupportedError: the inputs request a part that is not simulated.
    """
    _require_known_parts(name, inputs)
    made: list[PlannedResource] = []
    if "serviceRole" not in inputs:
        made += _service_role(
            f"{name}-eksRole", "role", "eks.amazonaws.com", ("AmazonEKSClusterPolicy",)
        )
    own_groups = not inputs.get("skipDefaultSecurityGroups")
    if own_groups and "clusterSecurityGroup" not in inputs:
        made += security_groups.cluster_group(name, inputs)
    made.append(_cluster(name, inputs, own_groups=own_groups))
    made += _addons(name, inputs)
    kubernetes = "pulumi:providers:kubernetes"
    config = {"kubeconfig": UNKNOWN, **_set_inputs(inputs, "enableConfigMapMutable")}
    made.append(after_cluster("kubernetes", kubernetes, f"{name}-eks-k8s", config, "kubernetes"))
    if inputs.get("createInstanceRole"):
        made += _service_role(f"{name}-instanceRole", "nodes", "ec2.amazonaws.com", _NODE_POLICIES)
    made += _access_entries(name, inputs)
    if inputs.get("createOidcProvider"):
        oidc = {"clientIdLists": ["sts.amazonaws.com"], "url": UNKNOWN, "thumbprintLists": UNKNOWN}
        token = "aws:iam/openIdConnectProvider:OpenIdConnectProvider"
        made.append(after_cluster("oidc", token, f"{name}-oidcProvider", oidc))
    if own_groups:
        made += security_groups.node_group(name, inputs)
    return made


def outputs(inputs: Mapping[str, Any], urns: Mapping[str, str]) -> Tree:
    """Return the component's outputs: resource references, or empty strings for missing parts."""
    cluster = _reference(urns["cluster"])
    return {
        "eksCluster": cluster,
        "core": {
            "cluster": cluster,
            "endpoint": UNKNOWN,
            "kubeconfig": UNKNOWN,
            "provider": _reference(urns["kubernetes"]),
            "vpcId": inputs.get("vpcId", UNKNOWN),
            "subnetIds": inputs.get("subnetIds", UNKNOWN),
            "instanceRoles": [],
        },
        "kubeconfig": UNKNOWN,
        "kubeconfigJson": UNKNOWN,
        "clusterSecurityGroupId": UNKNOWN,
        "nodeSecurityGroupId": UNKNOWN,
        "oidcProviderUrl": UNKNOWN,
        "oidcIssuer": UNKNOWN,
        "oidcProviderArn": UNKNOWN if "oidc" in urns else "",
        "clusterIngressRuleId": UNKNOWN if "eksClusterIngressRule" in urns else "",
        "instanceRoles": [_reference(urns["nodes-role"])] if "nodes-role" in urns else [],
        "defaultNodeGroupAsgName": "",
        "fargateProfileId": "",
        "fargateProfileStatus": "",
        "autoModeNodeRoleName": "",
        **{
            output: _reference(urns[key])
            for output, key in (
                ("clusterSecurityGroup", "group"),
                ("nodeSecurityGroup", "node-group"),
                ("eksClusterIngressRule", "eksClusterIngressRule"),
            )
            if key in urns
        },
    }


def _require_known_parts(name: str, inputs: Mapping[str, Any]) -> None:
    asked = [part for part in _NOT_SIMULATED if inputs.get(part)]
    if not inputs.get("skipDefaultNodeGroup"):
        asked.append("a default node group (skipDefaultNodeGroup is not true)")
    if "vpcId" not in inputs:
        asked.append("the account's default VPC (vpcId is missing)")
    if asked:
        raise NotSupportedError(
            f"the preview stand-in of eks does not know {', '.join(asked)} of {TYPE} {name};"
            f" {remedy('eks', EKS_PLUGIN_VERSION)}"
        )


def _service_role(
    name: str, key: str, service: str, policies: tuple[str, ...]
) -> Iterator[PlannedResource]:
    yield PlannedResource(key=key, type=_SERVICE_ROLE, name=name, inputs={}, package="")
    trust = {
        "Version": "2012-10-17",
        "Statement": [
            {"Action": ["sts:AssumeRole"], "Effect": "Allow", "Principal": {"Service": service}}
        ],
    }
    yield PlannedResource(
        key=f"{key}-role",
        type="aws:iam/role:Role",
        name=f"{name}-role",
        inputs={"assumeRolePolicy": json.dumps(trust)},
        parent=key,
    )
    for policy in policies:
        arn = f"arn:aws:iam::aws:policy/{policy}"
        # The official component names attachments by a digest of the policy's ARN.
        digest = hashlib.sha1(arn.encode(), usedforsecurity=False).hexdigest()[:8]
        yield PlannedResource(
            key=f"{key}-{policy}",
            type="aws:iam/rolePolicyAttachment:RolePolicyAttachment",
            name=f"{name}-{digest}",
            inputs={"policyArn": arn, "role": UNKNOWN},
            parent=key,
            after=(f"{key}-role",),
        )


def _cluster(name: str, inputs: Mapping[str, Any], *, own_groups: bool) -> PlannedResource:
    vpc = _set_inputs(inputs, "endpointPrivateAccess", "endpointPublicAccess", "publicAccessCidrs")
    vpc["subnetIds"] = _subnets(inputs)
    if own_groups:
        vpc["securityGroupIds"] = [UNKNOWN]
    properties = _set_inputs(
        inputs, "name", "version", "enabledClusterLogTypes", "upgradePolicy", "deletionProtection"
    )
    properties |= {
        "roleArn": UNKNOWN,
        "vpcConfig": vpc,
        "bootstrapSelfManagedAddons": inputs.get("bootstrapSelfManagedAddons", True),
        "tags": {"Name": f"{name}-eksCluster", **tags(inputs, "clusterTags")},
    }
    if key := inputs.get("encryptionConfigKeyArn"):
        properties["encryptionConfig"] = {"provider": {"keyArn": key}, "resources": ["secrets"]}
    if mode := inputs.get("authenticationMode"):
        properties["accessConfig"] = {
            "authenticationMode": mode,
            "bootstrapClusterCreatorAdminPermissions": True,
        }
    network = {
        "serviceIpv4Cidr": inputs.get("kubernetesServiceIpAddressRange"),
        "ipFamily": inputs.get("ipFamily"),
    }
    if any(network.values()):
        properties["kubernetesNetworkConfig"] = {"ipFamily": "ipv4"} | {
            field: value for field, value in network.items() if value
        }
    return PlannedResource(
        key="cluster",
        type="aws:eks/cluster:Cluster",
        name=f"{name}-eksCluster",
        inputs=properties,
        after=("role", "role-role", "role-AmazonEKSClusterPolicy", "group"),
    )


def _addons(name: str, inputs: Mapping[str, Any]) -> Iterator[PlannedResource]:
    """Yield the add-ons that the component installs by default."""
    cluster = inputs.get("name", UNKNOWN)
    proxy = reveal(inputs.get("kubeProxyAddonOptions")) or {}
    if proxy.get("enabled", True):
        yield _addon(f"{name}-kube-proxy", "kube-proxy", cluster, proxy)
    dns = reveal(inputs.get("corednsAddonOptions")) or {}
    if dns.get("enabled") or dns.get("configurationValues"):
        yield _addon(f"{name}-coredns", "coredns", cluster, dns)
    if inputs.get("useDefaultVpcCni") is False:
        yield PlannedResource(
            key="cni", type="eks:index:VpcCniAddon", name=f"{name}-vpc-cni", inputs={}, package=""
        )
        options = reveal(inputs.get("vpcCniOptions")) or {}
        version = {"version": options["addonVersion"]} if "addonVersion" in options else {}
        yield _addon(f"{name}-vpc-cni", "vpc-cni", cluster, version, parent="cni")


def _addon(
    name: str, addon: str, cluster: Any, options: Mapping[str, Any], parent: str = ""
) -> PlannedResource:
    values = options.get("configurationValues")
    properties = {
        "clusterName": cluster,
        "addonName": addon,
        "addonVersion": options.get("version", UNKNOWN),
        "preserve": True,
        "resolveConflictsOnCreate": options.get("resolveConflictsOnCreate", "OVERWRITE"),
        "resolveConflictsOnUpdate": options.get("resolveConflictsOnUpdate", "OVERWRITE"),
    }
    if values is not None:
        known = not isinstance(values, Unknown)
        properties["configurationValues"] = json.dumps(values) if known else UNKNOWN
    return PlannedResource(
        key=f"addon-{addon}",
        type="aws:eks/addon:Addon",
        name=name,
        inputs=properties,
        parent=parent,
        after=("cluster",),
    )


def _access_entries(name: str, inputs: Mapping[str, Any]) -> Iterator[PlannedResource]:
    cluster = inputs.get("name", UNKNOWN)
    for key, entry in (reveal(inputs.get("accessEntries")) or {}).items():
        fields = {"userName": entry["username"]} if "username" in entry else {}
        fields |= _set_inputs(entry, "principalArn", "kubernetesGroups", "type", "tags")
        yield after_cluster(
            f"entry-{key}",
            "aws:eks/accessEntry:AccessEntry",
            f"{name}-{key}",
            {"clusterName": cluster, **fields},
        )
        for policy, association in (entry.get("accessPolicies") or {}).items():
            yield PlannedResource(
                key=f"entry-{key}-{policy}",
                type="aws:eks/accessPolicyAssociation:AccessPolicyAssociation",
                name=f"{name}-{key}-{policy}",
                inputs={
                    "clusterName": cluster,
                    "principalArn": entry.get("principalArn"),
                    **_set_inputs(association, "policyArn", "accessScope"),
                },
                parent=f"entry-{key}",
                after=("cluster", f"entry-{key}"),
            )


def _subnets(inputs: Mapping[str, Any]) -> Any:
    if "subnetIds" in inputs:
        return inputs["subnetIds"]
    parts = [reveal(inputs.get(key, [])) for key in ("publicSubnetIds", "privateSubnetIds")]
    if any(isinstance(part, Unknown) for part in parts):
        return UNKNOWN
    return [subnet for part in parts for subnet in part]


def _set_inputs(inputs: Mapping[str, Any], *names: str) -> Tree:
    return {name: inputs[name] for name in names if inputs.get(name) is not None}


def _reference(urn: str) -> Tree:
    """Return a resource reference of the protocol; its id is unknown in a preview."""
    package = urn.split("::")[2].rpartition("$")[2].split(":")[0]
    return {
        "4dabf18193072939515e22adb298388d": "5cf8f73096256a8f31e491e813e4eb8e",
        "urn": urn,
        "id": "",
        "packageVersion": AWS_PLUGIN_VERSION if package == "aws" else "",
    }
