"""`checkpoint.export`: a run ends with its model as transformers loads it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.trainer.runs import Trainer
from trainer.config_errors import ConfigError
from trainer.publication import EXPORT_DIR, check_export, write_export
from trainyard.notice import Notice

pytestmark = pytest.mark.long(12)

EXPORTED = {
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
}


def test_a_run_ends_with_the_model_that_the_command_exports(
    trainer: Trainer, tmp_path: Path
) -> None:
    run = trainer.files("run").path
    (run / ".export-unfinished").mkdir(parents=True)  # of an attempt that was killed
    (run / ".export-unfinished" / "model.safetensors").write_bytes(b"torn")
    assert trainer.run("run", "steps=6", "checkpoint.export=true") == [0, 0]
    written = {one.name: one.read_bytes() for one in (run / EXPORT_DIR).iterdir()}
    assert written.keys() == EXPORTED
    assert not (run / ".export-unfinished").exists()
    words = f"-m trainer.checkpoint export {run} {tmp_path / 'out'}".split()
    subprocess.run([sys.executable, *words], check=True)
    assert {one.name: one.read_bytes() for one in (tmp_path / "out").iterdir()} == written
    assert '"exported"' in (run / "events.jsonl").read_text()


def test_a_run_that_is_not_asked_to_writes_no_model(trainer: Trainer) -> None:
    assert trainer.run("run", "steps=6") == [0, 0]
    assert not (trainer.files("run").path / EXPORT_DIR).exists()
    assert trainer.run("run", "steps=6", "checkpoint.export=true") == [0, 0]
    before = (trainer.files("run").path / EXPORT_DIR / "model.safetensors").stat().st_mtime_ns
    assert trainer.run("run", "steps=6", "checkpoint.export=true") == [0, 0]
    after = (trainer.files("run").path / EXPORT_DIR / "model.safetensors").stat().st_mtime_ns
    assert after == before


def test_a_notice_ends_the_export_as_preempted(tmp_path: Path) -> None:
    notice = Notice(tmp_path)
    notice._note("SIGTERM")
    run: Any = SimpleNamespace(notice=notice)

    def leave(code: int) -> None:
        raise SystemExit(code)

    with pytest.raises(SystemExit) as caught:
        write_export(run, tmp_path, leave)
    assert caught.value.code == 75
    assert not (tmp_path / EXPORT_DIR).exists()


def test_a_model_that_transformers_would_read_otherwise_is_refused_before_the_first_step() -> None:
    tokens = {"kind": "tokenizer", "boundary": 0, "sha256": "0" * 64, "boundary_token": "</s>"}
    with pytest.raises(ConfigError, match=r"checkpoint\.export: the model cannot be exported"):
        check_export({"config.json": b'{"model_type": "llama"}'}, tokens)
    with pytest.raises(ConfigError, match="not one of transformers"):
        check_export({}, tokens)
