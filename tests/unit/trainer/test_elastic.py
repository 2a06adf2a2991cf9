"""Elastic groups without processes: the tree of sums, the log of views, the configuration, the judge."""

from __future__ import annotations

import errno
import json
import math
import os
import stat
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from bench.trainer import elastic_spares
from bench.trainer.elastic_changes import calm_seconds, plan_changes, sample_faults, stall_seconds
from bench.trainer.elastic_peer import judge
from bench.trainer.elastic_traces import Stalls, replay, useful_share
from training.config_errors import ConfigError
from training.trainer.config import parse, world_issues
from training.trainer.config.groups import GroupsConfig
from training.trainer.elastic.exchange import STEP, Note
from training.trainer.elastic.membership import end_view, next_view
from training.trainer.elastic.views import Member, View, ViewLog
from trainyard.elastic.tree import (
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


def test_a_note_keeps_every_bit() -> None:
    note = Note(
        kind=STEP,
        view=7,
        step=1 << 40,
        flags=3,
        ready=("0123456789abcdef", "fedcba9876543210"),
        kept=2,
        loss=0.1,
        grad_norm=1e-300,
    )
    assert repr(Note.unpack(note.pack())) == repr(note)


def view(number: int, *names: str, formed: bool = True) -> View:
    members = tuple(Member(name, (("127.0.0.1", 1000 + i),)) for i, name in enumerate(names))
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


def test_a_view_is_durable_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, calls = ViewLog(tmp_path), list[str]()
    sync, link = os.fsync, os.link

    def note_sync(descriptor: int) -> None:
        about = os.fstat(descriptor)
        what = "folder" if stat.S_ISDIR(about.st_mode) else "view" if about.st_size else "nothing"
        calls.append(f"sync {what}")
        sync(descriptor)

    def note_link(*arguments: Any) -> None:
        calls.append("link")
        link(*arguments)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "link", note_link)
    log.create(view(1, "a"))
    assert calls == ["sync view", "link", "sync folder"]


@pytest.mark.parametrize("content", ["", "{"])
def test_a_file_that_is_not_a_view_is_named(tmp_path: Path, content: str) -> None:
    log = ViewLog(tmp_path)
    file = log.folder / "view-00000002.json"
    file.write_text(content)
    for use in (log.newest, lambda: log.read(2), lambda: log.create(view(2, "a"))):
        with pytest.raises(OSError, match="not a view") as found:
            use()
        assert (found.value.errno, found.value.filename) == (errno.EIO, str(file))


def test_the_token_is_made_once_and_readable_by_its_owner_only(tmp_path: Path) -> None:
    token = ViewLog(tmp_path).token()
    assert ViewLog(tmp_path).token() == token
    assert (tmp_path / "groups" / "token").stat().st_mode & 0o777 == 0o600


def test_a_joining_group_comes_last_and_never_leads() -> None:
    groups = GroupsConfig(min=2, max=4)
    after = next_view(view(4, "a", "b", "c"), groups, "", {"a"}, [Member("d", (("h", 1),))])
    assert [member.id for member in after.members] == ["b", "c", "d"]
    assert after.number == 5


def test_a_view_names_those_that_can_still_join(tmp_path: Path) -> None:
    groups = GroupsConfig(min=1, max=3, spares=2)
    after = next_view(view(4, "a", "b", "c"), groups, "", {"a"}, [Member("d", (("h", 1),))], ["e"])
    log = ViewLog(tmp_path)
    log.create(after)
    assert log.read(5).ready == ("e",)
    assert next_view(after, groups, "", {"b"}, []).ready == ()


def test_only_another_leader_gets_another_attempt() -> None:
    groups = GroupsConfig(min=1, max=4)
    first = replace(view(4, "a", "b", "c"), attempt=7)
    second = next_view(first, groups, "", {"b"}, [Member("d", (("h", 1),))])
    third = next_view(second, groups, "", {"a"}, [])
    assert [found.attempt for found in (second, third, end_view(third, ""))] == [7, 8, 8]


def test_a_run_is_formed_once_the_smallest_number_is_there_and_stays_so() -> None:
    groups, third = GroupsConfig(min=3, max=4), [Member("c", (("h", 1),))]
    assert not next_view(view(1, "a", formed=False), groups, "", set(), third).formed
    formed = next_view(view(2, "a", "b", formed=False), groups, "", set(), third)
    assert formed.formed
    assert next_view(formed, groups, "", {"a", "b"}, []).formed


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
        ({"groups": {"max": 4}, "batch": {"global_samples": 36, "micro_samples": 2}}, "batch.global_samples"),
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
        (1, {"batch": UNEVEN, "groups": {"max": 2, "workers": 2}}, "batch.micro_samples"),
        (2, {"parallel": {"pipeline": 2}}, None),
        (4, {"parallel": {"pipeline": 2}}, "parallel.pipeline"),
    ],
)
def test_a_group_divides_the_samples_of_each_logical_worker(
    ranks: int, changes: dict[str, object], path: str | None
) -> None:
    config = parse({**BASE, "groups": {"max": 4}, **changes})
    assert [issue.path for issue in world_issues(config, ranks)] == ([path] if path else [])


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
    good = [
        "1 0 summed 1 1 0 4",
        "2 0 summed 1 1 4 8",
        "1 0 applied 1 1 0 0",
        "2 0 applied 1 1 0 0",
    ]
    assert sample_faults(good) == []
    redone = ["1 0 summed 2 1 0 4", "1 0 summed 2 2 0 8", "1 0 applied 2 2 0 0"]
    assert sample_faults([*good, *redone]) == []
    assert len(sample_faults(good[1:])) == 1
    assert len(sample_faults([*good, "1 0 applied 1 1 0 0"])) == 1


def test_an_elastic_change_costs_a_stall_and_a_restart_costs_all_groups() -> None:
    groups = [4, 4, 3, 4]
    # Four groups start, three stay at each of two changes, one comes.
    elastic = useful_share(groups, 100.0, 20.0, Stalls(lost_s=1.0, joined_s=2.0))
    assert elastic == pytest.approx(1 - (4 * 20 + 3 * 1 + 3 * 2 + 20) / 1500)
    restarted = useful_share(groups, 100.0, 20.0, None)
    assert restarted == pytest.approx(1 - (4 + 3 + 4) * 20 / 1500)


def test_a_stall_is_not_part_of_the_time_of_calm_steps() -> None:
    two, one = [(step, 1.0) for step in range(2, 12)], [(step, 2.0) for step in range(12, 22)]
    two[3], one[0] = (5, 4.0), (12, 9.0)
    assert calm_seconds([*two, *one], [(0, 2), (11, 1)]) == 10 * 1.0 + 10 * 2.0


def test_the_stall_of_a_change_is_not_that_of_the_next() -> None:
    ends = [float(second) for second in range(1, 21)]
    ends += [22.5, 23.5, 24.5, 25.5]  # the first change, at 20.5
    ends += [31.0, 32.0, 33.0, 34.0]  # the second, at 25.7
    gaps = [(at, at - before) for before, at in pairwise(ends)]
    assert stall_seconds(gaps, 20.5, 22.4, 25.7) == 1.5
    assert stall_seconds(gaps, 25.7, 30.9, math.inf) == 4.5


def test_a_kill_is_judged_by_the_survivors_attempts() -> None:
    def attempt(step: int, time: float, loss: float = 0.5, kept: bool = True) -> dict[str, object]:
        return {"step": step, "time": time, "loss": loss, "kept": kept}

    calm = [attempt(step, float(step)) for step in range(1, 21)]
    before = calm[:10]
    after = [attempt(step, step + 5.0, 0.4) for step in range(11, 21)]
    found = judge([*before, attempt(11, 12.0, kept=False), *after], 10.5, calm)
    assert found == {
        "stall_s": 5.0,
        "step_s": 1.0,
        "discarded": 1,
        "different_before": 0,
        "different_after": 10,
        "steps_after": 10,
    }


def test_a_spare_is_timed_from_the_kill_to_the_first_step_without_the_lost_groups() -> None:
    steps = [{"step": step, "time": 10.0 + step, "loss": 0.5} for step in range(1, 8)]
    events: list[dict[str, Any]] = [{"event": "started", "time": 1.0}]
    events += [
        {"event": "membership", "view": view, "groups": groups, "at_step": step}
        for view, groups, step in ((3, 3, 0), (4, 3, 2), (5, 2, 5), (6, 3, 6))
    ]
    # The step that was in flight at the second kill, 5, was committed by those who were left, too.
    found = elastic_spares.judge(steps, events, [("killed", 12.5, 3), ("silent", 14.75, 4)])
    assert found.stalls == {"killed": [0.5], "silent": [1.25]}
    assert found.not_replaced == 1


def test_each_kind_of_loss_is_played_equally_often() -> None:
    plan = elastic_spares.plan_losses(9, 1)
    assert plan == elastic_spares.plan_losses(9, 1) != elastic_spares.plan_losses(9, 2)
    assert Counter(plan) == dict.fromkeys(elastic_spares.KINDS, 3)


def test_traces_are_paid_by_what_changes_cost(tmp_path: Path) -> None:
    file = tmp_path / "busy.json"
    file.write_text(json.dumps({"metadata": {"gap_seconds": 100.0}, "data": [2, 1, 2]}))
    arms = {"elastic": Stalls(lost_s=1.0, joined_s=1.0), "restart": None}
    row = replay(file, arms, {"soon": 10.0}, step_s=0.5)
    shares = {"elastic": 1 - (2 * 10 + 1 + 1 + 10) / 500, "restart": 1 - (2 + 1 + 2) * 10 / 500}
    assert row["changes"] == 2
    for arm, share in shares.items():
        assert row["soon"][arm]["time_ratio"] == pytest.approx(1 / share)
        assert row["soon"][arm]["steps_per_usd"] == pytest.approx(share * 3600 / 3.06 / 0.5)
