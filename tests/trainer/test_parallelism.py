"""The same run, however its model is divided over the ranks."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from tests.trainer.ranks import RunFiles, until
from tests.trainer.runs import Trainer, assert_same

pytestmark = pytest.mark.long(98)

SHORT = (
    "steps=5",
    "model.heads=4",
    "model.kv_heads=2",
    "evaluation.every_steps=4",
    "evaluation.samples=5",
    "checkpoint.every_steps=3",
)


def divided(**ranks: int) -> tuple[str, ...]:
    """Assignments for ranks per dimension."""
    return (*SHORT, *(f"parallel.{name}={size}" for name, size in ranks.items()))


@pytest.fixture(scope="module")
def whole(make_trainer: Callable[[], Trainer]) -> RunFiles:
    """The run on one rank that has all of the model."""
    trainer = make_trainer()
    ranks = trainer.start("whole", *SHORT, world=1)
    assert ranks.wait() == [0], ranks.output()
    return trainer.files("whole")


def stopping_at(step: int) -> Callable[[int], None]:
    """A hook: the first rank is told to stop right after a step."""

    def hook(rank: int) -> None:
        from trainer import loop

        plain = loop.train_step

        def stopped(run: loop.Run) -> loop.StepAgreement:
            if rank == 0 and run.progress.step == step - 1:
                os.kill(os.getpid(), signal.SIGTERM)
                until(run.notice.is_set, "the notice")
            return plain(run)

        loop.train_step = stopped

    return hook


def only_shards_after_evaluation(_: int) -> None:
    """A hook: what an evaluation gathered must be given up before anything else happens."""
    from torch.distributed.tensor import DTensor

    from trainer import loop

    plain = loop.evaluate

    def checked(run: loop.Run) -> str | None:
        notice = plain(run)
        assert all(isinstance(p, DTensor) for p in run.network.module.parameters())
        return notice

    loop.evaluate = checked


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
    started = trainer.start("whole", *settings, world=world, hook=only_shards_after_evaluation)
    assert started.wait() == [0] * world, started.output()
    files = trainer.files("whole")
    assert files.losses() == pytest.approx(whole.losses(), rel=1e-5)
    assert files.evaluations() == pytest.approx(whole.evaluations(), rel=1e-5)
    norms = [[line["grad_norm"] for line in run.metrics()] for run in (files, whole)]
    assert norms[0] == pytest.approx(norms[1], rel=1e-4)
    cut = trainer.files("cut")
    stopped = trainer.start("cut", *settings, world=world, hook=stopping_at(2))
    assert stopped.wait() == [75] * world, stopped.output()
    again = trainer.start("cut", *settings, world=world)
    assert again.wait() == [0] * world, again.output()
    assert [e["from_step"] for e in cut.events("resumed")] == [2]
    assert_same(cut, files)


MORE = {
    "gpipe": (2, ("parallel.pipeline=2", "parallel.schedule=gpipe"), 1e-5),
    "all four dimensions": (
        8,
        ("parallel.pipeline=2", "parallel.shard=2", "parallel.tensor=2"),
        1e-5,
    ),
    "replicas of pipelines": (4, ("parallel.pipeline=2",), 1e-5),
    "bfloat16": (2, ("parallel.shard=2", "precision={compute: bfloat16, reduce: bfloat16}"), 1e-2),
    "recomputed": (2, ("parallel.shard=2", "blocks.recompute=true"), 1e-5),
    "compiled": (2, ("parallel.shard=2", "blocks.compile=true"), 1e-4),
}


def test_other_divisions_and_ways_to_compute_agree_too(
    trainer: Trainer, whole: RunFiles, full: bool
) -> None:
    for name in MORE if full else ["gpipe"]:
        world, settings, tolerance = MORE[name]
        started = trainer.start(f"{name}, whole", *SHORT, *settings, world=world)
        assert started.wait() == [0] * world, started.output()
        files, cut = trainer.files(f"{name}, whole"), trainer.files(f"{name}, cut")
        assert files.losses() == pytest.approx(whole.losses(), rel=tolerance)
        for hook, code in ((stopping_at(2), 75), (None, 0)):
            ranks = trainer.start(f"{name}, cut", *SHORT, *settings, world=world, hook=hook)
            assert ranks.wait() == [code] * world, ranks.output()
        assert_same(cut, files)


def model_folder(root: Path) -> Path:
    """A model with weights that no seed draws."""
    from trainer.config.settings import ModelConfig
    from trainer.parallel.architecture import build_on_meta, model_settings

    shape = ModelConfig(hidden_size=16, intermediate_size=32, layers=2, heads=2, kv_heads=1)
    settings = model_settings(shape, 16)
    root.mkdir()
    (root / "config.json").write_text(json.dumps(settings.to_dict()))
    generator = torch.Generator().manual_seed(1)
    parameters = build_on_meta(settings).named_parameters()
    weights = {name: torch.randn(p.shape, generator=generator) / 9 for name, p in parameters}
    save_file(weights, root / "model.safetensors")
    return root


def test_a_stored_model_begins_alike_and_goes_on_without_its_folder_being_read(
    trainer: Trainer,
) -> None:
    folder = model_folder(trainer.root / "model")
    settings = ("steps=6", f"model={{path: {folder}, weights: safetensors}}")
    alone = trainer.start("alone", *settings, world=1)
    assert alone.wait() == [0], alone.output()
    sharded = (*settings, "parallel.shard=2")
    cut = trainer.start("cut", *sharded, hook=stopping_at(2))
    assert cut.wait() == [75, 75], cut.output()
    (folder / "model.safetensors").unlink()
    moved = folder.rename(trainer.root / "moved")
    elsewhere = ("steps=6", f"model={{path: {moved}, weights: safetensors}}", "parallel.shard=2")
    again = trainer.start("cut", *elsewhere)
    assert again.wait() == [0, 0], again.output()
    assert trainer.files("cut").losses() == pytest.approx(trainer.files("alone").losses(), rel=1e-5)


def test_experts_that_are_stored_one_by_one_begin_alike_on_one_rank_and_on_two(
    trainer: Trainer,
) -> None:
    import transformers

    folder = trainer.root / "experts"
    torch.manual_seed(1)
    shape = transformers.MixtralConfig(
        vocab_size=260,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        num_local_experts=3,
        max_position_embeddings=64,
    )
    transformers.MixtralForCausalLM(shape).save_pretrained(folder)
    settings = ("steps=6", f"model={{path: {folder}, weights: safetensors}}")
    for name, world, more in (("one", 1, ()), ("two", 2, ("parallel.shard=2",))):
        ranks = trainer.start(name, *settings, *more, world=world)
        assert ranks.wait() == [0] * world, ranks.output()
    losses = trainer.files("one").losses()
    assert trainer.files("two").losses() == pytest.approx(losses, rel=1e-5)


def noting_tensors(file: Path) -> Callable[[int], None]:
    """A hook: the leader notes a hash of the whole state at every save and every load."""

    def hook(rank: int) -> None:
        from torch.distributed.tensor import DTensor

        from trainer.checkpointing import Checkpointer

        def note(of: Checkpointer) -> None:
            digest = hashlib.sha256()
            for group in of.tensors().values():
                for name, tensor in sorted(group.items()):
                    whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
                    digest.update(name.encode() + whole.detach().numpy().tobytes())
            if rank == 0:
                with file.open("a") as stream:
                    stream.write(digest.hexdigest() + "\n")

        save, load = Checkpointer.save, Checkpointer.load

        def noted_save(of: Checkpointer, *arguments: Any) -> None:
            note(of)
            save(of, *arguments)

        def noted_load(of: Checkpointer, wanted: Any) -> Any:
            progress = load(of, wanted)
            if progress:
                note(of)
            return progress

        patch = pytest.MonkeyPatch()
        patch.setattr(Checkpointer, "save", noted_save)
        patch.setattr(Checkpointer, "load", noted_load)

    return hook


MOVES: dict[str, list[tuple[int, dict[str, int]]]] = {
    "replicas": [(2, {}), (1, {}), (4, {})],
    "divisions": [
        (2, {"shard": 2}),
        (1, {}),
        (4, {"replicate": 2, "shard": 2}),
        (4, {"shard": 2, "tensor": 2}),
        (2, {"pipeline": 2}),
    ],
}


@pytest.mark.parametrize("among", MOVES)
def test_a_run_moves_between_numbers_of_ranks_without_losing_a_bit(
    trainer: Trainer, whole: RunFiles, among: str
) -> None:
    files, notes = trainer.files("run"), trainer.root / "hashes"
    moves = MOVES[among]
    for end, (world, ranks) in enumerate(moves, start=1):
        last = end == len(moves)

        def hook(rank: int, end: int = end, last: bool = last) -> None:
            noting_tensors(notes)(rank)
            if not last:
                stopping_at(end)(rank)

        settings = (*divided(**ranks), "checkpoint.every_steps=100")
        started = trainer.start("run", *settings, world=world, hook=hook)
        assert started.wait() == [0 if last else 75] * world, started.output()
    hashes = notes.read_text().split()
    # The leader of a pipeline has the first stage only: what it loads there is not compared.
    compared = 2 * (len(moves) - 1) - ("pipeline" in moves[-1][1])
    assert hashes[1:compared:2] == hashes[0 : compared - 1 : 2]
    assert len(set(hashes[0:compared:2])) == len(hashes[0:compared:2])
    assert files.losses() == pytest.approx(whole.losses(), rel=1e-4)
    assert [e["world_size"] for e in files.events("started")] == [world for world, _ in moves]
