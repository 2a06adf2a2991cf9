"""File systems that FSx would refuse, each in an account of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pulumi
import pytest
from botocore.exceptions import ClientError

from infra.sites.aws.lustre import LustreStorage
from infra.sites.aws.outputs import BucketRecord
from tests.aws.moto_cloud import Cloud, Deployed
from tests.aws.storage_site import encrypted_bucket, key_policy, lustre_arguments, site

Build = Callable[[Callable[[pulumi.ResourceOptions], Any]], Deployed]


def test_bucket_with_a_key_that_fsx_may_not_use_is_rejected(build: Build, cloud: Cloud) -> None:
    found = site(cloud)
    key = cloud.client("kms").create_key(Policy=key_policy("acme-checkpoints"))
    encrypted_bucket("acme-closed", key["KeyMetadata"]["Arn"], cloud)
    closed = BucketRecord(name="acme-closed", arn="arn:aws:s3:::acme-closed")
    args = replace(lustre_arguments(found), datasets=closed)
    with pytest.raises(PermissionError, match="which encrypts acme-closed"):
        build(lambda opts: LustreStorage("closed", args, opts))


def test_unknown_bucket_is_rejected(build: Build, cloud: Cloud) -> None:
    nowhere = BucketRecord(name="acme-nowhere", arn="arn:aws:s3:::acme-nowhere")
    args = replace(lustre_arguments(site(cloud)), datasets=nowhere)
    with pytest.raises(ClientError, match="NoSuchBucket"):
        build(lambda opts: LustreStorage("nowhere", args, opts))
