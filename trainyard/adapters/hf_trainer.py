"""Checkpoints of the Hugging Face Trainer (and of trl's trainers, which derive from it).

    trainer = Trainer(..., callbacks=[hf_trainer.NoticeCallback()])
    trainer.train(resume_from_checkpoint=hf_trainer.latest())

The Trainer writes `checkpoint-STEP` into its `output_dir`; the callback publishes each as a checkpoint of the run
(hard links where both are on one file system, so keep `output_dir` next to it and `save_total_limit=1`).

Exact: parameters, adapters (peft), optimizer, scheduler, the Trainer's state, random generators per rank, and the
position in a data set of fixed order, which the Trainer skips to (`ignore_data_skip=False`, its default). Not
exact: `loss` in metrics is the mean since the Trainer's last log (`logging_steps=1`: of that step); streaming data
sets restart unless they have a state; a changed world size changes the order of samples. The framework reads its
files with torch.load: resume only from the checkpoint folder of the run.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import torch.distributed as dist
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

import trainyard
from trainyard.adapters import agreement


def latest() -> str | None:
    """Return the folder for `resume_from_checkpoint`; None starts from the beginning."""
    found = trainyard.checkpoints.latest()
    return str(found.path) if found else None


class NoticeCallback(TrainerCallback):  # type: ignore[misc]
    """Publishes what the Trainer saves; after a notice saves and ends with exit code 75."""

    def __init__(self) -> None:
        self._notice = False

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
