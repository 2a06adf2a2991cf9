"""Steps of runs, from the trainer's files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sandbox.drill import first_difference
from sandbox.engine import strip_salt
from sandbox.runs import read_lines


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


def test_local_salt_is_removed_from_the_stack_file(tmp_path: Path) -> None:
    file = tmp_path / "Pulumi.local.yaml"
    file.write_text("# comment\nencryptionsalt: v1:abc=\nconfig:\n  a:b: 1\n")
    strip_salt(file)
    assert file.read_text() == "# comment\nconfig:\n  a:b: 1\n"
