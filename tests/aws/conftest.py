"""The AWS half runs in an account of moto's own, new for each test.

A module whose tests only look at one deployment shares it, which is many times faster:

    @pytest.fixture(scope="module")
    def network() -> Iterator[Deployed]:
        yield from deployed_once(lambda opts: Network("network", ARGS, opts))

and leaves tests that deploy something else to another module.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

# Before moto is imported: none of the stock images is used, and they cost a second.
os.environ.setdefault("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")

import pulumi
import pytest

from tests.aws.moto_cloud import Cloud, Deployed, account, deploy

Program = Callable[[pulumi.ResourceOptions], Any]


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    """An empty account, but for what AWS puts into each."""
    with account() as found:
        yield found


@pytest.fixture
def build(cloud: Cloud) -> Callable[[Program], Deployed]:
    """Runs `program(opts)` to its end and returns what it created; raises its first error.

    `opts` carry an explicit AWS and Kubernetes provider; what the program returns is resolved.
    """
    return lambda program: deploy(program, cloud)
