"""The rule that what costs money is tagged, where default tags do not reach, too."""

from __future__ import annotations

import json
from typing import Any

import pytest

from policies.rules.model import UNKNOWN, Resource
from policies.rules.names import PLATFORM_TAGS
from policies.rules.tags import AWS_TAGS
from tests.policy.policy_examples import paths, violations
from tests.unit.snapshots import Text

TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
TAGS = dict.fromkeys(PLATFORM_TAGS, "x")
NO_CLUSTER = {key: "x" for key in PLATFORM_TAGS if key != "trainyard.dev/cluster"}


def template(instance: Any, volume: Any) -> Resource:
    tags = [
        {"resourceType": "instance", "tags": instance},
        {"resourceType": "volume", "tags": volume},
    ]
    return Resource(type=TEMPLATE, props={"tagSpecifications": tags})


def bare_template() -> Resource:
    return Resource(type=TEMPLATE, props={"tags": TAGS})


def node_class(tags: Any) -> Resource:
    return Resource(
        type="kubernetes:karpenter.k8s.aws/v1:EC2NodeClass", props={"spec": {"tags": tags}}
    )


def group(propagated: bool) -> Resource:
    tags = [{"key": key, "value": "x", "propagateAtLaunch": propagated} for key in PLATFORM_TAGS]
    return Resource(type="aws:autoscaling/group:Group", props={"tags": tags})


def provider(tags: Any, accounts: Any) -> Resource:
    return Resource(
        type="pulumi:providers:aws",
        props={"defaultTags": tags, "allowedAccountIds": accounts, "region": "us-east-1"},
    )


def file_system(tags: Any) -> Resource:
    return Resource(type="aws:fsx/lustreFileSystem:LustreFileSystem", props={"tags": tags})


@pytest.mark.parametrize(
    "resource",
    [
        template(TAGS, TAGS | {"more": "y"}),
        template(UNKNOWN, TAGS),
        Resource(type=TEMPLATE, props={"tagSpecifications": UNKNOWN}),
        Resource(type=TEMPLATE, props={"tagSpecifications": [UNKNOWN]}),
        node_class(TAGS),
        node_class(UNKNOWN),
        group(propagated=True),
        provider(json.dumps({"tags": TAGS}), '["111122223333"]'),
        provider({"tags": TAGS}, ["111122223333"]),
        provider(UNKNOWN, UNKNOWN),
        file_system({"trainyard.dev/team": "research"}),
        Resource(type="aws:s3/bucket:Bucket", props={}),
    ],
)
def test_resources_with_tags_or_default_tags_pass(resource: Resource) -> None:
    assert violations(AWS_TAGS, resource) == []


@pytest.mark.parametrize(
    ("resource", "where"),
    [
        (template(NO_CLUSTER, TAGS), ["tagSpecifications[instance].tags"]),
        (template(TAGS, None), ["tagSpecifications[volume].tags"]),
        (bare_template(), ["tagSpecifications[instance].tags", "tagSpecifications[volume].tags"]),
        (node_class(NO_CLUSTER), ["spec.tags"]),
        (node_class(None), ["spec.tags"]),
        (group(propagated=False), ["tags"]),
        (provider(json.dumps({"tags": NO_CLUSTER}), ["1"]), ["defaultTags.tags"]),
        (provider(None, ["1"]), ["defaultTags.tags"]),
        (provider("{", ["1"]), ["defaultTags.tags"]),
        (provider({"tags": TAGS}, "[]"), ["allowedAccountIds"]),
        (provider({"tags": TAGS}, None), ["allowedAccountIds"]),
        (file_system({"Name": "x"}), ["tags"]),
    ],
)
def test_a_missing_tag_or_account_is_rejected(resource: Resource, where: list[str]) -> None:
    assert paths(violations(AWS_TAGS, resource)) == where


def test_the_message_names_the_missing_tags(text: Text) -> None:
    (found,) = violations(AWS_TAGS, node_class(NO_CLUSTER))
    text(str(found))


def test_the_tags_are_the_configured_ones() -> None:
    owned = node_class({"owner": "me"})
    assert violations(AWS_TAGS, owned, tags=["owner"]) == []
    assert len(violations(AWS_TAGS, node_class(TAGS), tags=["owner"])) == 1
    assert violations(AWS_TAGS, file_system(None), teamTag="") == []
