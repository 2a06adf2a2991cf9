"""`trainyard data` and `run fetch`: the protocol with a real program on the other end of a pipe."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ops.cluster import ClusterError
from ops.data import channel, command, copying, fetch, transfer
from ops.data.channel import Channel, LostError, RefusedError

SEED = 20261123


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    folder = tmp_path / "volume"
    folder.mkdir()
    return folder


@pytest.fixture
def pod(volume: Path) -> Iterator[Channel]:
    with channel.connect([], str(volume)) as found:
        yield found


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Three files: one empty, one of several blocks."""
    folder = tmp_path / "source"
    (folder / "deep").mkdir(parents=True)
    (folder / "empty").touch()
    (folder / "a.txt").write_bytes(b"text")
    (folder / "deep/large.bin").write_bytes(random.Random(SEED).randbytes(3 * channel.BLOCK + 17))
    return folder


def nothing(done: int, whole: int) -> None:
    del done, whole


def put(pod: Channel, source: Path, target: str = "web", force: bool = False) -> copying.Copied:
    return copying.put(pod, copying.local_files(source, target), force, nothing)


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def listed(pod: Channel, path: str) -> list[tuple[str, int]]:
    return [(name, size) for name, size, _ in pod.ask("list", path)["files"]]


def test_a_folder_arrives_whole_and_comes_back_whole(
    pod: Channel, volume: Path, source: Path, tmp_path: Path
) -> None:
    done = put(pod, source)
    assert (done.files, done.same) == (3, 0)
    assert tree(volume / "web") == tree(source)
    back = copying.get(pod, listed(pod, "web"), tmp_path / "back", nothing)
    assert back.files == 3 and tree(tmp_path / "back/web") == tree(source)


def test_an_interrupted_file_is_continued_and_not_visible_before(
    volume: Path, source: Path
) -> None:
    file = source / "deep/large.bin"
    head = {"path": "web/large.bin", "sha256": hashlib.sha256(file.read_bytes()).hexdigest()}
    with channel.connect([], str(volume)) as first:
        first.send({"op": "write", **head, "offset": 0, "bytes": file.stat().st_size})
        first.write(file.read_bytes()[: channel.BLOCK])
        first.flush()
    with channel.connect([], str(volume)) as second:
        asked = {"size": file.stat().st_size, "sha256": head["sha256"], "force": False}
        assert listed(second, "web") == []
        assert second.ask("begin", head["path"], **asked)["offset"] == channel.BLOCK
        done = copying.put(second, copying.local_files(file, head["path"]), False, nothing)
        assert done.bytes == file.stat().st_size - channel.BLOCK
    assert tree(volume) == {"web/large.bin": file.read_bytes()}


def test_an_interrupted_fetch_is_continued(
    pod: Channel, volume: Path, source: Path, tmp_path: Path
) -> None:
    put(pod, source)
    content = (source / "deep/large.bin").read_bytes()
    to = tmp_path / "back"
    (to / "web/deep").mkdir(parents=True)
    part = transfer.part_of(str(to / "web/deep/large.bin"), hashlib.sha256(content).hexdigest())
    Path(part).write_bytes(content[: 2 * channel.BLOCK])
    done = copying.get(pod, listed(pod, "web"), to, nothing)
    assert done.bytes == channel.BLOCK + 17 + 4
    assert tree(to / "web") == tree(source)
    (to / "web/deep/large.bin").unlink()
    Path(part).write_bytes(b"other bytes")
    with pytest.raises(ClusterError, match="changed while it was read; fetch it again"):
        copying.get(pod, listed(pod, "web"), to, nothing)
    copying.get(pod, listed(pod, "web"), to, nothing)
    assert tree(to / "web") == tree(source)


def test_other_files_are_kept_unless_forced_and_all_are_named(
    pod: Channel, volume: Path, source: Path
) -> None:
    (volume / "web").mkdir()
    (volume / "web/a.txt").write_bytes(b"older")
    (volume / "web/empty").write_bytes(b"not empty")
    before = tree(volume)
    with pytest.raises(ClusterError) as error:
        put(pod, source)
    assert [line.split(":")[0] for line in str(error.value).splitlines()] == [
        "web/a.txt",
        "web/empty",
    ]
    assert tree(volume) == before
    put(pod, source, force=True)
    assert tree(volume / "web") == tree(source)


def test_local_files_that_differ_are_kept_unless_forced(
    pod: Channel, source: Path, tmp_path: Path
) -> None:
    put(pod, source)
    to = tmp_path / "copies"
    (to / "web").mkdir(parents=True)
    (to / "web/a.txt").write_bytes(b"mine")
    with pytest.raises(ClusterError, match=r"a\.txt: another file of this name is here; .*--force"):
        copying.get(pod, listed(pod, "web"), to, nothing, replace=False)
    assert tree(to) == {"web/a.txt": b"mine"}
    copying.get(pod, listed(pod, "web"), to, nothing, replace=True)
    assert tree(to / "web") == tree(source)


def test_a_local_file_in_the_way_is_one_line(pod: Channel, source: Path, tmp_path: Path) -> None:
    put(pod, source)
    to = tmp_path / "copies"
    (to / "web/a.txt").mkdir(parents=True)
    with pytest.raises(ClusterError, match=r"copies/web/a\.txt: Is a directory; "):
        copying.get(pod, listed(pod, "web"), to, nothing)
    (tmp_path / "file").touch()
    with pytest.raises(ClusterError, match=r"file/web: Not a directory; |file: "):
        copying.get(pod, listed(pod, "web"), tmp_path / "file", nothing)


def test_what_cannot_be_sent_is_named_at_once(tmp_path: Path, source: Path) -> None:
    (source / "link").symlink_to("/etc/passwd")
    (source / "folder").symlink_to("/etc")
    os.mkfifo(source / "pipe")
    with pytest.raises(ClusterError) as error:
        copying.local_files(source, "web")
    named = [line.split(":")[0] for line in str(error.value).splitlines()]
    assert named == [str(source / name) for name in ("folder", "link", "pipe")]
    (tmp_path / "nothing").mkdir()
    for wrong in (tmp_path / "nothing", tmp_path / "absent"):
        with pytest.raises(ClusterError, match=f"^{wrong}: "):
            copying.local_files(wrong, "web")


@pytest.mark.parametrize(
    "path", ["../out", "/etc/passwd", "web/../../out", "out/file", "out", "a\0b"]
)
@pytest.mark.parametrize("op", ["list", "hash", "read", "remove", "begin", "write"])
def test_paths_do_not_leave_the_folder(
    pod: Channel, volume: Path, tmp_path: Path, path: str, op: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_bytes(b"theirs")
    (volume / "out").symlink_to(outside)
    (volume / "web").mkdir()
    more: dict[str, Any] = {"offset": 0, "bytes": 0, "size": 0, "sha256": "0", "force": True}
    with pytest.raises(RefusedError):
        pod.ask(op, path, **more)
    assert tree(outside) == {"file": b"theirs"} and not (tmp_path / "out").exists()


def test_links_on_the_volume_are_neither_listed_nor_followed(pod: Channel, volume: Path) -> None:
    (volume / "web").mkdir()
    (volume / "web/real").write_bytes(b"12")
    (volume / "web/link").symlink_to(volume / "web/real")
    assert listed(pod, "") == [("web/real", 2)]
    assert [one[:4] for one in pod.ask("folders", "")["entries"]] == [["web", True, 1, 2]]
    pod.ask("remove", "web")
    assert list(volume.iterdir()) == []


def test_the_root_itself_is_not_removed(pod: Channel, volume: Path) -> None:
    (volume / "file").touch()
    with pytest.raises(RefusedError):
        pod.ask("remove", "")
    assert tree(volume) == {"file": b""}


def test_a_full_volume_is_said_before_anything_is_sent_and_the_next_request_works(
    volume: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = Path(transfer.__file__).read_text().replace("SPARE = 64 << 20", "SPARE = 1 << 60")
    (tmp_path / "full.py").write_text(code)
    monkeypatch.setattr(transfer, "__file__", str(tmp_path / "full.py"))
    with channel.connect([], str(volume)) as pod:
        with pytest.raises(RefusedError, match="free"):
            put(pod, source)
        assert listed(pod, "") == []


def test_a_file_that_changes_while_it_is_sent_is_refused(
    pod: Channel, volume: Path, source: Path
) -> None:
    files = copying.local_files(source, "web")

    def change(done: int, whole: int) -> None:
        (source / "deep/large.bin").write_bytes(bytes(3 * channel.BLOCK + 17))

    with pytest.raises(RefusedError, match="changed"):
        copying.put(pod, files, False, change)
    assert "web/deep/large.bin" not in tree(volume)


def test_a_lost_connection_says_what_kubectl_said(volume: Path) -> None:
    script = "import sys; print('error: pod was deleted', file=sys.stderr)"
    words = [sys.executable, "-c", script]
    with (
        channel.connect(words, str(volume)) as pod,
        pytest.raises(LostError, match=r"pod was deleted.*run the same command again"),
    ):
        pod.ask("list", "")


FILES = [
    ("r/metrics.jsonl", 1),
    ("r/attempts/attempt-1.json", 1),
    ("r/checkpoints/step-00000010/manifest.json", 1),
    ("r/checkpoints/step-00000010/model", 9),
    ("r/checkpoints/step-00000020/manifest.json", 1),
    ("r/checkpoints/step-00000020/model", 9),
    ("r/checkpoints/step-00000030/model", 9),
    ("r/checkpoints/last-known-good", 1),
    ("r/export/model.safetensors", 9),
]


def options(**given: Any) -> argparse.Namespace:
    usual = {"step": None, "all": False, "metrics": False, "export": False}
    return argparse.Namespace(**usual | given)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, [0, 1, 4, 5, 8]),
        ({"metrics": True}, [0, 1]),
        ({"all": True}, [0, 1, 2, 3, 4, 5, 8]),
        ({"step": 10}, [2, 3]),
        ({"export": True}, [8]),
    ],
)
def test_fetch_takes_complete_checkpoints_only(given: dict[str, Any], expected: list[int]) -> None:
    listed = [*FILES, ("r/.compiled/triton/kernel", 9)]
    assert fetch.choose(listed, "r", options(**given)) == [FILES[n] for n in expected]


@pytest.mark.parametrize(
    ("files", "given", "says"),
    [
        (FILES, {"step": 30}, "complete: 10, 20"),
        (FILES[:-1], {"export": True}, "checkpoint.export"),
        ([], {}, "files yet"),
    ],
)
def test_what_is_not_there_is_said(files: Any, given: dict[str, Any], says: str) -> None:
    with pytest.raises(ClusterError, match=says):
        fetch.choose(files, "r", options(**given))


@pytest.mark.parametrize(
    ("text", "place", "used"),
    [
        ('{"path": "/data/web"}', "/data/web", True),
        ('{"path": "/data/web/train"}', "/data/web", True),
        ('{"path": "/data/web"}', "/data/web/train", True),
        ('{"path": "/data/web-2"}', "/data/web", False),
        ('{"path": "/data/web/b"}', "/data/web/a", False),
        ('{"mountPath": "/data"}', "/data/web", False),
        ("--data /data/web --x", "/data/web", True),
    ],
)
def test_data_of_a_run_is_known_by_its_settings(text: str, place: str, used: bool) -> None:
    assert command.users({"r": json.dumps(text)}, place) == (["r"] if used else [])


@pytest.mark.parametrize("text", ["", "/", "..", "a/../b", "a//b", "/data/"])
def test_a_path_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ClusterError, match=r"^PATH: "):
        command._path(text, "PATH")
