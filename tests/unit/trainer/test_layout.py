"""Which rank does what: the arithmetic of the device mesh."""

from __future__ import annotations

import random
from typing import Any

import pytest

from trainer.config import parse, world_issues
from trainer.config.rules import check_shape
from trainer.parallel.layout import Layout, ModelShape


def trainer_config(**parallel: Any) -> Any:
    return parse({"steps": 100, "data": {"path": "/x"}, "parallel": parallel})


def test_by_default_every_rank_has_the_model_and_its_own_samples() -> None:
    layout = trainer_config().parallel.layout(6)
    assert layout.plain and layout.dimensions() == {"data": 6}
    assert [layout.data_rank(rank) for rank in range(6)] == list(range(6))
    assert all(layout.counts(rank) for rank in range(6))


def test_neighbours_share_a_tensor_group_and_stages_are_far_apart() -> None:
    layout = trainer_config(pipeline=2, tensor=2, shard=2).parallel.layout(8)
    assert [layout.data_rank(rank) for rank in range(8)] == [0, 0, 1, 1, 0, 0, 1, 1]
    assert [layout.stage(rank) for rank in range(8)] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert layout.dimensions() == {"pipeline": 2, "shard": 2, "tensor": 2}


def test_each_share_of_the_samples_counts_once_in_any_layout() -> None:
    generator = random.Random(1)
    for _ in range(50):
        pipeline, replicate, shard, tensor = (generator.choice((1, 2, 3)) for _ in range(4))
        layout = Layout(pipeline=pipeline, replicate=replicate, shard=shard, tensor=tensor)
        counting = [layout.data_rank(r) for r in range(layout.world) if layout.counts(r)]
        assert sorted(counting) == list(range(layout.data))


def test_replicas_fill_the_world_unless_their_number_is_given() -> None:
    assert trainer_config(shard=2).parallel.layout(8).replicate == 4
    assert world_issues(trainer_config(shard=2, replicate=1), 2) == []


@pytest.mark.parametrize(
    ("parallel", "world", "got"),
    [
        ({"shard": 3}, 4, "pipeline 1 x shard 3 x tensor 1 = 3"),
        ({"replicate": 2, "shard": 2}, 8, "replicate 2 x shard 2 x tensor 1 = 4"),
    ],
)
def test_dimensions_that_do_not_make_up_the_world_are_one_issue(
    parallel: dict[str, int], world: int, got: str
) -> None:
    (issue,) = world_issues(trainer_config(**parallel), world)
    assert (issue.code, issue.path) == ("out-of-range", "parallel")
    assert got in issue.problem and str(world) in issue.valid


def test_the_batch_divides_among_the_ranks_that_read_different_samples() -> None:
    config = trainer_config(tensor=4)
    assert config.batch.global_samples == 32 and config.batch.micro_samples == 16
    assert world_issues(config, 8) == []
    (issue,) = world_issues(config, 16)
    assert issue.path == "batch.global_samples" and "16 x 4" in issue.valid


def test_a_pipeline_is_filled_by_the_micro_batches_of_a_step() -> None:
    filled = trainer_config(pipeline=2)
    assert world_issues(filled, 2) == []
    (issue,) = world_issues(filled, 4)
    assert issue.path == "parallel.pipeline" and "1 micro-batches" in issue.problem
    assert world_issues(trainer_config(pipeline=2, schedule="gpipe"), 4) == []


@pytest.mark.parametrize("name", ["tensor", "pipeline"])
def test_a_model_whose_modules_are_not_known_is_only_sharded(name: str) -> None:
    shape = ModelShape(kind="gpt2", layers=4, heads=4, kv_heads=4, intermediate_size=8, tied=False)
    assert list(check_shape(trainer_config(shard=2).parallel, shape)) == []
    (issue,) = check_shape(trainer_config(**{name: 2}).parallel, shape)
    assert issue.path == f"parallel.{name}" and "gpt2" in issue.problem
