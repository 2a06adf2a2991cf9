"""`python -m trainer.checkpoint` says the same of a folder and of a bucket."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.s3.bucket import Bucket, Fault
from tests.trainer.s3_places import MODEL, Place, save
from trainer.checkpoint import __main__ as command
from trainyard.store.interface import CheckpointStore
from trainyard.store.posix import PosixStore


@pytest.fixture(params=["folder", "bucket"])
def run(request: pytest.FixtureRequest, bucket: Bucket, tmp_path: Path) -> Iterator[str]:
    """A run with two checkpoints, the older one last known good."""
    bucket.break_()
    place = Place(bucket)
    store: CheckpointStore = PosixStore(tmp_path / "checkpoints")
    where = str(tmp_path)
    if request.param == "bucket":
        store, where = place.store(), bucket.url(place.prefix)
    save(store, 10)
    save(store, 20)
    store.mark_known_good(10)
    yield where
    bucket.break_()


def told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> str:
    """What the command prints when all is well."""
    assert ended(monkeypatch, *words) == 0
    return capsys.readouterr().out


def ended(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["checkpoint", *words])
    return command.main()


def test_it_lists_verifies_and_explains_wherever_checkpoints_are(
    run: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = told(capsys, monkeypatch, "list", run).splitlines()
    assert [line.split()[0] for line in listed] == ["step", "10", "20"]
    assert ["last known good" in line for line in listed] == [False, True, False]
    assert told(capsys, monkeypatch, "verify", f"{run}/checkpoints/step-00000020").splitlines() == [
        "step-00000020: ok, 3 files, 0.4 MB"
    ]
    assert told(capsys, monkeypatch, "verify", run).count(": ok, 3 files") == 2
    assert json.loads(told(capsys, monkeypatch, "explain", "--json", run))["step"] == 20
    told_of = told(capsys, monkeypatch, "explain", f"{run}/checkpoints/")
    assert told_of.splitlines()[0] == f"{run}/checkpoints/step-00000020"


def test_it_says_in_a_line_what_is_corrupt_missing_or_out_of_reach(
    bucket: Bucket, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(bucket)
    save(place.store(), 10)
    url = bucket.url(place.prefix)
    name = f"checkpoints/step-00000010/attempt-00000001/{MODEL}"
    place.objects().put(name, b"x")
    assert ended(monkeypatch, "verify", url) == 1
    assert "got 1 bytes; the manifest says 260000" in capsys.readouterr().out
    assert ended(monkeypatch, "list", f"{url}/checkpoints/step-00000011") == 2
    assert ended(monkeypatch, "list", "s3://B") == 2
    assert capsys.readouterr().err.splitlines() == [
        f"{url}/checkpoints/step-00000011: no checkpoints found; name a run directory",
        "s3://B: got 's3://B'; must be s3://BUCKET/PREFIX",
    ]
    bucket.break_(Fault(kind="denied"))
    assert ended(monkeypatch, "list", url) == 2
    assert "403 AccessDenied: Access Denied" in capsys.readouterr().err
    bucket.break_()
