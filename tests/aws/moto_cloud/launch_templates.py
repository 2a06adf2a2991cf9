"""Launch templates; everything that one refers to must exist."""

from __future__ import annotations

from typing import Any

from tests.aws.moto_cloud.cloud import Cloud, name_of, specification
from tests.aws.moto_cloud.ec2 import arn, pascal
from tests.aws.moto_cloud.registry import Inputs, Outputs, creates

_OF_THE_RESOURCE = {"name", "namePrefix", "description", "tags", "tagsAll", "updateDefaultVersion"}
"""Inputs that are not part of the template's data."""


@creates("aws:ec2/launchTemplate:LaunchTemplate")
def launch_template(inputs: Inputs, cloud: Cloud) -> tuple[str, Outputs]:
    name = name_of(inputs)
    _check(inputs, cloud)
    made = cloud.ec2.create_launch_template(
        LaunchTemplateName=name,
        LaunchTemplateData=_data(inputs),
        TagSpecifications=specification("launch-template", inputs),
    )["LaunchTemplate"]
    id_ = made["LaunchTemplateId"]
    return id_, {
        "arn": arn("launch-template", id_),
        "name": name,
        "latestVersion": 1,
        "defaultVersion": 1,
    }


def _check(inputs: Inputs, cloud: Cloud) -> None:
    interfaces = inputs.get("networkInterfaces", [])
    if interfaces and "vpcSecurityGroupIds" in inputs:
        raise ValueError("security groups belong to the network interfaces where there are any")
    cloud.security_groups(inputs.get("vpcSecurityGroupIds", []))
    for interface in interfaces:
        cloud.security_groups(interface.get("securityGroups", []))
    for mapping in inputs.get("blockDeviceMappings", []):
        if key := mapping.get("ebs", {}).get("kmsKeyId"):
            cloud.key(key)
    if group := inputs.get("placement", {}).get("groupName"):
        # Moto has no placement groups: those that the program made are all there are.
        made = inputs["__monitor"].created.values()
        groups = [one for one in made if one.type == "aws:ec2/placementGroup:PlacementGroup"]
        if group not in {one.inputs.get("name", one.name) for one in groups}:
            raise LookupError(f"placement group {group} does not exist")


def _data(inputs: Inputs) -> dict[str, Any]:
    data = {
        key: value
        for key, value in inputs.items()
        if key not in _OF_THE_RESOURCE and not key.startswith("__")
    }
    if "vpcSecurityGroupIds" in data:
        data["securityGroupIds"] = data.pop("vpcSecurityGroupIds")
    if "networkInterfaces" in data:
        data["networkInterfaces"] = [_interface(one) for one in data["networkInterfaces"]]
    data["blockDeviceMappings"] = [
        mapping | {"ebs": {key: _boolean(value) for key, value in mapping.get("ebs", {}).items()}}
        for mapping in data.get("blockDeviceMappings", [])
    ]
    data["tagSpecifications"] = [
        {
            "resourceType": one["resourceType"],
            "tags": [{"key": k, "value": v} for k, v in sorted(one["tags"].items())],
        }
        for one in data.get("tagSpecifications", [])
    ]
    converted: dict[str, Any] = pascal({key: _boolean(value) for key, value in data.items()})
    return converted


def _interface(interface: dict[str, Any]) -> dict[str, Any]:
    renamed = dict(interface)
    if "securityGroups" in renamed:
        renamed["groups"] = renamed.pop("securityGroups")
    return {key: _boolean(value) for key, value in renamed.items()}


def _boolean(value: Any) -> Any:
    """The provider takes some booleans of EC2 as text."""
    return {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value
