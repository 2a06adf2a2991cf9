"""File systems that FSx would refuse, each in an account of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pulumi
import pytest
from botocore.exceptions import ClientError

from tests.aws.moto_cloud import Cloud, Deployed
from tests.aws.storage_site import encrypted_bucket, key_policy, lustre, site

Build = Callable[[Callable[[pulumi.ResourceOptions], Any]], Deployed]


def test_bucket_with_a_key_that_fsx_may_not_use_is_rejected(build: Build, cloud: Cloud) -> None:
    found = site(cloud)
    key = cloud.client("kms").create_key(Policy=key_policy("acme-checkpoints"))
    encrypted_bucket("acme-closed", key["KeyMetadata"]["Arn"], cloud)
    with pytest.raises(PermissionError, match="which encrypts acme-closed"):
        build(lambda opts: lustre("closed", found, opts, datasets="acme-closed"))


def test_unknown_bucket_is_rejected(build: Build, cloud: Cloud) -> None:
    found = site(cloud)
    with pytest.raises(ClientError, match="NoSuchBucket"):
        build(lambda opts: lustre("nowhere", found, opts, datasets="acme-nowhere"))
