"""Options that all tests share."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator

import pytest

from sandbox.ports import RANGE
from tests import committed
from tests.s3.bucket import Bucket, environment, serve

_FULL_COUNT_S = 4 * 3600
"""Time limit of a fault suite with `--full`: hundreds of trials of several seconds."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="fault suites with their full counts")
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite golden and generated files"
    )


def pytest_configure() -> None:
    """Set the environment of each worker.

    It has ports of its own, because a port is chosen seconds before a program listens on it.
    """
    count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    share = len(RANGE) // count
    first = RANGE.start + number * share
    os.environ["TRAINYARD_PORTS"] = f"{first}-{first + share - 1}"
    # The caller's own cluster is neither rendered nor touched.
    os.environ.pop("KUBECONFIG", None)
    # A shell starts background jobs with SIGINT ignored, and commands under test would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip tests that only run with `--full`, before a fixture starts anything."""
    full = config.getoption("--full")
    for item in items:
        if full and "trials" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(_FULL_COUNT_S))
        if item.get_closest_marker("full_only") and not full:
            item.add_marker(pytest.mark.skip(reason="--full"))


@pytest.fixture(scope="session", autouse=True)
def _renderings(tmp_path_factory: pytest.TempPathFactory) -> None:
    own = tmp_path_factory.getbasetemp()
    committed.share((own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "rendered")


@pytest.fixture(scope="session")
def full(request: pytest.FixtureRequest) -> bool:
    """Whether the fault suites run with their full counts."""
    return bool(request.config.getoption("--full"))


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> random.Random:
    """Random choices whose seed is printed, and can be given as TRAINYARD_TEST_SEED."""
    seed = int(os.environ.get("TRAINYARD_TEST_SEED", random.SystemRandom().randrange(10**6)))
    print(f"TRAINYARD_TEST_SEED={seed}")
    return random.Random(seed)


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    """An empty bucket in a server of its own, to which the environment leads as long as this file's tests run."""
    with serve() as server, environment(server.endpoint):
        yield server
