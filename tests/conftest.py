"""Options that all tests share."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="fault suites with their full counts")
    parser.addoption("--update-golden", action="store_true", help="write golden files anew")


@pytest.fixture(scope="session")
def full(request: pytest.FixtureRequest) -> bool:
    """Whether the fault suites run with their full counts."""
    return bool(request.config.getoption("--full"))
