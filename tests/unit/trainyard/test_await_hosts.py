"""trainyard.await_hosts: the init container of a pytorchjob's master."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from trainyard import await_hosts

ROOT = Path(__file__).resolve().parents[3]
NOBODY = "host.invalid"


def test_waits_until_every_name_resolves_at_the_same_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A worker that was there and is lost again is waited for."""
    ready = iter([{"a"}, {"b"}, {"a", "b"}])
    now: set[str] = set()

    def resolve(host: str) -> str:
        if host not in now:
            raise socket.gaierror(host)
        return "127.0.0.1"

    def passes(_seconds: float) -> None:
        now.clear()
        now.update(next(ready))

    monkeypatch.setattr("trainyard.await_hosts.signal.signal", lambda *_: None)
    monkeypatch.setattr(socket, "gethostbyname", resolve)
    monkeypatch.setattr("trainyard.await_hosts.time.sleep", passes)
    assert await_hosts.main(["a", "b"]) == 0
    assert next(ready, None) is None, "it waited for both"
    assert "waiting for a, b" in capsys.readouterr().err


def test_sigterm_ends_it_with_75() -> None:
    """As the first process of a container, which has no default for SIGTERM."""
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "trainyard.await_hosts", NOBODY],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr
    try:
        assert f"waiting for {NOBODY}" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=180) == 75
    finally:
        process.kill()
        process.communicate(timeout=180)
