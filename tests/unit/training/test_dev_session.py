"""When a dev pod ends, and what its terminals are told before."""

from __future__ import annotations

import os
import pty
from pathlib import Path

import pytest

from ops.dev import session as dev_session
from ops.dev.session import Session

HOUR = 3600.0


def test_session_ends_at_its_time_limit_after_one_warning() -> None:
    session = Session(2 * HOUR, 0, now=0)
    assert session.step(6000, 0) == ("", "")
    ended, warning = session.step(6700, 0)
    assert not ended and "time limit in 8.33 minutes" in warning
    assert session.step(6800, 0) == ("", "")
    assert session.step(7200, 0) == ("time limit of 2 hours reached", "")


def test_idle_session_is_warned_again_after_it_was_used() -> None:
    session = Session(8 * HOUR, HOUR, now=0)
    assert "idle and ends in 8.33 minutes" in session.step(3100, 0)[1]
    assert session.step(3200, 0) == ("", "")
    assert session.step(3300, 3250) == ("", "")  # a key was pressed
    assert "is idle" in session.step(3250 + 3100, 0)[1]
    assert session.step(3250 + 3600, 0) == ("idle for 60 minutes", "")


def test_session_without_idle_limit_stays() -> None:
    assert Session(8 * HOUR, 0, now=0).step(7 * HOUR, 0) == ("", "")


def test_short_session_is_warned_in_its_last_fifth() -> None:
    session = Session(100, 50, now=0)
    assert session.step(39, 0) == ("", "")
    assert "is idle" in session.step(41, 0)[1]


def test_typing_is_activity_and_every_terminal_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    master, slave = pty.openpty()
    (tmp_path / "0").symlink_to(os.ttyname(slave))
    monkeypatch.setattr(dev_session, "TERMINALS", f"{tmp_path}/[0-9]*")
    monkeypatch.setattr(dev_session, "ACTIVITY", f"{tmp_path}/activity")
    typed = os.stat(os.ttyname(slave)).st_atime
    assert dev_session.last_activity() == typed
    (tmp_path / "activity").touch()
    os.utime(tmp_path / "activity", (1, typed + 100))
    assert dev_session.last_activity() == typed + 100
    dev_session.tell("ends soon")
    assert b"*** ends soon ***" in os.read(master, 1000)
    for fd in (master, slave):
        os.close(fd)


def test_gpu_utilisation_is_that_of_the_busiest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert dev_session.gpu_percent() == 0
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho 3\necho 71\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    assert dev_session.gpu_percent() == 71


def test_preempted_session_does_not_start_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv(dev_session.SESSION_ENV, "uid-1")
    assert dev_session.first_start()
    assert not dev_session.first_start()
    monkeypatch.setenv(dev_session.SESSION_ENV, "uid-2")
    assert dev_session.first_start()
