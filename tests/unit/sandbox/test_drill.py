"""What the interruption drill reads from the files of trainers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sandbox.drill import changes, first_difference, groups_of, stall
from sandbox.runs import Progress, read_lines

STEP_S = 0.5


def metrics(stalls: dict[int, float]) -> list[dict[str, Any]]:
    """Lines of 20 steps; some come later, by so many seconds."""
    now, lines = 0.0, []
    for step in range(1, 21):
        now += STEP_S + stalls.get(step, 0.0)
        lines.append({"step": step, "time": now, "loss": 1 / step})
    return lines


def membership(*pairs: tuple[int, int]) -> list[dict[str, Any]]:
    """Events of views, as (at step, groups), among others."""
    found: list[dict[str, Any]] = [{"event": "started", "total_steps": 20}]
    for step, groups in pairs:
        found += [{"event": "membership", "step": step, "groups": groups}, {"event": "saved"}]
    return found


def test_changes_begin_when_all_groups_were_there() -> None:
    progress = Progress(metrics({8: 1.25}), membership((0, 1), (2, 2), (7, 1), (7, 1), (15, 2)))
    left, joined = changes(progress)
    assert (left.what, left.step) == ("2 -> 1 groups", 7)
    assert (joined.what, joined.step) == ("1 -> 2 groups", 15)
    assert [left.stall_s, joined.stall_s] == pytest.approx([1.25, 0.0])
    assert groups_of(progress) == 2
    assert groups_of(Progress(metrics({}), membership((0, 1), (4, 2), (9, 1)))) == 1
    assert groups_of(Progress()) == 0


def test_a_stall_elsewhere_is_of_no_change() -> None:
    assert stall(metrics({3: 4.0}), 15) == pytest.approx(0.0)
    assert stall([], 15) == 0.0


def _metrics(*losses: float, attempt: int = 0) -> list[dict[str, Any]]:
    return [
        {"step": step, "loss": loss, "tokens": 100, "step_time_s": 0.5, "attempt": attempt}
        for step, loss in enumerate(losses, start=1)
    ]


def test_a_line_that_is_still_being_written_is_left_for_later(tmp_path: Path) -> None:
    (tmp_path / "m.jsonl").write_text(json.dumps({"step": 1}) + '\n{"ste')
    assert read_lines(tmp_path / "m.jsonl") == [{"step": 1}]
    assert read_lines(tmp_path / "absent.jsonl") == []


def test_equal_losses_do_not_differ_and_the_last_bit_counts() -> None:
    assert first_difference(_metrics(3.0, 2.0), _metrics(3.0, 2.0)) is None
    assert first_difference(_metrics(3.0, 2.0), _metrics(3.0, 2.0000000000000004)) == 2
    assert first_difference(_metrics(3.0, 2.0), _metrics(3.0)) == 2
    assert first_difference(_metrics(3.0), _metrics(3.0, 2.0)) == 2
