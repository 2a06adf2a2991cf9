"""The Hugging Face adapter: what it lets the Trainer resume from."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import trainyard
from trainyard.adapters import hf_trainer

STATE = {"global_step": 15, "max_steps": 15, "epoch": 1.5, "num_train_epochs": 2}
STOPPED = {"stateful_callbacks": {"TrainerControl": {"args": {"should_training_stop": True}}}}


@pytest.fixture
def checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The newest checkpoint of a run."""
    monkeypatch.setenv("TRAINYARD_RUN_ID", "sft-v1-0a1b2c3d")
    monkeypatch.setenv("TRAINYARD_SCRATCH", str(tmp_path / "scratch"))
    folder = tmp_path / "step-00000015"
    folder.mkdir()
    found = trainyard.checkpoints.Checkpoint(15, folder, {})
    monkeypatch.setattr(trainyard.checkpoints, "latest", lambda: found)
    yield folder
    hf_trainer._Resume.args = hf_trainer._Resume.ended = hf_trainer._Resume.folder = None


def resumed(
    checkpoint: Path, state: dict[str, Any], max_steps: int = 15, epochs: float = 3.0
) -> tuple[Path, int]:
    """The folder that a Trainer with these arguments resumes from, and the step in it."""
    (checkpoint / "trainer_state.json").write_text(json.dumps(STATE | state))
    (checkpoint / "model.bin").write_text("weights")
    arguments: Any = SimpleNamespace(max_steps=max_steps, num_train_epochs=epochs)
    hf_trainer.NoticeCallback().on_init_end(arguments, None, None)
    found = hf_trainer.latest()
    assert found is not None
    assert (Path(found) / "model.bin").read_text() == "weights"
    return Path(found), json.loads((Path(found) / "trainer_state.json").read_text())["global_step"]


@pytest.mark.parametrize(
    ("state", "max_steps", "epochs"),
    [
        ({}, 15, 3.0),
        ({"global_step": 16}, 15, 3.0),
        ({}, -1, 1.5),
        ({"max_steps": 40, "num_train_epochs": 4} | STOPPED, 40, 3.0),
        ({"epoch": 0, "num_train_epochs": 2**63 - 1}, 15, 3.0),
    ],
)
def test_a_training_that_has_ended_has_no_epoch_left(
    checkpoint: Path, state: dict[str, Any], max_steps: int, epochs: float
) -> None:
    folder, step = resumed(checkpoint, state, max_steps, epochs)
    assert folder != checkpoint, "what is published stays as it is"
    values = STATE | state
    steps = values["max_steps"] if not values["epoch"] else values["global_step"] / values["epoch"]
    assert step // math.ceil(steps) >= values["num_train_epochs"]


@pytest.mark.parametrize(
    ("state", "max_steps", "epochs"),
    [({"global_step": 14}, 15, 3.0), ({}, 16, 3.0), ({}, -1, 2.0)],
)
def test_a_training_with_steps_left_resumes_from_its_checkpoint(
    checkpoint: Path, state: dict[str, Any], max_steps: int, epochs: float
) -> None:
    folder, step = resumed(checkpoint, state, max_steps, epochs)
    assert (folder, step) == (checkpoint, (STATE | state)["global_step"])


def test_at_its_end_the_step_is_right_again(checkpoint: Path) -> None:
    _, beyond = resumed(checkpoint, {})
    state: Any = SimpleNamespace(global_step=beyond, log_history=[{"step": 7}, {"step": beyond}])
    hf_trainer.NoticeCallback().on_train_end(None, state, None)
    assert state.global_step == 15
    assert state.log_history == [{"step": 7}, {"step": 15}]
