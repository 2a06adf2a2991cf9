"""Elastic groups without processes: the tree of sums, the configuration, the figures."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch

from bench.elastic import stall_seconds
from trainer.config import parse, world_issues
from trainer.config_errors import ConfigError
from trainyard.elastic.exchange import (
    Node,
    SubtreeSums,
    leaf_range,
    nodes_of,
    shard_bounds,
    tree_sum,
)

WORKERS = 8


@pytest.mark.parametrize("members", range(1, WORKERS + 1))
def test_any_number_of_members_gives_the_bits_of_the_same_tree(members: int) -> None:
    leaves = torch.randn(WORKERS, 97, generator=torch.Generator().manual_seed(3))
    alone = tree_sum({(leaf, 1): leaves[leaf] for leaf in range(WORKERS)}, (0, WORKERS))
    parts: dict[Node, torch.Tensor] = {}
    for position in range(members):
        sums = SubtreeSums()
        own = leaf_range(position, members, WORKERS)
        for leaf in own:
            sums.add(leaf, [leaves[leaf].clone()])
        found = {node: tensors[0] for node, tensors in sums}
        assert list(found) == nodes_of(own)
        parts |= found
    assert torch.equal(tree_sum(parts, (0, WORKERS)), alone)


def test_aligned_members_send_one_subtree_each() -> None:
    for members in (1, 2, 4, 8):
        assert {len(nodes_of(leaf_range(p, members, WORKERS))) for p in range(members)} == {1}


@pytest.mark.parametrize("length", [1, 5, 97])
def test_shards_cover_every_element_once(length: int) -> None:
    bounds = shard_bounds(length, 4)
    assert [i for begin, end in bounds for i in range(begin, end)] == list(range(length))


UNEVEN = {"global_samples": 36, "micro_samples": 12}
BASE = {"steps": 100, "data": {"path": "/x"}, "batch": {"global_samples": 32, "micro_samples": 2}}


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"groups": {"workers": 6}, "batch": UNEVEN}, "groups.workers"),
        ({"groups": {"workers": 0}}, "groups.workers"),
        ({"groups": {"workers": 8, "silent_after_s": 0.0}}, "groups.silent_after_s"),
        ({"groups": {"workers": 8}, "deterministic": False}, "deterministic"),
        ({"groups": {"workers": 8}, "batch": {"global_samples": 36, "micro_samples": 2}}, "batch.global_samples"),
    ],
)  # fmt: skip
def test_what_an_elastic_run_cannot_do_is_refused(changes: dict[str, object], path: str) -> None:
    with pytest.raises(ConfigError) as found:
        parse({**BASE, **changes})
    assert [getattr(issue, "path", issue) for issue in found.value.issues] == [f"config: {path}"]


@pytest.mark.parametrize(
    ("ranks", "changes", "path"),
    [
        (2, {}, None),
        (4, {"parallel": {"shard": 2}}, None),
        (2, {"parallel": {"tensor": 2}}, None),
        (8, {}, "batch.global_samples"),
        (3, {"parallel": {"shard": 2}}, "parallel"),
        (1, {"batch": UNEVEN, "groups": {"workers": 2}}, "batch.micro_samples"),
        (2, {"parallel": {"pipeline": 2}}, None),
        (4, {"parallel": {"pipeline": 2}}, "parallel.pipeline"),
    ],
)
def test_a_group_divides_the_samples_of_each_logical_worker(
    ranks: int, changes: dict[str, object], path: str | None
) -> None:
    config = parse({**BASE, "groups": {"workers": 8}, **changes})
    assert [issue.path for issue in world_issues(config, ranks)] == ([path] if path else [])


def test_the_stall_of_a_change_is_not_that_of_the_next() -> None:
    ends = [float(second) for second in range(1, 21)]
    ends += [22.5, 23.5, 24.5, 25.5]  # the first change, at 20.5
    ends += [31.0, 32.0, 33.0, 34.0]  # the second, at 25.7
    gaps = [(at, at - before) for before, at in pairwise(ends)]
    assert stall_seconds(gaps, 20.5, 22.4, 25.7) == 1.5
    assert stall_seconds(gaps, 25.7, 30.9, math.inf) == 4.5
