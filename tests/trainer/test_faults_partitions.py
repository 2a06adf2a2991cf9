"""Ranks that cannot reach each other: all end in time, and the old attempt writes nothing more."""

from __future__ import annotations

import hashlib
import signal
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer.fault_table import Trials
from tests.trainer.ranks import Hook, RunFiles, held_before, until
from tests.trainer.runs import STEPS, Trainer, assert_same
from trainer.checkpoint.contents import Progress

pytestmark = pytest.mark.long(25)

OLD_ATTEMPTS_OWN = ".writing-step-*-attempt-00000001"


def contents_of(files: RunFiles) -> dict[Path, bytes]:
    return {p: p.read_bytes() for p in files.path.rglob("*") if p.is_file()}


def test_cut_off_from_each_other_all_ranks_end_and_the_old_attempt_is_fenced_out(
    trainer: Trainer, control: RunFiles, trials: Trials
) -> None:
    """A rank that is stopped answers nobody, as one that nobody can reach; then it comes back."""
    for number in trials.numbers("partition: a rank reaches nobody, and comes back", 1, 50):
        run, files = f"run{number}", trainer.files(f"run{number}")
        step, lost = trials.chance.randrange(1, STEPS - 6), trials.chance.randrange(2)
        acted = trainer.root / f"{run}.acted"
        # Long enough for ranks that only wait for a processor, or for the test.
        settings = "collective_timeout_s=6"
        old = trainer.start(run, settings, hook=held_before(STEPS - 1, acted))
        files.until_step(step)
        old.signal(signal.SIGSTOP, lost)
        acted.touch()
        until(lambda o=old, r=1 - lost: o.all_ended() or r in o.codes, "the other to end")  # type: ignore[misc]
        assert old.codes[1 - lost] == 1, old.output()
        stopped = files.last_step()
        assert trainer.run(run) == [0, 0]
        trials.lost(stopped - files.events("started")[-1]["step"])
        before = contents_of(files)
        old.signal(signal.SIGCONT, lost)
        assert 0 not in old.wait() and 75 not in old.codes.values(), old.output()
        after = contents_of(files)
        changed = {p for p in before.keys() | after.keys() if before.get(p) != after.get(p)}
        # A stopped writer goes on in the folder of its own attempt, which nobody reads or commits.
        changed = {p for p in changed if not fnmatch(p.parent.name, OLD_ATTEMPTS_OWN)}
        assert changed <= {files.path / "events.jsonl"}
        assert_same(files, control)
    trials.passed = True


def noting_tensors(file: Path) -> Hook:
    """Have the leader note `step hash` of all tensors, whole, after each load and at each save."""

    def hook(rank: int) -> None:
        from trainer.checkpoint import contents
        from trainer.checkpointing import Checkpointer

        def note(saver: Checkpointer, step: int) -> None:
            tensors = contents.tensors(saver.model, saver.optimizer)
            digest = hashlib.sha256()
            for group in sorted(tensors):
                for name in sorted(tensors[group]):
                    digest.update(name.encode() + whole(tensors[group][name]))
            if rank == 0:
                with file.open("a") as stream:
                    stream.write(f"{step} {digest.hexdigest()}\n")

        plain_load, plain_save = Checkpointer.load, Checkpointer.save

        def load(saver: Checkpointer, wanted: Progress) -> Progress | None:
            progress = plain_load(saver, wanted)
            note(saver, progress.step if progress else 0)
            return progress

        def save(saver: Checkpointer, progress: Progress, *rest: Any) -> None:
            note(saver, progress.step)
            plain_save(saver, progress, *rest)

        patch = pytest.MonkeyPatch()
        patch.setattr(Checkpointer, "load", load)
        patch.setattr(Checkpointer, "save", save)

    return hook


def whole(tensor: torch.Tensor) -> bytes:
    """A tensor's bytes; all ranks ask when each has a part."""
    found = tensor.detach()
    if hasattr(found, "full_tensor"):
        found = found.full_tensor()
    return bytes(found.contiguous().cpu().view(-1).view(torch.uint8).numpy())


@pytest.mark.parametrize("kind", ["DDP", "FSDP2"])
def test_saved_by_two_loaded_by_one_and_by_four_every_tensor_has_the_same_bytes(
    kind: str, trainer: Trainer, control: RunFiles, trials: Trials
) -> None:
    for number in trials.numbers(f"world size 2, 1, 4 ({kind})", 1, 5):
        run, noted = f"run{number}", trainer.root / f"run{number}.hashes"
        files, hook = trainer.files(run), noting_tensors(noted)
        for world in (2, 1, 4):
            settings = () if kind == "DDP" else (f"parallel.shard={world}",)
            goal = files.last_step() + trials.chance.randrange(2, 5)
            ranks = trainer.stop(run, goal, *settings, world=world, hook=hook)
            assert ranks.wait() == [75] * world, ranks.output()
        assert trainer.run(run, hook=hook) == [0, 0]
        lines = [line.split() for line in noted.read_text().splitlines()]
        by_step = {step: {h for s, h in lines if s == step} for step, _ in lines}
        assert all(len(hashes) == 1 for hashes in by_step.values()), by_step
        loaded = [str(e["from_step"]) for e in files.events("resumed")]
        assert len(loaded) == 3 and all(len([s for s, _ in lines if s == n]) == 2 for n in loaded)
        # Only the order of sums differs.
        assert files.losses() == pytest.approx(control.losses(), rel=1e-4)
        trials.lost(0)
    trials.passed = True
