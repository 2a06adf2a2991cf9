"""A run that mixes staged datasets resumes bit-identically."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.ranks import RunFiles, held_before, until
from tests.trainer.runs import STEPS, Trainer, assert_same
from trainyard.store.posix import PosixStore


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A second dataset: digits instead of words."""
    root = tmp_path_factory.mktemp("other")
    (root / "texts").mkdir()
    generator = random.Random(8)
    for number in range(40):
        (root / "texts" / f"{number}.txt").write_text(
            "".join(generator.choices("0123456789", k=90))
        )
    command = [sys.executable, "-m", "trainer.prepare", "--source", str(root / "texts")]
    subprocess.run([*command, "--out", str(root / "made")], check=True, capture_output=True)
    return root / "made"


def mixed(other: Path, nvme: Path) -> list[str]:
    """Settings: 3 samples of the first dataset for each of the second, from a staged copy."""
    sources = json.dumps([{"path": str(other), "weight": 0.25}])
    return [
        f"data.sources={sources}",
        "data.weight=0.75",
        "data.documents=separate",
        f"data.staging={nvme}",
        "data.prefetch_steps=3",
    ]


def metadata_of(files: RunFiles) -> dict[str, Any]:
    store = PosixStore(files.path / "checkpoints")
    found: dict[str, Any] = store.manifest(store.steps()[-1]).trainer["metadata"]
    return found


@pytest.mark.long(15)
def test_a_run_over_two_staged_datasets_is_the_same_however_it_is_interrupted(
    trainer: Trainer, other: Path, tmp_path: Path
) -> None:
    source = shutil.copytree(other, tmp_path / "source")
    settings = mixed(source, tmp_path / "nvme")
    assert trainer.run("whole", *settings) == [0, 0]
    files = trainer.files("cut")
    acted = trainer.root / "acted"
    ranks = trainer.start("cut", *settings, hook=held_before(STEPS - 1, acted))
    files.until_step(9)
    # Without a checkpoint it would begin anew, with the newer version.
    until(lambda: files.events("checkpoint_commit"), "a checkpoint")
    ranks.signal(signal.SIGKILL, 1)
    acted.touch()
    ranks.wait()
    # A newer version has been prepared: the run stays with the one that it began with.
    (source / "latest").write_text("0123456789abcdef\n")
    assert trainer.run("cut", *settings) == [0, 0]
    assert_same(files, trainer.files("whole"))
    found = metadata_of(files)
    assert [source["weight"] for source in found["data"]["sources"]] == [3, 1]
    assert found["progress"]["samples"] == STEPS * 8
