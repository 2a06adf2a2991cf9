"""Options that all tests share."""

from __future__ import annotations

import math
import os
import random
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from sandbox.ports import RANGE
from tests import committed
from tests.s3.bucket import Bucket, environment, serve

_FULL_COUNT_S = 4 * 3600
"""Time limit of a fault suite with `--full`: hundreds of trials of several seconds."""
_SAMPLE = 10
"""One of so many files marked `sampled` runs with `--sample`."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="fault suites with their full counts")
    parser.addoption(
        "--sample",
        type=int,
        metavar="SEED",
        help=f"of the files marked `sampled`, one of {_SAMPLE}, drawn by this seed",
    )
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
    """Skip tests that only run with `--full` or are not in the sample, before a fixture starts anything."""
    full, seed = config.getoption("--full"), config.getoption("--sample")
    sampled = {item.path for item in items if item.get_closest_marker("sampled")}
    left_out = set() if full or seed is None else sampled - sample(sampled, seed)
    for item in items:
        if item.path in left_out:
            item.add_marker(pytest.mark.skip(reason=f"not drawn by --sample {seed}"))
        if full and "trials" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(_FULL_COUNT_S))
        if item.get_closest_marker("full_only") and not full:
            item.add_marker(pytest.mark.skip(reason="--full"))


def sample(files: Iterable[Path], seed: int) -> set[Path]:
    """Draw one of `_SAMPLE` files, the same in each worker."""
    found = sorted(files)
    return set(random.Random(seed).sample(found, math.ceil(len(found) / _SAMPLE)))


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
