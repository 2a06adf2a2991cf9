"""A disk that is really full: a small file system of its own, in namespaces that need no root."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.trainer.fault_table import Trials
from tests.trainer.ranks import Hook, RunFiles
from tests.trainer.runs import Trainer, assert_same
from trainyard.store.posix import PosixStore

pytestmark = pytest.mark.long(11)

SIZE = 4 << 20
"""Of the file system, in bytes: a run with its four checkpoints needs a fifth of that."""


@dataclass
class SmallDisk:
    """A file system that only processes with its hook see at `folder`."""

    holder: int
    """The process that keeps it."""
    folder: Path

    @property
    def seen(self) -> Path:
        """Where everybody else sees it."""
        return Path(f"/proc/{self.holder}/root{self.folder}")

    def leave_free(self, size: int) -> None:
        """Fill it up to `size` bytes."""
        (self.seen / "ballast").unlink(missing_ok=True)
        free = os.statvfs(self.seen).f_bavail * os.statvfs(self.seen).f_frsize
        (self.seen / "ballast").write_bytes(b"x" * (free - size))

    def enter(self, _: int) -> None:
        """A hook: this rank sees it."""
        here = Path.cwd()
        libc = ctypes.CDLL(None, use_errno=True)
        for kind in ("user", "mnt"):
            with open(f"/proc/{self.holder}/ns/{kind}") as namespace:
                if libc.setns(namespace.fileno(), 0):
                    raise OSError(ctypes.get_errno(), f"cannot enter its {kind} namespace")
        os.chdir(here)


@pytest.fixture
def small_disk(trainer: Trainer) -> Iterator[SmallDisk]:
    """Skip where the kernel forbids mounting one."""
    folder = trainer.root / "small"
    folder.mkdir()
    mount = f"mount -t tmpfs -o size={SIZE} none {folder} && echo ready && exec sleep infinity"
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert holder.stdout and holder.stderr
    try:
        if holder.stdout.readline() != "ready\n":
            pytest.skip(f"no file system of one's own: {holder.stderr.read().strip()}")
        yield SmallDisk(holder.pid, folder)
    finally:
        holder.kill()
        holder.communicate()


def test_on_a_full_disk_the_last_good_checkpoint_is_kept_and_the_error_logged(
    trainer: Trainer, control: RunFiles, trials: Trials, small_disk: SmallDisk
) -> None:
    hook: Hook = small_disk.enter
    for number in trials.numbers("disk full at a random moment", 2, 50):
        free = trials.chance.randrange(20_000, 700_000)
        small_disk.leave_free(free)
        ranks = trainer.start(f"small/run{number}", hook=hook)
        codes = ranks.wait()
        run = RunFiles(small_disk.seen / f"run{number}")
        store = PosixStore(run.path / "checkpoints")
        kept = store.steps()
        assert all(store.verify(step) == [] for step in kept)
        committed = [e["step"] for e in run.events("checkpoint_commit")]
        assert kept[-1:] == committed[-1:]  # none went before the next was there
        said = "No space left" in ranks.output()
        assert said or codes == [0, 0], (free, ranks.output())
        assert 75 not in codes and (not said or kept or codes != [0, 0])
        (small_disk.seen / "ballast").unlink()
        assert trainer.run(f"small/run{number}", hook=hook) == [0, 0]
        assert_same(run, control)
        shutil.rmtree(run.path)
    trials.passed = True


def test_a_run_folder_removed_under_a_run_ends_it_with_one_line(trainer: Trainer) -> None:
    files = trainer.files("run")
    ranks = trainer.start("run", "steps=100000", "checkpoint.every_steps=5")
    files.until_step(3)
    shutil.rmtree(files.path, ignore_errors=True)
    assert set(ranks.wait()) == {1}
    assert "the claim of attempt 1 is gone" in ranks.output()
    assert "Traceback" not in ranks.output()


def test_lost_metrics_and_changed_settings_are_one_line_each_at_the_resume(
    trainer: Trainer,
) -> None:
    files = trainer.files("run")
    assert trainer.run("run", "steps=10", "schedule.warmup_steps=3") == [0, 0]
    (files.path / "metrics.jsonl").unlink()
    ranks = trainer.start("run", "steps=12", "optimizer.learning_rate=0.02")
    assert ranks.wait() == [0, 0]
    assert "metrics.jsonl lacks 10 of the first 10 steps" in ranks.output()
    assert "optimizer.learning_rate: 0.01, now 0.02" in ranks.output()
    assert "steps: 10, now 12" in ranks.output()
