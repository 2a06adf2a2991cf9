"""`python -m trainer.drills`: restorable checkpoints pass, others fail with a cause."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.s3.bucket import Bucket, Fault
from tests.trainer.s3_places import Place
from tests.trainer.tiny_checkpoints import damage, run_in, write
from trainer.checkpoint import restore
from trainer.drills import RESTORED, VERIFIED, main

Drill = Callable[..., tuple[int, list[dict[str, Any]], dict[str, Any]]]


@pytest.fixture
def drill(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Drill:
    """The command in this process: exit code, a line per run, the summary. No scratch is left."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()

    def call(*words: object) -> tuple[int, list[dict[str, Any]], dict[str, Any]]:
        monkeypatch.setattr(sys, "argv", ["drills", *map(str, words), "--scratch", str(scratch)])
        code = main()
        *lines, last = map(json.loads, capsys.readouterr().out.splitlines())
        assert list(scratch.iterdir()) == []
        return code, lines, last

    return call


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """A team's volume with three runs, `new` the one that saved last, and what is no run."""
    found = tmp_path / "volume"
    for age, name in enumerate(("new", "middle", "old")):
        run_in(found, name, 10, 20, saved_at=1000.0 - age)
    (found / "lost+found").mkdir()
    (found / "fresh" / "checkpoints").mkdir(parents=True)
    return found


def test_the_newest_checkpoint_of_the_newest_runs_is_restored_and_compared(
    drill: Drill, volume: Path
) -> None:
    code, lines, last = drill(volume, "--newest", 2)
    assert code == 0
    assert [(line["run"], line["step"], line["how"]) for line in lines] == [
        ("new", 20, RESTORED),
        ("middle", 20, RESTORED),
    ]
    assert (last["validation"], last["ok"], last["cause"]) == ("restore-drill", True, "")
    assert (last["runs"], last["passed"], last["failed"], last["restored"]) == (2, 2, 0, 2)
    assert last["bytes"] == sum(line["bytes"] for line in lines) > 0


def test_a_corrupt_checkpoint_fails_the_drill_and_the_others_are_still_examined(
    drill: Drill, volume: Path
) -> None:
    name = damage(run_in(volume, "middle"), 20)
    code, lines, last = drill(volume)
    assert code == 1
    assert [line["ok"] for line in lines] == [True, False, True]
    assert last["cause"] == (
        f"middle: step-00000020 is corrupt: {name}: content differs from the manifest's hash"
    )
    assert last["remedy"].startswith("python -m trainer.checkpoint verify ")
    assert (last["passed"], last["failed"]) == (2, 1)


def test_a_run_whose_manifest_is_damaged_is_examined_before_all_others(
    drill: Drill, volume: Path
) -> None:
    (volume / "old/checkpoints/step-00000020/manifest.json").write_text("{}")
    code, [line], _ = drill(volume, "--newest", 1)
    assert (code, line["run"]) == (1, "old")
    assert "manifest" in line["cause"]


def test_a_checkpoint_that_is_too_large_is_read_and_compared_in_place(
    drill: Drill, volume: Path
) -> None:
    code, lines, last = drill(volume, "--newest", 1, "--largest", 100)
    assert (code, lines[0]["how"], last["restored"]) == (0, VERIFIED, 0)
    damage(run_in(volume, "new"), 20)
    code, lines, _ = drill(volume, "--newest", 1, "--largest", 100)
    assert (code, lines[0]["how"]) == (1, VERIFIED)


def test_a_checkpoint_replaced_by_an_active_run_is_not_a_failure(
    drill: Drill, volume: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = restore.run_drill
    store = run_in(volume, "new")

    def replaced(*arguments: Any) -> Any:
        if 30 not in store.steps():
            write(store, 30)
            store.delete(20)
        return real(*arguments)

    monkeypatch.setattr(restore, "run_drill", replaced)
    code, [line], _ = drill(volume, "--newest", 1)
    assert (code, line["step"], line["ok"]) == (0, 30, True)


def test_a_volume_without_checkpoints_passes_and_reports_none(drill: Drill, tmp_path: Path) -> None:
    (tmp_path / "volume").mkdir()
    code, lines, last = drill(tmp_path / "volume")
    assert (code, lines, last["runs"], last["ok"]) == (0, [], 0, True)


def test_a_place_that_is_not_there_fails_with_its_name(drill: Drill, tmp_path: Path) -> None:
    code, _, last = drill(tmp_path / "nowhere")
    assert (code, last["ok"]) == (1, False)
    assert str(tmp_path / "nowhere") in last["cause"]


def test_runs_in_a_bucket_are_examined_like_those_in_a_folder(drill: Drill, bucket: Bucket) -> None:
    bucket.break_()
    # Runs of other tests are in this bucket, too.
    place = Place(bucket)
    place.prefix = f"team-{uuid.uuid4().hex[:8]}/run"
    write(place.store(), 10)
    team = bucket.url(place.prefix).rpartition("/")[0]
    code, [line], last = drill(team)
    assert (code, line["run"], line["how"]) == (0, place.prefix.rpartition("/")[2], RESTORED)
    bucket.break_(Fault(kind="denied"))
    code, _, last = drill(team)
    assert code == 1 and "403 AccessDenied" in last["cause"]
    bucket.break_()


@pytest.mark.parametrize(
    "words", [["--newest", "0"], ["--largest", "0"], ["--scratch", "/nowhere"]]
)
def test_invalid_arguments_exit_with_78(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = ["--scratch", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["drills", str(tmp_path), *scratch, *words])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 78
