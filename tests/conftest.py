"""Options that all tests share."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator, Mapping

import pytest

from sandbox.ports import RANGE
from tests import committed
from tests.s3.bucket import Bucket, environment, serve

_FULL_COUNT_S = 4 * 3600
"""Time limit of a fault suite with `--full`: hundreds of trials of several seconds."""
SAMPLE_S = 180.0
"""Total duration of the files and tests that `--sample` draws."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="fault suites with their full counts")
    parser.addoption(
        "--sample",
        type=int,
        metavar="SEED",
        help=f"of what is marked `sampled`, run {SAMPLE_S:.0f} seconds of tests, drawn by this seed",
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
    units = {item: _sampled(item) for item in items}
    long = dict(unit for unit in units.values() if unit)
    drawn = set(long) if full or seed is None else sample(long, seed)
    for item, unit in units.items():
        if unit and unit[0] not in drawn:
            item.add_marker(pytest.mark.skip(reason=f"not drawn by --sample {seed}"))
        if full and "trials" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(_FULL_COUNT_S))
        if item.get_closest_marker("full_only") and not full:
            item.add_marker(pytest.mark.skip(reason="--full"))


def _sampled(item: pytest.Item) -> tuple[str, float] | None:
    """Return the id and the seconds of what is marked `sampled`: the test with all its parameters, or its file."""
    for node, mark in item.iter_markers_with_node("sampled"):
        if not mark.args:
            raise pytest.UsageError(f"{node.nodeid}: `sampled` without the seconds that it takes")
        return node.nodeid.split("[")[0], float(mark.args[0])
    return None


def sample(seconds: Mapping[str, float], seed: int) -> set[str]:
    """Draw ids until their seconds fill `SAMPLE_S`, the same in each worker; at least one."""
    order = random.Random(seed).sample(sorted(seconds), len(seconds))
    drawn: set[str] = set()
    left = SAMPLE_S
    for unit in order:
        if seconds[unit] <= left or not drawn:
            drawn.add(unit)
            left -= seconds[unit]
    return drawn


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
