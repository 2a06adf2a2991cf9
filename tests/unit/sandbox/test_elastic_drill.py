"""What the interruption drill reads from a run with groups."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox.drill import changes, groups_of, stall
from sandbox.runs import Progress

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
