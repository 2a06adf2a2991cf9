"""Roles and policies; every document is parsed and checked."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from moto.iam.aws_managed_policies import aws_managed_policies_data
from moto.iam.models import AWSManagedPolicy, iam_backends

from tests.aws.moto_cloud.cloud import ACCOUNT, REGION, Cloud, document, listed, name_of, tags_of
from tests.aws.moto_cloud.registry import Inputs, Outputs, creates

_AWS_OWN = "arn:aws:iam::aws:policy/"


@cache
def managed_policy(name: str) -> dict[str, Any]:
    """A policy of AWS's own, such as AmazonEKSClusterPolicy, with or without its path.

    Moto can load all 1,582 of them, but that takes more than a second for each test.
    """
    short = name.rpartition("/")[2]
    at = aws_managed_policies_data.find(f'\n "{short}":')
    if at < 0:
        raise LookupError(f"AWS has no managed policy {name}")
    start = aws_managed_policies_data.index("{", at)
    found: dict[str, Any] = json.JSONDecoder().raw_decode(aws_managed_policies_data, start)[0]
    return found


def attach(role: str, policy: str, cloud: Cloud) -> None:
    """Attaches a policy by its ARN; one of AWS's own is known to moto from then on."""
    if policy.startswith(_AWS_OWN):
        backend = iam_backends[ACCOUNT]["aws"]
        name = policy.rpartition("/")[2]
        own = AWSManagedPolicy.from_data(name, ACCOUNT, REGION, managed_policy(name))
        if own.arn != policy:
            raise LookupError(f"AWS has no managed policy {policy}; it has {own.arn}")
        backend.managed_policies.setdefault(policy, own)
    cloud.iam.attach_role_policy(RoleName=role, PolicyArn=policy)


@creates("aws:iam/role:Role")
def role(inputs: Inputs, cloud: Cloud) -> tuple[str, Outputs]:
    trust = document(_text(inputs["assumeRolePolicy"]))
    for statement in listed(trust["Statement"]):
        if "Principal" not in statement:
            raise ValueError(f"a trust policy's statement needs a principal: {statement}")
    name = name_of(inputs)
    made = cloud.iam.create_role(
        RoleName=name,
        Path=inputs.get("path", "/"),
        AssumeRolePolicyDocument=json.dumps(trust),
        MaxSessionDuration=inputs.get("maxSessionDuration", 3600),
        Tags=tags_of(inputs),
    )["Role"]
    return name, {"arn": made["Arn"], "name": name, "uniqueId": made["RoleId"]}


@creates("aws:iam/openIdConnectProvider:OpenIdConnectProvider")
def open_id_connect_provider(inputs: Inputs, cloud: Cloud) -> tuple[str, Outputs]:
    made = cloud.iam.create_open_id_connect_provider(
        Url=inputs["url"], ClientIDList=inputs["clientIdLists"], Tags=tags_of(inputs)
    )
    return made["OpenIDConnectProviderArn"], {"arn": made["OpenIDConnectProviderArn"]}


@creates("aws:iam/policy:Policy")
def policy(inputs: Inputs, cloud: Cloud) -> tuple[str, Outputs]:
    text = _text(inputs["policy"])
    document(text)
    made = cloud.iam.create_policy(
        PolicyName=name_of(inputs),
        Path=inputs.get("path", "/"),
        PolicyDocument=text,
        Tags=tags_of(inputs),
    )["Policy"]
    return made["Arn"], {"arn": made["Arn"], "name": made["PolicyName"]}


@creates("aws:iam/rolePolicy:RolePolicy")
def role_policy(inputs: Inputs, cloud: Cloud) -> tuple[str, Outputs]:
    text = _text(inputs["policy"])
    document(text)
    name = name_of(inputs)
    cloud.iam.put_role_policy(RoleName=inputs["role"], PolicyName=name, PolicyDocument=text)
    return f"{inputs['role']}:{name}", {"name": name}


@creates("aws:iam/rolePolicyAttachment:RolePolicyAttachment")
def role_policy_attachment(inputs: Inputs, cloud: Cloud) -> tuple[str, Outputs]:
    attach(inputs["role"], inputs["policyArn"], cloud)
    return f"{inputs['role']}-{inputs['policyArn']}", {}


@creates("aws:iam/instanceProfile:InstanceProfile")
def instance_profile(inputs: Inputs, cloud: Cloud) -> tuple[str, Outputs]:
    name = name_of(inputs)
    made = cloud.iam.create_instance_profile(InstanceProfileName=name, Tags=tags_of(inputs))
    cloud.iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=inputs["role"])
    return name, {"arn": made["InstanceProfile"]["Arn"], "name": name}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
