"""One exit code for a node follows from how its ranks ended and when they were asked to stop."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainyard.exit_codes import (
    ExitDir,
    RankResult,
    node_exit_code,
)

TERM, KILL, ABORT = -15, -9, -6


def results(*codes: int | None) -> list[RankResult]:
    """Ranks that ended one second after the other, from second 100; None: without a result."""
    return [
        RankResult(rank, code, 100.0 + rank) for rank, code in enumerate(codes) if code is not None
    ]


@pytest.mark.parametrize(
    ("codes", "launcher", "expected"),
    [
        ([0, 0], 0, 0),
        ([0, 0], 1, 0),  # the launcher's own end does not count
        ([75, 75], 1, 75),
        ([75, TERM], 1, 75),  # the second was stopped because the first ended
        ([75, 1], 1, 75),
        ([75, None], 1, 75),
        ([78, 1], 1, 78),
        ([1, 78], 1, 78),
        ([1, 0], 1, 1),
        ([3, TERM], 1, 3),
        ([1, 75], 1, 1),  # it saved its state because the other had failed
        ([KILL, TERM], 1, 137),
        ([137, TERM], 1, 137),
        ([TERM, 1], 1, 75),  # somebody told one rank to stop
        ([143, 1], 1, 75),
        ([ABORT, ABORT], 1, 134),
        ([None, None], 137, 137),
        ([None, None], 0, 1),
        ([0, None], 1, 1),
        ([0, None], 0, 1),
    ],
)
def test_without_a_notice(codes: list[int | None], launcher: int, expected: int) -> None:
    assert node_exit_code(results(*codes), 2, launcher) == expected


def test_a_program_is_done_if_it_says_so_or_a_rank_ended_before_it_was_asked(
    tmp_path: Path,
) -> None:
    folder = ExitDir(tmp_path)
    folder.write_request(0)
    folder.write_request(1)
    folder.add_result(RankResult(0, 0, 100.0))
    assert not folder.is_done()
    folder.add_result(RankResult(2, 0, 100.0))
    assert folder.is_done()
    (tmp_path / "rank-2").unlink()
    folder.write_finished()
    assert folder.is_done()
    folder.clear()
    assert not folder.is_done()


@pytest.mark.parametrize(
    ("codes", "expected"), [([1, 75], 1), ([KILL, TERM], 137), ([0, TERM], 75), ([75, TERM], 75)]
)
def test_a_notice_does_not_excuse_a_failure_before_it(codes: list[int], expected: int) -> None:
    assert node_exit_code(results(*codes), 2, 143, notice=100.5) == expected
