"""Which failures of a rank are one line, and what of them reaches the events."""

from __future__ import annotations

import errno

import pytest

from trainer.__main__ import describe_error
from trainyard.store.interface import StaleAttempt


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (StaleAttempt("attempt 1 was replaced"), "attempt 1 was replaced"),
        (OSError(errno.ENOSPC, "No space left", "/run/x"), "/run/x: No space left"),
        (RuntimeError("[gloo/tcp/pair.cc:5] closed"), "another rank is gone or hangs"),
        (KeyError("model"), None),
    ],
)
def test_expected_failures_are_one_line_without_raw_library_text(
    error: Exception, line: str | None
) -> None:
    assert describe_error(error) == line


def test_the_terminal_gets_the_librarys_text_too() -> None:
    raw = describe_error(RuntimeError("[gloo/tcp/pair.cc:5] closed"), raw=True)
    assert raw == "another rank is gone or hangs: [gloo/tcp/pair.cc:5] closed"
