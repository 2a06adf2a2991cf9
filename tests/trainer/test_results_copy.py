"""Copies of runs in a bucket: complete, up to date, and readable as checkpoints."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.s3.bucket import Bucket, Fault
from tests.trainer.s3_places import save
from trainer.results.copying import Copied, copy_run
from trainyard.objects import Objects
from trainyard.objects.upload import Uploader
from trainyard.store.factory import find_checkpoints
from trainyard.store.interface import folder_name
from trainyard.store.manifest import MANIFEST_FILE
from trainyard.store.posix import PosixStore

pytestmark = pytest.mark.long(12)

RUN = "llama-v1-0a1b2c3d"


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run with two checkpoints, metrics and an export, and what must not be copied."""
    folder = tmp_path / RUN
    for name in ("metrics.jsonl", "export/model.safetensors", "checkpoints/epoch-1/weights"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{name}\n")
    for name in (".export-unfinished/model", "checkpoints/.writing-step-00000030/model"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).touch()
    (folder / "link").symlink_to("/etc/passwd")
    for step in (10, 20):
        save(PosixStore(folder / "checkpoints"), step)
    return folder


def _age(folder: Path) -> None:
    """Make every file older than its copy: S3 counts in whole seconds."""
    for path in folder.rglob("*"):
        os.utime(path, (1, 1), follow_symlinks=False)


def _names(to: Objects) -> set[str]:
    return {entry.name for entry in to.list()}


def _copy(run_dir: Path, to: Objects) -> Copied:
    _age(run_dir)
    return copy_run(run_dir, to, Uploader())


def test_copy_has_results_and_checkpoints_that_verify(run_dir: Path, bucket: Bucket) -> None:
    to = bucket.objects(f"copies/{RUN}")
    _copy(run_dir, to)
    found = _names(to)
    expected = {"metrics.jsonl", "export/model.safetensors", "checkpoints/epoch-1/weights"}
    assert expected <= found
    assert not any(name.startswith(".") or "/." in name or name == "link" for name in found)
    store, steps = find_checkpoints(bucket.url(f"copies/{RUN}"))
    assert steps == [10, 20]
    assert [store.verify(step) for step in steps] == [[], []]


def test_second_pass_sends_only_what_has_grown(run_dir: Path, bucket: Bucket) -> None:
    to = bucket.objects("copies/grown")
    _copy(run_dir, to)
    assert _copy(run_dir, to) == Copied()
    with (run_dir / "metrics.jsonl").open("a") as file:
        file.write("more\n")
    assert _copy(run_dir, to).files == 1
    assert to.read("metrics.jsonl") == b"metrics.jsonl\nmore\n"


def test_file_that_was_replaced_by_one_of_equal_size_is_sent(run_dir: Path, bucket: Bucket) -> None:
    to = bucket.objects("copies/replaced")
    _copy(run_dir, to)
    export = run_dir / "export/model.safetensors"
    changed = export.read_text().upper()
    export.write_text(changed)
    later = Path(run_dir).stat().st_mtime + 3600
    os.utime(export, (later, later))
    assert copy_run(run_dir, to, Uploader()).files == 1
    assert to.read("export/model.safetensors").decode() == changed


def test_copies_of_deleted_checkpoints_go_once_a_newer_one_is_there(
    run_dir: Path, bucket: Bucket
) -> None:
    to = bucket.objects("copies/retention")
    _copy(run_dir, to)
    store = PosixStore(run_dir / "checkpoints")
    save(store, 30)
    store.delete(10)
    assert _copy(run_dir, to).deleted == 1
    assert find_checkpoints(bucket.url("copies/retention"))[1] == [20, 30]

    shutil.rmtree(run_dir / "checkpoints")
    assert _copy(run_dir, to) == Copied()
    assert find_checkpoints(bucket.url("copies/retention"))[1] == [20, 30]


def test_interrupted_copy_of_a_checkpoint_is_not_listed_and_is_continued(
    run_dir: Path, bucket: Bucket
) -> None:
    to = bucket.objects("copies/interrupted")
    bucket.break_(Fault(kind="denied", match=rf"PUT .*/{folder_name(20)}/{MANIFEST_FILE}"))
    with pytest.raises(OSError, match="403"):
        _copy(run_dir, to)
    bucket.break_()
    assert find_checkpoints(bucket.url("copies/interrupted"))[1] == [10]
    copied = _copy(run_dir, to)
    assert find_checkpoints(bucket.url("copies/interrupted"))[1] == [10, 20]
    # The manifest, and what follows the checkpoints.
    assert copied.files == 2


def test_corrupt_checkpoint_is_named_and_its_copy_never_listed(
    run_dir: Path, bucket: Bucket
) -> None:
    place = "copies/corrupt"
    to = bucket.objects(place)
    for step in (30, 40):
        save(PosixStore(run_dir / "checkpoints"), step)
    damaged = run_dir / "checkpoints" / folder_name(40) / "progress.json"
    damaged.write_bytes(bytes(len(damaged.read_bytes())))
    for _ in range(2):
        corrupt = _copy(run_dir, to).corrupt
        assert "step-00000040 is corrupt: progress.json: content differs" in corrupt
        assert find_checkpoints(bucket.url(place))[1] == [10, 20, 30]


def _program(root: Path, store: str) -> tuple[int, list[dict[str, Any]]]:
    argv = [sys.executable, "-m", "trainer.results", str(root), store]
    done = subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False
    )
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def test_program_copies_all_runs_and_reports_a_bucket_that_refuses(
    run_dir: Path, bucket: Bucket
) -> None:
    (run_dir.parent / "no-run").mkdir()
    store = bucket.url("program")
    code, [line, summary] = _program(run_dir.parent, store)
    assert code == 0, summary
    assert line["run"] == RUN and summary["runs"] == 1 and summary["ok"]
    assert f"{RUN}/metrics.jsonl" in _names(bucket.objects("program"))

    bucket.break_(Fault(kind="denied"))
    code, [summary] = _program(run_dir.parent, store)
    bucket.break_()
    assert code == 1
    assert not summary["ok"] and "403" in summary["cause"]
