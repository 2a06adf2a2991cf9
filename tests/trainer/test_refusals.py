"""What cannot work is refused with 78 and one line per mistake, before the first step."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.trainer.ranks import start
from tests.trainer.runs import Trainer
from trainyard.store.posix import PosixStore

pytestmark = pytest.mark.long(12)


def refused(trainer: Trainer, run: str, *assignments: str, world: int = 2) -> list[str]:
    """What the refused run said: one line per mistake."""
    ranks = trainer.start(run, *assignments, world=world)
    assert ranks.wait() == [78] * world, ranks.output()
    assert "Traceback" not in ranks.output()
    return ranks.output().splitlines()


def test_a_missing_dataset_is_reported_with_the_prepare_command(
    trainer: Trainer, tmp_path: Path
) -> None:
    (line,) = refused(trainer, "run", f"data.path={tmp_path}/nothing")
    assert "python -m trainer.prepare" in line


@pytest.mark.parametrize("damage", ["missing", "corrupt"])
def test_a_bad_shard_is_named_before_the_first_step(
    damage: str, trainer: Trainer, dataset: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(dataset, tmp_path / "copy")
    (shard, *_) = sorted(copy.glob("*/shard-train-*.bin"))
    content = bytearray(shard.read_bytes())
    shard.unlink()
    if damage == "corrupt":
        content[7] ^= 1
        shard.write_bytes(content)
    (line,) = refused(trainer, "run", f"data.path={copy}")
    assert str(shard) in line and damage in line


def test_a_checkpoint_of_another_model_is_not_continued(trainer: Trainer) -> None:
    assert trainer.run("run", "steps=6") == [0, 0]
    lines = refused(trainer, "run", "steps=6", "model.layers=3", "seed=5")
    assert [line.split(":")[1].strip() for line in lines] == ["seed", "model.layers"]
    assert "the checkpoint has 2, now 3; use another --run-dir" in lines[1]
    assert PosixStore(trainer.files("run").path / "checkpoints").steps() == [5, 6]


def test_a_finished_run_started_again_is_done_at_once_and_a_longer_one_goes_on(
    trainer: Trainer,
) -> None:
    assert trainer.run("run", "steps=6") == [0, 0]
    before = trainer.files("run").losses()
    assert trainer.run("run", "steps=6") == [0, 0]
    assert trainer.files("run").losses() == before
    assert trainer.run("run", "steps=9") == [0, 0]
    assert len(trainer.files("run").losses()) == 9


def test_a_resumed_run_stays_with_the_dataset_version_that_it_began_with(
    trainer: Trainer, dataset: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(dataset, tmp_path / "copy")
    first = (copy / "latest").read_text().strip()
    assert trainer.run("run", f"data.path={copy}", "steps=6") == [0, 0]
    (copy / "latest").write_text("0123456789abcdef\n")
    assert trainer.run("run", f"data.path={copy}", "steps=9") == [0, 0]
    versions = {e["dataset_version"] for e in trainer.files("run").events("started")}
    assert versions == {first}


@pytest.mark.parametrize("arguments", [[], ["--config", "x"], ["--nonsense"]])
def test_a_wrong_command_line_is_a_configuration_mistake(
    arguments: list[str], make_trainer: Callable[[], Trainer]
) -> None:
    trainer = make_trainer()
    ranks = start(arguments, 1, trainer.root / "log")
    assert ranks.wait() == [78]
    assert len(ranks.output().splitlines()) == 1
