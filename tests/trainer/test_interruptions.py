"""A notice is acknowledged at any time, by all ranks together, and the run always ends."""

from __future__ import annotations

import gc
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.ranks import Hook, RunFiles, until
from tests.trainer.runs import STEPS, Trainer, assert_same
from trainyard.notice import Notice

pytestmark = [pytest.mark.core, pytest.mark.long(60)]


def before(module: str, name: str, call: int, rank: int, action: Callable[[], Any]) -> Hook:
    """On one rank, do `action` before the call with this number (from 1) of a function."""

    def hook(this_rank: int) -> None:
        if this_rank != rank:
            return
        import importlib

        owner: Any = importlib.import_module(module)
        *path, last = name.split(".")
        for part in path:
            owner = getattr(owner, part)
        plain, calls = getattr(owner, last), [0]

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            calls[0] += 1
            if calls[0] == call:
                action()
            return plain(*args, **kwargs)

        setattr(owner, last, wrapped)

    return hook


def request_stop() -> None:
    """Returns when the thread that reads signals has noted it: on a busy machine that takes a while."""
    [notice] = [found for found in gc.get_objects() if isinstance(found, Notice)]
    os.kill(os.getpid(), signal.SIGTERM)
    until(lambda: notice.source, "the notice is read")


MOMENTS = {
    "while the model is built": ("trainer.parallel.build", "build_network", 1, 1, 0),
    "while resuming": ("trainer.checkpointing", "Checkpointer.load", 1, 0, 0),
    "in the first forward pass": ("trainer.parallel.passes", "mean_loss", 1, 1, 1),
    # The ranks have agreed on step 5 by then, so that they stop after the next one.
    "in the optimizer's step": ("trainer.loop", "learning_rate", 5, 0, 6),
    "in an evaluation": ("trainer.evaluation", "to_device", 2, 1, 8),
    "while a checkpoint is staged": ("trainyard.tensors.random_state", "capture", 1, 1, 6),
    "while a checkpoint is written": (
        "trainyard.store.posix",
        "PosixUpload.commit",
        1,
        0,
        None,
    ),
    "in the last step": ("trainer.loop", "learning_rate", STEPS, 1, STEPS),
    "in the last evaluation": ("trainer.evaluation", "to_device", 10, 1, STEPS),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_notice_is_acknowledged_at_any_moment(
    moment: str, trainer: Trainer, control: RunFiles
) -> None:
    module, name, call, rank, stopped_at = MOMENTS[moment]
    ranks = trainer.start("run", hook=before(module, name, call, rank, request_stop))
    assert ranks.wait() == [75, 75], ranks.output()
    files = trainer.files("run")
    (stopped,) = files.events("finished")
    assert stopped["reason"] == "preempted"
    assert len(files.events("notice")) == 1
    if stopped_at is not None:
        assert stopped["step"] == stopped_at
    assert trainer.run("run") == [0, 0]
    if stopped["step"] > 0:
        assert files.events("resumed")[0]["from_step"] == stopped["step"]
    assert_same(files, control)


def test_a_notice_is_acknowledged_while_waiting_in_a_collective(
    trainer: Trainer, control: RunFiles
) -> None:
    waiting, noted = trainer.root / "leader", trainer.root / "noted"

    def come_late() -> None:  # the leader waits for this rank at the end of the sixth step
        os.kill(int(waiting.read_text()), signal.SIGTERM)
        until(noted.exists, "the leader's notice")

    late = before("trainer.loop", "agree", 7, 1, come_late)

    def hook(rank: int) -> None:
        if rank == 0:
            waiting.write_text(str(os.getpid()))
            plain = Notice._note

            def note(notice: Notice, source: str) -> None:
                plain(notice, source)
                noted.touch()

            pytest.MonkeyPatch().setattr(Notice, "_note", note)
        late(rank)

    ranks = trainer.start("run", hook=hook)
    assert ranks.wait() == [75, 75], ranks.output()
    files = trainer.files("run")
    (finished,) = files.events("finished")
    assert finished["step"] in (6, 7)  # once its flags of the sixth are given, it is the seventh
    assert trainer.run("run") == [0, 0]
    assert_same(files, control)


def test_a_notice_before_the_ranks_have_met_ends_at_once(trainer: Trainer) -> None:
    hook = before("trainer.parallel.world", "fix_numerics", 1, 1, request_stop)
    ranks = trainer.start("run", hook=hook)
    until(lambda: ranks.all_ended() or 1 in ranks.codes, "rank 1 to leave")
    assert ranks.codes[1] == 75
    ranks.signal(signal.SIGTERM, 0)
    assert ranks.wait() == [75, 75]


def test_a_notice_file_in_the_run_directory_stops_it_once(
    trainer: Trainer, control: RunFiles
) -> None:
    files = trainer.files("run")

    def put_down() -> None:
        (files.path / "notice").touch()
        time.sleep(1.05)  # the file is looked for once a second: let that second pass

    ranks = trainer.start("run", hook=before("trainer.loop", "train_step", 4, 0, put_down))
    assert ranks.wait() == [75, 75]
    (notice,) = files.events("notice")
    assert notice["source"] == str(files.path / "notice")
    assert not (files.path / "notice").exists()
    assert trainer.run("run") == [0, 0]
    assert_same(files, control)


def test_a_node_s_notice_file_stops_all_ranks_though_one_sees_it(
    trainer: Trainer, tmp_path: Path
) -> None:
    reclaimed = tmp_path / "reclaimed"
    reclaimed.touch()

    def hook(rank: int) -> None:
        if rank == 1:
            os.environ["TRAINYARD_NOTICE_FILE"] = str(reclaimed)

    assert trainer.run("run", hook=hook) == [75, 75]
    (notice,) = trainer.files("run").events("notice")
    assert notice["source"] == "file on another rank"


@pytest.mark.long(33)
def test_a_save_that_misses_the_deadline_leaves_the_one_before_intact(
    trainer: Trainer, control: RunFiles
) -> None:
    def hang_and_stop() -> None:
        request_stop()
        time.sleep(3600)

    hook = before("trainyard.store.posix", "PosixUpload.commit", 2, 0, hang_and_stop)
    ranks = trainer.start("run", "checkpoint.deadline_s=1.0", hook=hook)
    assert ranks.wait() == [75, 75], ranks.output()
    files = trainer.files("run")
    assert "not written within" in files.events("checkpoint_failed")[-1]["error"]
    assert sorted(p.name for p in (files.path / "checkpoints").glob("step-*")) == ["step-00000005"]
    assert trainer.run("run") == [0, 0]
    assert files.events("resumed")[0]["from_step"] == 5
    assert_same(files, control)


@pytest.mark.long(32)
def test_a_missed_deadline_without_any_checkpoint_is_a_failure(trainer: Trainer) -> None:
    def hang_and_stop() -> None:
        request_stop()
        time.sleep(3600)

    hook = before("trainyard.store.posix", "PosixUpload.commit", 1, 0, hang_and_stop)
    assert trainer.run("run", "checkpoint.deadline_s=1.0", hook=hook) == [1, 1]
    assert trainer.files("run").events("finished")[-1]["reason"] == "preempted, not saved"


def test_a_rank_that_hangs_ends_the_others_with_a_cause(trainer: Trainer) -> None:
    def freeze() -> None:
        os.kill(os.getpid(), signal.SIGSTOP)

    hook = before("trainer.loop", "train_step", 4, 1, freeze)
    ranks = trainer.start("run", "collective_timeout_s=2", hook=hook)
    until(lambda: ranks.all_ended() or 0 in ranks.codes, "rank 0 to give up")
    assert ranks.codes[0] == 1
    assert "another rank is gone or hangs" in ranks.output()
    assert "Traceback" not in ranks.output()
    assert trainer.files("run").events("failed")


def test_back_pressure_is_logged_and_keeps_results_bit_identical(
    trainer: Trainer, control: RunFiles
) -> None:
    slow = before("trainyard.store.posix", "PosixUpload.commit", 1, 0, lambda: time.sleep(4))
    assert trainer.run("run", hook=slow) == [0, 0]
    waited, *_ = trainer.files("run").events("checkpoint_waited")
    assert waited["step"] == 10 and waited["seconds"] > 0
    assert_same(trainer.files("run"), control)


def test_a_late_rank_still_receives_the_save_outcome(trainer: Trainer) -> None:
    told = before("trainer.loop", "learning_rate", 6, 0, request_stop)
    world = ("trainyard.tensors.rank_save", "SaveCoordinator.receive")
    late = before(*world, 1, 1, lambda: time.sleep(3))

    def both(rank: int) -> None:
        told(rank)
        late(rank)

    ranks = trainer.start("run", hook=both)
    assert ranks.wait() == [75, 75], ranks.output()
