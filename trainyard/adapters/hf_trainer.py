"""Checkpoints of the Hugging Face Trainer (and of trl's trainers, which derive from it).

    trainer = Trainer(..., callbacks=[hf_trainer.NoticeCallback()])
    trainer.train(resume_from_checkpoint=hf_trainer.latest())

The Trainer writes `checkpoint-STEP` into its `output_dir`; the callback publishes each as a checkpoint of the run
(hard links where both are on one file system, so keep `output_dir` next to it and `save_total_limit=1`).

`save_async` cannot take the place of these saves, since the Trainer resumes from a folder of its own.
So they are synchronous; with `dcp`, Accelerate or `elastic_trainer` they are written in the background.

Exact: parameters, adapters (peft), optimizer, scheduler, the Trainer's state, random generators per rank, and the
position in a data set of fixed order, which the Trainer skips to (`ignore_data_skip=False`, its default). Not
exact: `loss` in metrics is the mean since the Trainer's last log (`logging_steps=1`: of that step); streaming data
sets restart unless they have a state; a changed world size changes the order of samples. The framework reads its
files with torch.load: resume only from the checkpoint folder of the run.

A training that had ended, by its steps or early, is not continued: `train` loads what it had saved and returns.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch.distributed as dist
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

import trainyard
from trainyard.adapters import agreement

_STATE: Final = "trainer_state.json"
"""File of a checkpoint with the Trainer's state."""


class _Resume:
    args: TrainingArguments | None = None
    """Of the Trainer, once there is one."""
    ended: tuple[int, int] | None = None
    """The step at which training had ended, and the one with which the Trainer finds no epoch left."""
    folder: tempfile.TemporaryDirectory[str] | None = None


def latest() -> str | None:
    """Return the folder for `resume_from_checkpoint`; None starts from the beginning.

    The Trainer itself would train a step more than `max_steps`, from a checkpoint within an epoch.
    """
    found = trainyard.checkpoints.latest()
    if found is None:
        return None
    file = found.path / _STATE
    state = json.loads(file.read_text()) if file.exists() else {}
    if not _has_ended(state, _Resume.args):
        return str(found.path)
    beyond = _step_beyond_epochs(state)
    _Resume.ended = (state["global_step"], beyond)
    _Resume.folder = tempfile.TemporaryDirectory(prefix="trainyard-", dir=_scratch())
    folder = Path(_Resume.folder.name)
    for one in found.path.iterdir():
        if one.name != _STATE:
            (folder / one.name).symlink_to(one.absolute())
    (folder / _STATE).write_text(json.dumps(state | {"global_step": beyond}))
    return str(folder)


def _scratch() -> Path:
    trainyard.run.scratch.mkdir(parents=True, exist_ok=True)
    return trainyard.run.scratch


def _has_ended(state: Mapping[str, Any], args: TrainingArguments | None) -> bool:
    """Return whether no step is left: by the arguments, which may have changed outside a run, or stopped early."""
    step, most = state.get("global_step", 0), state.get("max_steps", 0)
    control = state.get("stateful_callbacks", {}).get("TrainerControl", {}).get("args", {})
    if control.get("should_training_stop") and step < most:
        return trainyard.run.in_run
    if args is None:
        return bool(0 < most <= step)
    if args.max_steps > 0:
        return bool(step >= args.max_steps)
    return bool((state.get("epoch") or 0) >= args.num_train_epochs)


def _step_beyond_epochs(state: Mapping[str, Any]) -> int:
    epoch, most = state.get("epoch") or 0, max(1, state.get("max_steps", 1))
    in_epoch = math.ceil(state["global_step"] / epoch) + 1 if epoch else most
    epochs = max(1, math.ceil(_Resume.args.num_train_epochs) if _Resume.args else 1)
    return int(max(epochs, state.get("num_train_epochs", 1)) * max(in_epoch, most))


class NoticeCallback(TrainerCallback):  # type: ignore[misc]
    """Publishes what the Trainer saves; after a notice saves and ends with exit code 75."""

    def __init__(self) -> None:
        self._notice = False

    def on_init_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Note how long to train."""
        _Resume.args = args

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Ask the Trainer to save once any rank has received a notice."""
        self._notice = agreement.notice_agreed()
        if self._notice and agreement.too_late_to_save():
            trainyard.exit_preempted()
        control.should_save = control.should_save or self._notice

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Publish the Trainer's folder; end if this save is due to a notice."""
        step = state.global_step
        written = Path(args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{step}"
        agreement.save(step, lambda folder: _link_files(written, folder, args.local_process_index))
        if self._notice and step < state.max_steps:
            trainyard.exit_preempted()

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Say that training is done, also where it stopped early."""
        if _Resume.ended is not None:
            step, beyond = _Resume.ended
            _Resume.ended = None
            state.global_step = step
            for entry in state.log_history:
                if entry["step"] == beyond:
                    entry["step"] = step
        trainyard.finished()

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **_: Any,
    ) -> None:
        """Report what the Trainer logs; the summary at the end has no `loss`."""
        if logs and "loss" in logs:
            rate, norm = logs.get("learning_rate"), logs.get("grad_norm")
            trainyard.log(step=state.global_step, loss=logs["loss"], lr=rate, grad_norm=norm)


def _link_files(written: Path, folder: Path, local_rank: int) -> None:
    """Put the files of all ranks into `folder`: one rank per node links what its node sees."""
    if dist.is_available() and dist.is_initialized():
        dist.barrier()  # other ranks may still be writing their random states
    if local_rank != 0 or not written.exists():
        return
    for source in sorted(path for path in written.rglob("*") if path.is_file()):
        target = folder / source.relative_to(written)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source, target)
        except FileExistsError:
            pass  # a node that shares `output_dir` was first
        except OSError:
            shutil.copyfile(source, target)  # another file system
