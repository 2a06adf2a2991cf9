"""trainyard stack update: which update of a stack launched a run."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest

from ops import __main__ as ops
from ops import update_lookup

PULUMI = """#!/bin/sh
case "$*" in
  *--stack\\ dev\\ *--page=1) cat {folder}/page ;;
  *--stack\\ dev\\ *) echo '[]' ;;
  *) echo "error: no stack named '$4' found" >&2; exit 255 ;;
esac
"""


def entry(started: str, ended: str | None, *, version: int = 0, **more: Any) -> dict[str, Any]:
    """An update as `pulumi stack history --json` prints it."""
    found = {
        "version": version,
        "kind": "update",
        "startTime": f"2026-11-23T{started}.000Z",
        "message": "runs: add hello\n\nbody",
        "environment": {"git.head": "c" * 40, "git.author": "Ada"},
        "config": {},
        "result": "succeeded",
    }
    return found | ({"endTime": f"2026-11-23T{ended}.000Z"} if ended else {}) | more


def at(time: str) -> dt.datetime:
    return dt.datetime.fromisoformat(f"2026-11-23T{time}Z")


PAGES = [
    [entry("09:40:00", "09:41:00"), entry("09:30:00", "09:31:30")],
    [entry("09:20:00", "09:20:10", version=7), entry("09:00:00", "09:10:00")],
]


def find(time: str) -> tuple[update_lookup.Update | None, int]:
    """The update of a time, and how many pages were read."""
    read: list[int] = []

    def page(number: int) -> str:
        read.append(number)
        return json.dumps(PAGES[number - 1] if number <= len(PAGES) else [])

    return update_lookup.find(page, at(time)), len(read)


@pytest.mark.parametrize(
    ("time", "started", "pages"),
    [
        ("09:40:00", "09:40:00", 1),
        ("09:31:30.700", "09:30:00", 1),
        ("09:20:05", "09:20:00", 2),
        ("09:35:00", None, 1),
        ("08:00:00", None, 3),
        ("10:00:00", None, 1),
    ],
)
def test_update_is_the_one_that_ran_at_that_time(
    time: str, started: str | None, pages: int
) -> None:
    found, read = find(time)
    assert (found.started if found else None) == (at(started) if started else None)
    assert read == pages


def test_update_that_still_runs_covers_now() -> None:
    [running] = update_lookup.parse(json.dumps([entry("09:40:00", None, result="in-progress")]))
    assert running.covers(at("12:00:00")) and not running.covers(at("09:39:59"))


@pytest.fixture
def pulumi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `pulumi` on the PATH whose history of `dev` is the file that is returned."""
    program = tmp_path / "pulumi"
    program.write_text(PULUMI.format(folder=tmp_path))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path / "page"


def run(*words: str) -> int:
    return ops.main(["stack", "update", *words])


def test_prints_the_update_with_its_number_where_there_is_one(
    pulumi: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pulumi.write_text(json.dumps([entry("09:40:00", "09:41:00", version=12)]))
    assert run("--stack", "dev", "--at", "2026-11-23T10:40:30+01:00", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "number": 12,
        "kind": "update",
        "started": "2026-11-23T09:40:00Z",
        "ended": "2026-11-23T09:41:00Z",
        "result": "succeeded",
        "commit": "c" * 40,
        "by": "Ada",
        "message": "runs: add hello\n\nbody",
    }
    pulumi.write_text(json.dumps([entry("09:40:00", "09:41:00")]))
    assert run("--stack", "dev", "--at", "2026-11-23T09:40:30Z") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("number   none: this backend does not number updates")
    assert lines[-1] == "message  runs: add hello"


def test_says_so_where_no_update_ran(pulumi: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pulumi.write_text("[]")
    assert run("--stack", "dev", "--at", "2026-11-23T09:40:30Z") == 1
    assert "no recorded update ran at 2026-11-23T09:40:30Z" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--stack", "other", "--at", "2026-11-23T09:40:30Z"), "no stack named 'other' found"),
        (("--stack", "dev", "--at", "2026-11-23T09:40:30Z"), "unexpected output"),
    ],
)
def test_other_answers_are_one_line(
    pulumi: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], text: str
) -> None:
    pulumi.write_text("[{}]")
    assert run(*words) == 2
    error = capsys.readouterr().err
    assert text in error and error.count("\n") == 1


def test_a_time_needs_an_offset(pulumi: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run("--stack", "dev", "--at", "2026-11-23T09:40:30")
    assert "is no time, such as" in capsys.readouterr().err
