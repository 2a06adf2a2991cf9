"""What an account needs before its first stack, and what its roles may do."""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Iterator
from typing import Any

import pulumi
import pytest

from bootstrap import permissions
from bootstrap.permissions import Home, Target
from infra.cli.render import ROOT
from tests.aws.iam_evaluation import Request, allowed
from tests.aws.moto_cloud import ACCOUNT, REGION, Deployed, deployed_once
from tests.aws.moto_cloud.iam import managed_policy

BUCKET = "tests-trainyard-state"
SETTINGS = {
    "account": ACCOUNT,
    "region": REGION,
    "repository": "tests/training",
    "stateBucket": BUCKET,
    "imageRepository": "trainyard/trainer",
    "opsImageRepository": "trainyard/ops",
    "stacks": [
        {"name": "dev", "cluster": "training-dev", "bucketPrefix": "tests-training-dev"},
        {"name": "prod", "cluster": "training-prod", "bucketPrefix": "tests-training"},
        {
            "name": "eu",
            "cluster": "training-eu",
            "bucketPrefix": "tests-training-eu",
            "region": "eu-central-1",
        },
    ],
    "quotas": {"L-417A185B": 384},
}
HOME = Home(
    account=ACCOUNT,
    region=REGION,
    repository="tests/training",
    bucket=BUCKET,
    key_arn=f"arn:aws:kms:{REGION}:{ACCOUNT}:key/state",
)
DEV = Target(stack="dev", cluster="training-dev", bucket_prefix="tests-training", region=REGION)
HERE = {"aws:RequestedRegion": REGION}


def many(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def may(policies: list[dict[str, Any]], action: str, resource: str, **context: str) -> bool:
    request = Request(action=action, resource=resource, account=ACCOUNT, context=HERE | context)
    return allowed(request, identity=policies, owner=ACCOUNT)


def program(**changes: Any) -> Any:
    def run(_: pulumi.ResourceOptions) -> None:
        settings = json.dumps(SETTINGS | changes)
        pulumi.runtime.set_all_config({"trainyard-bootstrap:settings": settings})
        runpy.run_path(str(ROOT / "bootstrap" / "__main__.py"), run_name="__main__")

    return run


@pytest.fixture(scope="module")
def deployed() -> Iterator[Deployed]:
    yield from deployed_once(program())


def attached(deployed: Deployed, role: str) -> list[dict[str, Any]]:
    """Documents of a role's policies but for AWS's own."""
    iam, found = deployed.cloud.iam, []
    for one in iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"]:
        if ":aws:policy/" not in one["PolicyArn"]:
            version = iam.get_policy_version(PolicyArn=one["PolicyArn"], VersionId="v1")
            found.append(version["PolicyVersion"]["Document"])
    return found


def whole_role(deployed: Deployed, role: str) -> list[dict[str, Any]]:
    """All documents of a role that reads the account."""
    aws = [managed_policy(arn)["Document"] for arn in permissions.READ_POLICIES]
    return attached(deployed, role) + aws


def test_the_state_is_private_versioned_encrypted_by_its_key_and_kept(deployed: Deployed) -> None:
    s3 = deployed.cloud.client("s3")
    assert s3.get_bucket_versioning(Bucket=BUCKET)["Status"] == "Enabled"
    access = s3.get_public_access_block(Bucket=BUCKET)["PublicAccessBlockConfiguration"]
    assert set(access.values()) == {True}
    [rule] = s3.get_bucket_encryption(Bucket=BUCKET)["ServerSideEncryptionConfiguration"]["Rules"]
    default = rule["ApplyServerSideEncryptionByDefault"]
    key = deployed.one("aws:kms/key:Key")
    assert default == {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": key.outputs["arn"]}
    assert deployed.cloud.client("kms").get_key_rotation_status(KeyId=key.id)["KeyRotationEnabled"]
    [old] = s3.get_bucket_lifecycle_configuration(Bucket=BUCKET)["Rules"]
    assert old["NoncurrentVersionExpiration"]["NoncurrentDays"] == 365
    kept = ("s3/bucket:Bucket", "kms/key:Key", "ecr/repository:Repository")
    assert all(one.protect for kind in kept for one in deployed.all(f"aws:{kind}"))


@pytest.mark.parametrize(
    ("role", "subject"),
    [
        ("trainyard-ci-dev-preview", "pull_request"),
        ("trainyard-ci-dev-drift", "ref:refs/heads/main"),
        ("trainyard-ci-dev-deploy", "environment:dev"),
        ("trainyard-ci-prod-deploy", "environment:prod"),
        ("trainyard-ci-all-image", "environment:image"),
    ],
)
def test_each_role_can_be_taken_by_its_workflows_only(
    role: str, subject: str, deployed: Deployed
) -> None:
    iam = deployed.cloud.iam
    [statement] = iam.get_role(RoleName=role)["Role"]["AssumeRolePolicyDocument"]["Statement"]
    [provider] = iam.list_open_id_connect_providers()["OpenIDConnectProviderList"]
    assert statement["Principal"] == {"Federated": provider["Arn"]}
    assert statement["Condition"] == {
        "StringEquals": {
            "token.actions.githubusercontent.com:aud": "sts.amazonaws.com",
            "token.actions.githubusercontent.com:sub": f"repo:tests/training:{subject}",
        }
    }


def test_a_preview_reads_its_own_state_and_nothing_else_s_content(deployed: Deployed) -> None:
    own = whole_role(deployed, "trainyard-ci-dev-preview")

    def reads(action: str, resource: str) -> bool:
        return may(own, action, resource)

    state = f"arn:aws:s3:::{BUCKET}/.pulumi/stacks/trainyard"
    assert reads("s3:GetObject", f"{state}/dev.json") and reads(
        "s3:ListBucket", f"arn:aws:s3:::{BUCKET}"
    )
    key = deployed.one("aws:kms/key:Key").outputs["arn"]
    assert reads("kms:Decrypt", key)
    assert reads("ec2:DescribeSubnets", "*") and reads("eks:DescribeCluster", "*")
    # infra/sites/aws/creator.py
    assert reads("eks:ListClusters", "*")
    # infra/cli/addon_settings.py
    assert reads("eks:DescribeAddonVersions", "*") and reads("eks:DescribeAddonConfiguration", "*")
    assert not reads("s3:GetObject", f"{state}/prod.json")
    assert not reads("s3:GetObject", f"{state}/dev2.json")
    assert not reads("s3:PutObject", f"{state}/dev.json")
    assert not reads("s3:GetObject", "arn:aws:s3:::tests-training-dev-datasets/research/x")
    for action in (
        *("secretsmanager:GetSecretValue", "ssm:GetParameter", "iam:PassRole", "sts:AssumeRole"),
        *("ecr:BatchGetImage", "logs:GetLogEvents", "kms:Encrypt", "ec2:RunInstances"),
    ):
        assert not reads(action, "*"), action


@pytest.mark.parametrize(
    "action",
    [
        *("lambda:GetFunctionConfiguration", "lambda:ListFunctions", "ecs:DescribeTaskDefinition"),
        *("codebuild:BatchGetProjects", "batch:DescribeJobDefinitions", "glue:GetJobs"),
        *("sagemaker:DescribeTrainingJob", "cloudformation:DescribeStacks", "ssm:ListCommands"),
        *("ec2:DescribeInstanceAttribute", "ec2:DescribeLaunchTemplateVersions"),
        "autoscaling:DescribeLaunchConfigurations",
    ],
)
def test_a_preview_reads_no_environment_variables_or_user_data(
    action: str, deployed: Deployed
) -> None:
    aws = [managed_policy(arn)["Document"] for arn in permissions.READ_POLICIES]
    assert may(aws, action, "*"), "AWS's own policies do not allow it any more"
    assert not may(whole_role(deployed, "trainyard-ci-dev-preview"), action, "*")


def test_pulumi_s_paths_of_a_deployment_are_its_own_stack_s() -> None:
    policies = [permissions.state_writer(HOME, "dev")]

    def may_do(action: str, key: str) -> bool:
        return may(policies, action, f"arn:aws:s3:::{BUCKET}/.pulumi/{key}")

    own = [
        *("stacks/trainyard/dev.json", "stacks/trainyard/dev.json.bak"),
        "locks/organization/trainyard/dev/8f1c.json",
        "history/trainyard/dev/dev-1790000000.history.json",
        "backups/trainyard/dev/dev.1790000000.json",
    ]
    assert all(may_do(f"s3:{verb}Object", key) for key in own for verb in ("Get", "Put", "Delete"))
    assert not any(may_do("s3:DeleteObjectVersion", key) for key in own)
    assert not any(may_do("s3:GetObject", key.replace("dev", "prod")) for key in own)
    assert may_do("s3:GetObject", "meta.yaml") and not may_do("s3:PutObject", "meta.yaml")


def test_a_deployment_cannot_change_trust_other_roles_or_the_state_s_backups() -> None:
    own = permissions.deployment(HOME, DEV)
    own.append(permissions.state_writer(HOME, "dev"))
    role = f"arn:aws:iam::{ACCOUNT}:role"
    assert may(own, "iam:PutRolePolicy", f"{role}/aws-karpenter-role-0a1b2c3")
    assert may(own, "iam:CreateRole", f"{role}/training-dev-team-research")
    for name in ("trainyard-ci-prod-deploy", "platform-admin", "training-prod-team-research"):
        assert not may(own, "iam:PutRolePolicy", f"{role}/{name}")
        assert not may(own, "iam:UpdateAssumeRolePolicy", f"{role}/{name}")
    assert not may(own, "iam:DeleteOpenIDConnectProvider", HOME.provider_arn)
    assert not may(own, "iam:CreateUser", f"arn:aws:iam::{ACCOUNT}:user/x")
    assert not may(own, "s3:PutBucketVersioning", HOME.bucket_arn)
    assert not may(
        own, "s3:DeleteObjectVersion", f"{HOME.bucket_arn}/.pulumi/stacks/trainyard/dev.json"
    )
    assert not may(
        own, "eks:DeleteCluster", f"arn:aws:eks:{REGION}:{ACCOUNT}:cluster/training-prod"
    )
    assert not may(own, "s3:DeleteBucket", "arn:aws:s3:::somebody-s")
    passing = {"iam:PassedToService": "lambda.amazonaws.com"}
    assert not may(own, "iam:PassRole", f"{role}/aws-karpenter-role-0a1b2c3", **passing)


def test_a_deployment_uses_the_state_s_key_and_changes_neither_it_nor_its_alias(
    deployed: Deployed,
) -> None:
    own = attached(deployed, "trainyard-ci-dev-deploy")
    base = f"arn:aws:kms:{REGION}:{ACCOUNT}"
    state = deployed.one("aws:kms/key:Key").outputs["arn"]
    alias = f"{base}:{deployed.one('aws:kms/alias:Alias').inputs['name']}"
    # Of an alias, KMS asks for the right to both.
    for action in ("kms:CreateAlias", "kms:DeleteAlias", "kms:UpdateAlias"):
        assert not may(own, action, alias) and not may(own, action, state), action
    for action in (
        *("kms:CreateGrant", "kms:DisableKey", "kms:DisableKeyRotation", "kms:PutKeyPolicy"),
        "kms:ScheduleKeyDeletion",
    ):
        assert not may(own, action, state), action
    assert all(may(own, f"kms:{use}", state) for use in ("Encrypt", "Decrypt", "GenerateDataKey"))
    for action in ("kms:CreateGrant", "kms:PutKeyPolicy", "kms:ScheduleKeyDeletion"):
        assert may(own, action, f"{base}:key/data"), action
    assert may(own, "kms:UpdateAlias", f"{base}:alias/training-dev")


def test_a_deployment_links_file_systems_to_buckets() -> None:
    """FSx creates a service-linked role per file system, with the caller's rights."""
    own, service = permissions.deployment(HOME, DEV), "s3.data-source.lustre.fsx.amazonaws.com"
    role = f"arn:aws:iam::{ACCOUNT}:role/aws-service-role/{service}/AWSServiceRoleForFSxS3Access_fs"
    assert may(own, "iam:CreateServiceLinkedRole", role, **{"iam:AWSServiceName": service})
    assert may(own, "iam:AttachRolePolicy", role) and may(own, "iam:PutRolePolicy", role)


def test_a_deployment_tags_the_groups_of_its_own_cluster_only() -> None:
    own = permissions.deployment(HOME, DEV)
    groups = f"arn:aws:autoscaling:{REGION}:{ACCOUNT}:autoScalingGroup:8f1c:autoScalingGroupName"

    def tags(group: str, cluster: str) -> bool:
        owned = {f"aws:ResourceTag/k8s.io/cluster-autoscaler/{cluster}": "owned"}
        return all(
            may(own, f"autoscaling:{action}", f"{groups}/{group}", **owned)
            for action in ("CreateOrUpdateTags", "DeleteTags")
        )

    assert tags("eks-spot-8ac1", "training-dev")
    assert not tags("eks-spot-8ac1", "training-prod")
    assert not tags("web", "training-dev")


@pytest.mark.parametrize(
    ("stack", "region", "other"),
    [("dev", REGION, "eu-central-1"), ("eu", "eu-central-1", REGION)],
)
def test_a_deployment_is_bound_to_its_stack_s_region(
    stack: str, region: str, other: str, deployed: Deployed
) -> None:
    own = attached(deployed, f"trainyard-ci-{stack}-deploy")

    def may_in(place: str, action: str, resource: str = "*") -> bool:
        return may(own, action, resource, **{"aws:RequestedRegion": place})

    for action in ("ec2:CreateVpc", "fsx:CreateFileSystem", "kms:CreateKey", "logs:CreateLogGroup"):
        assert may_in(region, action) and not may_in(other, action), action
    for place in (region, other):
        cluster = f"arn:aws:eks:{place}:{ACCOUNT}:cluster/training-{stack}"
        assert may_in(place, "eks:CreateCluster", cluster) is (place == region)
    # The state stays in the account's region.
    key = deployed.one("aws:kms/key:Key").outputs["arn"]
    assert f":{REGION}:" in key and may_in(REGION, "kms:Decrypt", key)
    state = f"arn:aws:s3:::{BUCKET}/.pulumi/stacks/trainyard/{stack}.json"
    assert may_in(REGION, "s3:PutObject", state)


def test_every_document_is_within_iam_s_limit_of_a_managed_policy() -> None:
    long = Target(stack="s" * 40, cluster="c" * 60, bucket_prefix="b" * 40, region="ap-northeast-1")
    for document in [
        *permissions.deployment(HOME, long),
        permissions.state_writer(HOME, long.stack),
        permissions.state_reader(HOME, long.stack),
        permissions.descriptions(long),
        permissions.preview_limits(),
    ]:
        assert len(re.sub(r"\s", "", json.dumps(document))) <= 6144


def test_images_are_pushed_to_two_repositories_with_tags_that_never_move(
    deployed: Deployed,
) -> None:
    all_found = deployed.cloud.client("ecr").describe_repositories()["repositories"]
    assert {one["repositoryName"] for one in all_found} == {"trainyard/trainer", "trainyard/ops"}
    own = attached(deployed, "trainyard-ci-all-image")
    for found in all_found:
        assert found["imageTagMutability"] == "IMMUTABLE"
        assert found["imageScanningConfiguration"] == {"scanOnPush": True}
        assert may(own, "ecr:PutImage", found["repositoryArn"])
        assert not may(own, "ecr:PutImage", found["repositoryArn"] + "-other")
        assert not may(own, "ecr:DeleteRepository", found["repositoryArn"])
