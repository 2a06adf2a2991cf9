"""Options that all tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="fault suites with their full counts")
    parser.addoption("--update-golden", action="store_true", help="write golden files anew")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Under pytest-xdist a group of tests keeps to one process.

    One cluster serves all of tests/sandbox, and the processes of tests/trainer would starve each other.
    Elsewhere a module's tests share what it has set up.
    """
    for item in items:
        tier = item.path.relative_to(TESTS).parts[0]
        group = tier if tier in ("sandbox", "trainer") else str(item.path)
        item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture(scope="session")
def full(request: pytest.FixtureRequest) -> bool:
    """Whether the fault suites run with their full counts."""
    return bool(request.config.getoption("--full"))
