"""The AWS half runs in an account of moto's own, new for each test."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

# Before moto is imported: none of the stock images is used, and they cost a second.
os.environ.setdefault("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")

import pulumi
import pytest
from moto import mock_aws
from moto_cloud import Cloud, Deployed, deploy

Program = Callable[[pulumi.ResourceOptions], Any]


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    """An empty account, but for what AWS puts into each."""
    with mock_aws():
        yield Cloud()


@pytest.fixture
def build(cloud: Cloud) -> Callable[[Program], Deployed]:
    """Runs `program(opts)` to its end and returns what it created; raises its first error.

    `opts` carry an explicit AWS and Kubernetes provider; what the program returns is resolved.
    """
    return lambda program: deploy(program, cloud)
