"""The rules about nodes' metadata and about state that is protected."""

from __future__ import annotations

from typing import Any

import pytest

from policies.rules.cluster import INSTANCE_METADATA
from policies.rules.model import UNKNOWN, Resource
from policies.rules.storage import PROTECTED_STATE
from tests.policy.policy_examples import paths, violations
from tests.unit.snapshots import Text

NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
NODE_CLASS = "kubernetes:karpenter.k8s.aws/v1:EC2NodeClass"
BUCKET = "aws:s3/bucket:Bucket"


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
