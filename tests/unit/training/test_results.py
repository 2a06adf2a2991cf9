"""Results of a finished run: what is copied to its bucket, and a bucket that refuses."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from trainer import publication
from trainer.loop import Run
from trainer.results import copying
from trainyard.objects import ObjectError


class Recorded:
    """A display and a list of events in one."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.events: list[tuple[str, dict[str, Any]]] = []

    def log(self, text: str) -> None:
        self.lines.append(text)

    def write(self, name: str, step: int, **fields: Any) -> None:
        self.events.append((name, fields | {"step": step}))


def test_everything_but_checkpoints_and_unfinished_files_is_a_result(tmp_path: Path) -> None:
    kept = ["attempts/attempt-1.json", "export/model.safetensors", "metrics.jsonl"]
    for name in (*kept, "checkpoints/step-00000001/model", ".export-unfinished/model", "a/.part"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "link").symlink_to("/etc/passwd")
    assert [str(p.relative_to(tmp_path)) for p in copying.results(tmp_path)] == kept


def test_a_bucket_that_refuses_does_not_fail_the_run_and_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> tuple[int, int]:
        raise ObjectError("AccessDenied:\nno permission")

    monkeypatch.setattr(publication, "copy_files", refused)
    told = Recorded()
    run = SimpleNamespace(display=told, events=told, progress=SimpleNamespace(step=7))
    publication.copy_to_bucket(cast(Run, run), tmp_path, "s3://bucket/run")
    ((name, fields),) = told.events
    assert name == "results_not_copied" and fields["step"] == 7
    assert fields["error"] == "AccessDenied: no permission" and fields["error"] in told.lines[0]
