"""Verdicts: recorded once, as a file and a line that readers of logs need not trust."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from trainyard.contract import CULPRIT_LINE
from trainyard.culprits import HUNG, Culprit, Verdicts, parse_line

CULPRIT = Culprit(
    symptom=HUNG,
    rank=3,
    node="spot-1",
    pod="hello-0-1",
    step=41,
    attempt=2,
    time=1000.5,
    what="does not answer",
    evidence=("its process is stopped",),
    frame="loop.py:9 train",
)


def test_a_verdict_is_recorded_once_whoever_claims_it(tmp_path: Path) -> None:
    first, second = Verdicts(tmp_path), Verdicts(tmp_path)
    assert first.claim("a", CULPRIT)
    assert not second.claim("a", replace(CULPRIT, rank=5))
    assert second.all() == [CULPRIT]
    second.renew("a", replace(CULPRIT, time=2000.0))
    assert [one.time for one in first.all()] == [2000.0]
    assert not list(first.folder.glob(".*"))


def test_a_line_in_the_log_names_the_culprit() -> None:
    assert parse_line(f"2026-01-01 {CULPRIT.line()}") == CULPRIT


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{",
        '"hung"',
        json.dumps({"symptom": "hung"}),
        json.dumps({**vars(CULPRIT), "symptom": "bored"}),
        json.dumps({**vars(CULPRIT), "rank": "many"}),
        json.dumps({**vars(CULPRIT), "evidence": "none"}),
    ],
)
def test_lines_that_say_something_else_name_no_culprit(content: str) -> None:
    assert parse_line(CULPRIT_LINE + content) is None


def test_a_line_cannot_fill_the_screen() -> None:
    long = replace(CULPRIT, what="x" * 10_000, evidence=("y" * 10_000,) * 1000)
    found = parse_line(long.line())
    assert found is not None
    assert len(found.what) == 300 and len(found.evidence) == 8
