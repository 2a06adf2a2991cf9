"""Reading logs, whole and in parts."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from sandbox.node.log_server import RequestError, parse_log_options
from sandbox.node.logs import LogOptions, read_log
from sandbox.node.shim import Log, stamp


def _text(path: Path, **query: object) -> str:
    return b"".join(read_log(path, LogOptions(**query), lambda: True)).decode()  # type: ignore[arg-type]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Three lines, written at 100, 200 and 300 s."""
    path = tmp_path / "0.log"
    written = {"one": 100.0, "two": 200.0, "three": 300.0}
    path.write_text("".join(f"{stamp(when)} F {line}\n" for line, when in written.items()))
    return path


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (0, ""),
        (1, "three\n"),
        (2, "two\nthree\n"),
        (3, "one\ntwo\nthree\n"),
        (9, "one\ntwo\nthree\n"),
    ],
)
def test_the_tail_is_counted_in_lines(log: Path, lines: int, text: str) -> None:
    assert _text(log, tail_lines=lines) == text


def test_a_last_line_without_an_end_counts_and_is_continued(log: Path) -> None:
    shim = Log(str(log), limit_bytes=1000)
    shim.write(b"part")
    assert _text(log, tail_lines=1) == "part"
    assert _text(log, tail_lines=2) == "three\npart"
    shim.write(b" and rest\nlast\n")
    assert _text(log, tail_lines=2) == "part and rest\nlast\n"
    assert _text(log, tail_lines=2, timestamps=True).count("Z ") == 2


def test_since_gives_what_was_written_from_then_on(log: Path) -> None:
    assert _text(log, since=150.0) == "two\nthree\n"
    assert _text(log, since=150.0, tail_lines=1) == "three\n"
    assert _text(log, since=301.0) == ""


def test_every_line_is_stamped_with_its_time(log: Path) -> None:
    day = "1970-01-01T00"
    two, three = f"{day}:03:20.000000Z two\n", f"{day}:05:00.000000Z three\n"
    assert _text(log, timestamps=True) == f"{day}:01:40.000000Z one\n{two}{three}"
    assert _text(log, timestamps=True, tail_lines=2) == two + three


def test_a_rotated_log_is_read_from_its_older_part_on(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    log = Log(str(path), limit_bytes=500)
    for number in range(30):
        log.write(f"line {number}\n".encode())
    assert path.stat().st_size <= 500 and Path(f"{path}.1").stat().st_size <= 500
    lines = _text(path).split("\n")[:-1]
    assert lines[-1] == "line 29" and len(lines) > 12
    assert lines == [f"line {n}" for n in range(30 - len(lines), 30)]
    assert _text(path, tail_lines=15).count("\n") == 15


def test_following_a_log_continues_across_a_rotation(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    log = Log(str(path), limit_bytes=250)
    log.write(b"first\n")
    over = threading.Event()
    blocks = read_log(path, LogOptions(follow=True), over.is_set)
    assert next(blocks) == b"first\n"
    for number in range(9):
        log.write(f"later {number}\n".encode())
    over.set()
    assert Path(f"{path}.1").exists()
    assert b"".join(blocks).decode() == "".join(f"later {n}\n" for n in range(9))


def test_kubectl_log_options_are_parsed_and_invalid_ones_rejected() -> None:
    query = parse_log_options({"follow": "true", "tailLines": "3", "timestamps": "true"})
    assert (query.follow, query.tail_lines, query.timestamps) == (True, 3, True)
    assert parse_log_options({"sinceTime": "1970-01-01T00:01:00Z"}).since == 60.0
    with pytest.raises(RequestError, match="tailLines=x: not a whole number"):
        parse_log_options({"tailLines": "x"})
    with pytest.raises(RequestError, match="not a time"):
        parse_log_options({"sinceTime": "yesterday"})
