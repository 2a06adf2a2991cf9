"""What a run shows: a bar on a terminal, lines elsewhere, nothing on other ranks."""

from __future__ import annotations

import io
import sys

import pytest

from trainer.metrics.progress import ProgressDisplay
from trainyard.run_logs import StepMetrics


def metrics(step: int, mfu: float | None = None) -> StepMetrics:
    return StepMetrics(
        step=step,
        loss=2.5,
        tokens=1000,
        lr=0.1,
        step_time_s=0.1,
        loader_time_s=0.0,
        attempt=1,
        time=0.0,
        tokens_per_s=10_000.0,
        samples_per_s=10.0,
        mfu=mfu,
        grad_norm=1.0,
        collective_time_s=0.0,
        checkpoint_stall_s=0.0,
    )


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(*, every_seconds: float, enabled: bool = True, mfu: float | None = None) -> None:
    with ProgressDisplay(10, 4, every_seconds, enabled=enabled) as display:
        for step in range(5, 11):
            display.step(metrics(step, mfu))
        display.log("a word")


def test_lines_come_now_and_then_and_always_for_the_last_step(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown(every_seconds=3600.0)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["step 10/10", "a word"]
    shown(every_seconds=1e-9, mfu=0.412)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 7
    assert "loss 2.500" in lines[0] and "MFU 41.2 %" in lines[0]


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    shown(every_seconds=3600.0)
    text = terminal.getvalue()
    assert "step 10/10" in text and "\x1b[" in text and "a word" in text


def test_other_ranks_say_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    shown(every_seconds=1e-9, enabled=False)
    assert capsys.readouterr().err == ""
