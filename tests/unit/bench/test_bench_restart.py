"""A relaunch is timed by the lines of its run, and compared with its peer within a round."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from bench.trainer.restart import Relaunched, section

PROGRAM = """
import json, sys, time
for step in range(1, 100):
    with open(sys.argv[1], "a") as lines:
        lines.write(json.dumps({"step": step}) + "\\n")
    time.sleep(0.001)
time.sleep(600 if len(sys.argv) > 2 else 0)
"""


def run(folder: Path, *words: str) -> Relaunched:
    (folder / "program.py").write_text(PROGRAM)
    lines = folder / "metrics.jsonl"
    return Relaunched(folder, [str(folder / "program.py"), str(lines), *words], lines)


def test_a_relaunch_ends_with_the_first_step_of_the_new_launcher(tmp_path: Path) -> None:
    live = run(tmp_path, "stay")
    live.start()
    live.reach(25)
    live.kill()
    before = live.steps()
    assert 0 < live.relaunch(random.Random(1)) < 60
    assert live.steps() > before and live.process and live.process.poll() is not None


def test_a_run_that_ends_without_a_step_is_named(tmp_path: Path) -> None:
    live = run(tmp_path)
    live.start()
    with pytest.raises(TimeoutError, match="no step"):
        live.reach(1000)


def test_the_section_compares_within_a_round() -> None:
    times = {"program": [1.0, 2.0], "trainer": [1.6, 3.2], "torchrun": [2.0, 4.0]}
    text = section(times)
    assert "| 1.50 | 0.50 (0.50 to 0.50) | goal at most 0.75: met |" in text
    assert "| 2.40 | 0.80 (0.80 to 0.80) | goal at most 0.75: missed by 7% |" in text
