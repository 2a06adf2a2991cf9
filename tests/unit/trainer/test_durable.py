"""A file holds exactly what was given, however the file system wants to be written to."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from trainyard.store.durable import write_file
from trainyard.store.manifest import FileRecord, record_of
from trainyard.tensors.writer import BackgroundWriter, FileWork

PAGE = 4096


def paged(size: int) -> memoryview:
    """Random bytes that begin on a page."""
    memory = mmap.mmap(-1, size)
    memory.write(os.urandom(size))
    return memoryview(memory)


def ignore(_: str) -> None:
    return None


@pytest.mark.parametrize("beyond", [0, 1, PAGE - 1, 513])
@pytest.mark.parametrize("first", [0, 1, 512])
def test_a_large_file_is_whole_wherever_its_memory_begins_and_ends(
    first: int, beyond: int, tmp_path: Path
) -> None:
    content = paged(first + 9 * 1024 * 1024 + beyond)[first:]
    record = write_file(tmp_path / "f", [content, b"", b"tail"], ignore)
    expected = bytes(content) + b"tail"
    assert (tmp_path / "f").read_bytes() == expected
    assert record == record_of(expected)


def test_most_of_a_large_file_goes_around_the_page_cache_and_a_small_one_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not takes_direct(tmp_path):
        pytest.skip("this file system takes no O_DIRECT")
    direct: list[int] = []
    plain = os.write

    def noting(descriptor: int, block: memoryview) -> int:
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT:
            direct.append(len(block))
        return plain(descriptor, block)

    monkeypatch.setattr(os, "write", noting)
    write_file(tmp_path / "large", [paged(20 * 1024 * 1024 + 5)], ignore)
    assert direct == [
        20 * 1024 * 1024
    ]  # in one call: each takes the interpreter's lock from training
    direct.clear()
    write_file(tmp_path / "small", [paged(5 * PAGE)], ignore)
    assert direct == []


def takes_direct(folder: Path) -> bool:
    try:
        os.close(os.open(folder / "probe", os.O_WRONLY | os.O_CREAT | os.O_DIRECT))
    except OSError:
        return False
    return True


@pytest.mark.parametrize("refusing", ["open", "write"])
def test_a_file_system_that_takes_no_direct_writes_gets_buffered_ones(
    refusing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain_open, plain_write = os.open, os.write

    def no_open(path: Path, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return plain_open(path, flags, mode)

    def no_write(descriptor: int, block: memoryview) -> int:
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return plain_write(descriptor, block)

    monkeypatch.setattr(os, refusing, {"open": no_open, "write": no_write}[refusing])
    content = paged(3 * 1024 * 1024)
    write_file(tmp_path / "f", [content], ignore)
    assert (tmp_path / "f").read_bytes() == bytes(content)


def test_a_file_that_is_there_already_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"old")
    for content in (b"new", paged(2 * 1024 * 1024)):
        with pytest.raises(FileExistsError):
            write_file(tmp_path / "f", [content], ignore)
    assert (tmp_path / "f").read_bytes() == b"old"


def record(name: str) -> FileRecord:
    return FileRecord(bytes=len(name), hash=f"sha256:{name}")


def test_helpers_share_the_files_and_each_is_written_once() -> None:
    both = threading.Barrier(2, timeout=30)
    written: list[str] = []

    def write(name: str) -> Callable[[], FileRecord]:
        def doing() -> FileRecord:
            if name in ("a", "b"):
                both.wait()  # passes only when two threads write at once
            written.append(name)
            return record(name)

        return doing

    work = FileWork([(name, write(name)) for name in "abcd"])
    writer, found = BackgroundWriter(), []
    writer.start(lambda: found.append(work.finish()), work)
    writer.help()
    assert writer.wait(30)
    assert writer.take_error() is None
    assert sorted(written) == list("abcd")
    assert found == [{name: record(name) for name in "abcd"}]


def test_the_first_error_ends_the_work_once_nobody_touches_the_memory_any_more() -> None:
    begun, failed, finished = threading.Event(), threading.Event(), threading.Event()

    def slow() -> FileRecord:
        begun.set()
        assert failed.wait(30)
        finished.set()
        return record("slow")

    def bad() -> FileRecord:
        assert begun.wait(30)
        failed.set()
        raise OSError("disk")

    work = FileWork([("slow", slow), ("bad", bad), ("never", lambda: record("never"))])
    threading.Thread(target=work.help, daemon=True).start()
    assert begun.wait(30)
    with pytest.raises(OSError, match="disk"):
        work.finish()
    assert finished.is_set()


def paused_writer(monkeypatch: pytest.MonkeyPatch, pauses_s: float) -> BackgroundWriter:
    """A writer of two files, of which the first seems to take eleven days."""
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])

    def long() -> FileRecord:
        clock[0] += 1e6
        return record("long")

    work = FileWork([("long", long), ("next", lambda: record("next"))], pauses_s=pauses_s)
    writer = BackgroundWriter()
    writer.start(lambda: assert_written(work), work)
    return writer


def assert_written(work: FileWork) -> None:
    assert list(work.finish()) == ["long", "next"]


def test_a_save_pauses_between_files_until_training_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    writer = paused_writer(monkeypatch, 1e9)
    assert not writer.wait(0.2)
    writer.help()
    assert writer.wait(30)
    assert writer.take_error() is None


def test_pauses_end_after_their_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    writer = paused_writer(monkeypatch, 0.01)
    assert writer.wait(30)
    assert writer.take_error() is None
