"""Resources of `eks.Cluster` 4.4, with the official component's names.

Pure: inputs of the component in, resources to register out. Values from other resources are unknown in a
preview. Only the control plane is known, as `infra/sites/aws/cluster.py` asks for it; inputs that ask for more
are rejected, not silently omitted.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sandbox.aws_preview.lookups import NotSupportedError, remedy
from sandbox.aws_preview.properties import UNKNOWN, reveal
from sandbox.toolchain.tools import AWS_PLUGIN_VERSION, EKS_PLUGIN_VERSION

Tree = dict[str, Any]

TYPE: Final = "eks:index:Cluster"
_COPIED: Final = (
    *("name", "version", "enabledClusterLogTypes", "upgradePolicy", "deletionProtection"),
    "bootstrapSelfManagedAddons",
)
_OF_VPC: Final = ("endpointPrivateAccess", "endpointPublicAccess", "publicAccessCidrs")
_KNOWN: Final = (
    *(*_COPIED, *_OF_VPC, "vpcId", "privateSubnetIds", "encryptionConfigKeyArn"),
    *("authenticationMode", "kubernetesServiceIpAddressRange"),
)
CONTROL_PLANE_ONLY: Final[Mapping[str, Any]] = {
    "createInstanceRole": False,
    "createOidcProvider": False,
    "skipDefaultNodeGroup": True,
    "skipDefaultSecurityGroups": True,
    "useDefaultVpcCni": True,
}
"""What the inputs must say, so that the component makes nothing but the control plane."""
_ADD_ONS: Final = ("corednsAddonOptions", "kubeProxyAddonOptions")
"""Options that must have `enabled: false`."""
_ROLE_POLICY: Final = "arn:aws:iam::aws:policy/AmazonEKSClusterPolicy"


@dataclass(frozen=True, kw_only=True)
class PlannedResource:
    """One resource. `parent` and `after`: keys of other resources; an empty parent is the component."""

    key: str
    type: str
    name: str
    inputs: Tree
    package: str = "aws"
    parent: str = ""
    after: tuple[str, ...] = ()

    @property
    def custom(self) -> bool:
        return not self.type.startswith("eks:")


def children(name: str, inputs: Mapping[str, Any]) -> list[PlannedResource]:
    """Return every resource of the component, parents and dependencies first.

    Raises NotSupportedError: the inputs request a part that is not simulated.
    """
    _require_known_parts(name, inputs)
    config = {"kubeconfig": UNKNOWN}
    return [
        *_service_role(f"{name}-eksRole"),
        _cluster(name, inputs),
        PlannedResource(
            key="kubernetes",
            type="pulumi:providers:kubernetes",
            name=f"{name}-eks-k8s",
            inputs=config,
            package="kubernetes",
            after=("cluster",),
        ),
    ]


def outputs(urns: Mapping[str, str]) -> Tree:
    """Return those of the component's outputs that a program needs for more than their text."""
    cluster = _reference(urns["cluster"])
    return {"eksCluster": cluster, "kubeconfig": UNKNOWN, "kubeconfigJson": UNKNOWN}


def _require_known_parts(name: str, inputs: Mapping[str, Any]) -> None:
    known = (*_KNOWN, *CONTROL_PLANE_ONLY, *_ADD_ONS)
    asked = [key for key in sorted(inputs) if key not in known]
    asked += [
        f"{key} other than {json.dumps(value)}"
        for key, value in CONTROL_PLANE_ONLY.items()
        if reveal(inputs.get(key)) != value
    ]
    asked += [
        f"{key} that are enabled"
        for key in _ADD_ONS
        if (reveal(inputs.get(key)) or {}).get("enabled") is not False
    ]
    if asked:
        raise NotSupportedError(
            f"the preview stand-in of eks does not know {', '.join(asked)} of {TYPE} {name};"
            f" {remedy('eks', EKS_PLUGIN_VERSION)}"
        )


def _service_role(name: str) -> list[PlannedResource]:
    trust = {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Action": ["sts:AssumeRole"],
                "Effect": "Allow",
                "Principal": {"Service": "eks.amazonaws.com"},
            }
        ],
    }
    # The official component names attachments by a digest of the policy's ARN.
    digest = hashlib.sha1(_ROLE_POLICY.encode(), usedforsecurity=False).hexdigest()[:8]
    return [
        PlannedResource(key="role", type="eks:index:ServiceRole", name=name, inputs={}, package=""),
        PlannedResource(
            key="role-role",
            type="aws:iam/role:Role",
            name=f"{name}-role",
            inputs={"assumeRolePolicy": json.dumps(trust)},
            parent="role",
        ),
        PlannedResource(
            key="role-policy",
            type="aws:iam/rolePolicyAttachment:RolePolicyAttachment",
            name=f"{name}-{digest}",
            inputs={"policyArn": _ROLE_POLICY, "role": UNKNOWN},
            parent="role",
            after=("role-role",),
        ),
    ]


def _cluster(name: str, inputs: Mapping[str, Any]) -> PlannedResource:
    properties = _set_inputs(inputs, *_COPIED) | {
        "roleArn": UNKNOWN,
        "vpcConfig": _set_inputs(inputs, *_OF_VPC) | {"subnetIds": inputs["privateSubnetIds"]},
        "tags": {"Name": f"{name}-eksCluster"},
    }
    if key := inputs.get("encryptionConfigKeyArn"):
        properties["encryptionConfig"] = {"provider": {"keyArn": key}, "resources": ["secrets"]}
    if mode := inputs.get("authenticationMode"):
        properties["accessConfig"] = {
            "authenticationMode": mode,
            "bootstrapClusterCreatorAdminPermissions": True,
        }
    if cidr := inputs.get("kubernetesServiceIpAddressRange"):
        properties["kubernetesNetworkConfig"] = {"ipFamily": "ipv4", "serviceIpv4Cidr": cidr}
    return PlannedResource(
        key="cluster",
        type="aws:eks/cluster:Cluster",
        name=f"{name}-eksCluster",
        inputs=properties,
        after=("role", "role-role", "role-policy"),
    )


def _set_inputs(inputs: Mapping[str, Any], *names: str) -> Tree:
    return {name: inputs[name] for name in names if inputs.get(name) is not None}


def _reference(urn: str) -> Tree:
    """Return a resource reference of the protocol; its id is unknown in a preview."""
    return {
        "4dabf18193072939515e22adb298388d": "5cf8f73096256a8f31e491e813e4eb8e",
        "urn": urn,
        "id": "",
        "packageVersion": AWS_PLUGIN_VERSION,
    }
