"""Runs in float16: all ranks skip the same steps, and a resumed run continues with the same loss scale."""

from __future__ import annotations

import pytest

from tests.trainer.elastic_groups import start_run
from tests.trainer.ranks import RunFiles
from tests.trainer.runs import Trainer, assert_same

FLOAT16 = "precision.compute=float16"


def large_scale(_: int) -> None:
    """A hook: the first scale is too large, and later ones grow every three steps, until gradients overflow."""
    from trainer import loss_scale

    patch = pytest.MonkeyPatch()
    patch.setattr(loss_scale, "FIRST", 2.0**26)
    patch.setattr(loss_scale, "GROWTH_STEPS", 3)


def skipped(files: RunFiles) -> dict[int, float]:
    """The steps without an update, and the loss scale after each."""
    return {event["step"]: event["loss_scale"] for event in files.events("update_skipped")}


@pytest.mark.parametrize(
    "settings",
    [(), ("parallel.shard=2",), ("parallel.pipeline=2",)],
    ids=["replicas", "shards", "stages"],
)
def test_a_run_with_overflows_resumes_with_the_same_bits(
    trainer: Trainer, control: RunFiles, settings: tuple[str, ...]
) -> None:
    settings = (FLOAT16, *settings)
    assert trainer.run("plain", *settings) == [0, 0]
    plain = trainer.files("plain")
    alike = min(skipped(plain), default=24)
    assert alike > 5
    assert plain.losses()[:alike] == pytest.approx(control.losses()[:alike], rel=0.01)
    whole = trainer.start("whole", *settings, hook=large_scale)
    assert whole.wait() == [0, 0], whole.output()
    files, cut = trainer.files("whole"), trainer.files("cut")
    stopped = trainer.stop("cut", 11, *settings, hook=large_scale)
    assert set(stopped.codes.values()) == {75}, stopped.output()
    again = trainer.start("cut", *settings, hook=large_scale)
    assert again.wait() == [0, 0], again.output()
    assert_same(cut, files)
    assert skipped(cut) == skipped(files)
    (resumed,) = cut.events("resumed")
    assert min(skipped(cut)) < resumed["from_step"] < max(skipped(cut))
    for line in files.metrics():
        assert (line["grad_norm"] is None) == (line["step"] in skipped(files))


def test_groups_of_an_elastic_run_skip_the_same_steps(trainer: Trainer) -> None:
    patient = "groups.silent_after_s=120"
    runs = [
        start_run(trainer, f"of {n}", n, FLOAT16, patient, minimum=n, hook=large_scale)
        for n in (1, 2)
    ]
    for run in runs:
        assert set(run.wait()) == {0}, run.output()
    assert_same(runs[1].files, runs[0].files)
    assert skipped(runs[1].files) == skipped(runs[0].files) != {}


def test_gradients_that_overflow_at_every_scale_end_the_run(trainer: Trainer) -> None:
    def diverged(_: int) -> None:
        import torch

        from trainer.parallel.build import Network

        pytest.MonkeyPatch().setattr(Network, "clip", lambda *_: torch.tensor(torch.inf))

    ranks = trainer.start("run", FLOAT16, hook=diverged)
    assert ranks.wait() == [1, 1]
    assert "step 17: gradient norm is inf; lower" in ranks.output()
    assert list(skipped(trainer.files("run")).values()) == [2.0**n for n in range(15, -1, -1)]
