"""The same run, however its model is divided over the ranks."""

from __future__ import annotations

import signal

import pytest

from tests.trainer.ranks import RunFiles, until
from tests.trainer.runs import Trainer, assert_same

SHORT = (
    "steps=6",
    "model.heads=4",
    "model.kv_heads=2",
    "evaluation.every_steps=3",
    "evaluation.samples=7",
    "checkpoint.every_steps=4",
)


def divided(**ranks: int) -> tuple[str, ...]:
    """Assignments for ranks per dimension."""
    return (*SHORT, *(f"parallel.{name}={size}" for name, size in ranks.items()))


@pytest.fixture(scope="module")
def whole(make_trainer):  # type: ignore[no-untyped-def]
    """The run on one rank that has all of the model."""
    trainer = make_trainer()
    ranks = trainer.start("whole", *SHORT, world=1)
    assert ranks.wait() == [0], ranks.said()
    return trainer.files("whole")


LAYOUTS = {
    "FSDP2 over 2": (2, {"shard": 2}),
    "tensor 2": (2, {"tensor": 2}),
    "pipeline 2": (2, {"pipeline": 2}),
    "HSDP 2 x 2": (4, {"shard": 2}),
    "FSDP2 2 x tensor 2": (4, {"shard": 2, "tensor": 2}),
    "pipeline 2 x FSDP2 2": (4, {"pipeline": 2, "shard": 2}),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_divided_model_learns_the_same_and_resumes_bit_identically(
    trainer: Trainer, whole: RunFiles, layout: str
) -> None:
    world, ranks = LAYOUTS[layout]
    settings = divided(**ranks)
    started = trainer.start("whole", *settings, world=world)
    assert started.wait() == [0] * world, started.said()
    files = trainer.files("whole")
    assert files.losses() == pytest.approx(whole.losses(), rel=1e-5)
    assert files.evaluations() == pytest.approx(whole.evaluations(), rel=1e-5)
    norms = [[line["grad_norm"] for line in run.metrics()] for run in (files, whole)]
    assert norms[0] == pytest.approx(norms[1], rel=1e-4)
    cut = trainer.files("cut")
    stopped = trainer.start("cut", *settings, world=world)
    until(lambda: cut.last_step() >= 2, "step 2")
    stopped.signal(signal.SIGTERM, 0)
    assert stopped.wait() == [75] * world, stopped.said()
    again = trainer.start("cut", *settings, world=world)
    assert again.wait() == [0] * world, again.said()
    assert cut.events("resumed")
    assert_same(cut, files)
