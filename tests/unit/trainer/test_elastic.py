"""Elastic groups without processes: the tree of sums, the log of views, the configuration, the judge."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from bench.trainer.elastic import useful_share
from bench.trainer.elastic_changes import plan_changes, sample_faults
from training.config_errors import ConfigError
from training.trainer.config import parse, world_issues
from training.trainer.config.groups import GroupsConfig
from training.trainer.elastic.exchange import STEP, Note
from training.trainer.elastic.membership import next_view
from training.trainer.elastic.reduction import (
    Node,
    SubtreeSums,
    leaf_range,
    nodes_of,
    shard_bounds,
    tree_sum,
)
from training.trainer.elastic.views import Member, View, ViewLog

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


def test_a_note_keeps_every_bit() -> None:
    note = Note(
        kind=STEP,
        view=7,
        step=1 << 40,
        flags=3,
        joiner="0123456789abcdef",
        loss=0.1,
        grad_norm=1e-300,
    )
    assert repr(Note.unpack(note.pack())) == repr(note)


def view(number: int, *names: str, formed: bool = True) -> View:
    members = tuple(Member(name, "127.0.0.1", 1000 + i) for i, name in enumerate(names))
    return View(number=number, members=members, formed=formed, reason="test")


def test_the_first_to_record_a_view_decides(tmp_path: Path) -> None:
    log = ViewLog(tmp_path)
    assert log.newest() is None
    one, other = view(1, "a", "b"), view(1, "b")
    assert log.create(one) == one
    assert log.create(other) == one
    assert log.newest() == one
    assert not log.exists(2)
    assert list((tmp_path / "groups").glob(".*")) == []


def test_the_token_is_made_once_and_readable_by_its_owner_only(tmp_path: Path) -> None:
    token = ViewLog(tmp_path).token()
    assert ViewLog(tmp_path).token() == token
    assert (tmp_path / "groups" / "token").stat().st_mode & 0o777 == 0o600


def test_a_joining_group_comes_last_and_never_leads() -> None:
    groups = GroupsConfig(min=2, max=4)
    after = next_view(view(4, "a", "b", "c"), groups, "", {"a"}, Member("d", "h", 1))
    assert [member.id for member in after.members] == ["b", "c", "d"]
    assert after.number == 5


def test_a_run_is_formed_once_the_smallest_number_is_there_and_stays_so() -> None:
    groups, third = GroupsConfig(min=3, max=4), Member("c", "h", 1)
    assert not next_view(view(1, "a", formed=False), groups, "", set(), third).formed
    formed = next_view(view(2, "a", "b", formed=False), groups, "", set(), third)
    assert formed.formed
    assert next_view(formed, groups, "", {"a", "b"}, None).formed


UNEVEN = {"global_samples": 36, "micro_samples": 12}
BASE = {"steps": 100, "data": {"path": "/x"}, "batch": {"global_samples": 32, "micro_samples": 2}}


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"groups": {"max": 4, "min": 5}}, "groups.min"),
        ({"groups": {"max": 4, "min": 0}}, "groups.min"),
        ({"groups": {"max": 4, "workers": 6}, "batch": UNEVEN}, "groups.workers"),
        ({"groups": {"max": 16}}, "groups.max"),
        ({"groups": {"max": -1}}, "groups.max"),
        ({"groups": {"max": 2, "silent_after_s": 0.0}}, "groups.silent_after_s"),
        ({"groups": {"max": 4}, "deterministic": False}, "deterministic"),
        ({"groups": {"max": 4}, "parallel": {"shard": 2}}, "parallel.shard"),
        ({"groups": {"max": 4}, "checkpoint": {"store": "s3://bucket/prefix"}}, "checkpoint.store"),
        ({"groups": {"max": 4}, "batch": {"global_samples": 36, "micro_samples": 2}}, "batch.global_samples"),
        ({"groups": {"max": 2, "workers": 2}, "batch": UNEVEN}, "batch.micro_samples"),
    ],
)  # fmt: skip
def test_what_an_elastic_run_cannot_do_is_refused(changes: dict[str, object], path: str) -> None:
    with pytest.raises(ConfigError) as found:
        parse({**BASE, **changes})
    assert [getattr(issue, "path", issue) for issue in found.value.issues] == [f"config: {path}"]


def test_a_group_is_one_process() -> None:
    config = parse({**BASE, "groups": {"max": 4}})
    assert world_issues(config, 1) == []
    assert [issue.path for issue in world_issues(config, 2)] == ["groups"]


def test_plans_are_seeded_and_stay_within_the_limits(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    trace.write_text(json.dumps({"metadata": {}, "data": [4, 4, 1, 3, 0, 4]}))
    plan = plan_changes(60, 5, [trace])
    assert plan == plan_changes(60, 5, [trace]) != plan_changes(60, 6, [trace])
    groups = 1
    for kind in plan:
        groups += 1 if kind == "joined" else -1
        assert 1 <= groups <= 4
    assert plan[:3] == ["joined"] * 3


def test_samples_that_are_missing_or_used_twice_are_found() -> None:
    good = ["1 summed 1 1 0 4", "2 summed 1 1 4 8", "1 applied 1 1 0 0", "2 applied 1 1 0 0"]
    assert sample_faults(good) == []
    redone = ["1 summed 2 1 0 4", "1 summed 2 2 0 8", "1 applied 2 2 0 0"]
    assert sample_faults([*good, *redone]) == []
    assert len(sample_faults(good[1:])) == 1
    assert len(sample_faults([*good, "1 applied 1 1 0 0"])) == 1


def test_an_elastic_change_costs_a_stall_and_a_restart_costs_all_groups() -> None:
    groups = [4, 4, 3, 4]
    # Four groups start, three stay at each of two changes, one comes.
    elastic = useful_share(groups, 100.0, 1.0, 20.0, elastic=True)
    assert elastic == pytest.approx(1 - (4 * 20 + 3 * 1 + 3 * 1 + 20) / 1500)
    restarted = useful_share(groups, 100.0, 1.0, 20.0, elastic=False)
    assert restarted == pytest.approx(1 - (4 + 3 + 4) * 20 / 1500)
