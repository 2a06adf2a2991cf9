"""Elastic groups of programs without processes: heartbeats, views, contributions, the state for newcomers."""

from __future__ import annotations

import queue
import socket
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.waiting import until
from trainyard import elastic
from trainyard.adapters import elastic_trainer
from trainyard.elastic import feed, same
from trainyard.elastic.exchange import Lost
from trainyard.elastic.leaves import Leaves
from trainyard.elastic.links import FEED, TOKEN_BYTES, WATCH, Links
from trainyard.elastic.same import describe, differences
from trainyard.elastic.views import Member, View, Views

TOKEN = b"t" * TOKEN_BYTES
MEMBER = Member("0" * 14, "node", (("127.0.0.1", 1),), (("127.0.0.1", 2),))
VIEW = View(
    number=1, members=(MEMBER,), reason="the run began", settings={"seed": "1"}, formed=True
)


def links(silent_after_s: float = 60.0) -> Links:
    return Links("127.0.0.1", TOKEN, silent_after_s)


def test_a_rank_hears_in_which_view_another_one_is_until_that_ends() -> None:
    one, listener = links(), socket.create_server(("127.0.0.1", 0))
    one.watch({"other": listener.getsockname()})
    other, _ = listener.accept()
    assert other.recv(64) == TOKEN + WATCH
    other.sendall((7).to_bytes(8, "big") + b"\0\0")
    until(lambda: one.view_of("other") == 7, "view 7")
    assert one.why_lost("other") == ""
    other.close()
    until(lambda: one.why_lost("other"), "a loss")
    assert one.why_lost("other") == "ended"


@pytest.mark.parametrize(
    "hello",
    [b"x" * TOKEN_BYTES + WATCH, b"x" * TOKEN_BYTES + FEED, TOKEN[:8], b"GET / HTTP/1.1\r\n"],
)
def test_a_connection_without_the_token_of_the_run_is_closed(hello: bytes) -> None:
    one = links()
    with socket.create_connection(one.address) as connection:
        connection.sendall(hello)
        assert connection.recv(8) == b""
    with pytest.raises(queue.Empty):
        one.feeds.get_nowait()


def test_the_first_to_create_a_view_decides(tmp_path: Path) -> None:
    one, other = Views(tmp_path, 0.0), Views(tmp_path, 0.0)
    assert one.newest() is None
    assert one.create(VIEW) == VIEW
    assert other.create(replace(VIEW, reason="another")) == VIEW
    assert other.newest() == VIEW
    assert one.token() == other.token()


def test_a_damaged_view_is_named(tmp_path: Path) -> None:
    views = Views(tmp_path, 0.0)
    views.create(VIEW)
    (tmp_path / "groups" / "view-00000001.json").write_text("{}")
    with pytest.raises(
        OSError, match=r"not a view .*; remove it while no group of the run is alive"
    ):
        views.newest()


def test_buffers_are_those_of_the_last_step_for_every_worker_and_change_by_the_mean() -> None:
    norm = torch.nn.BatchNorm1d(1, momentum=1.0)
    mask = torch.tensor([float("-inf"), 0.0])
    norm.register_buffer("mask", mask)
    mean, count = norm.running_mean, norm.num_batches_tracked
    assert mean is not None
    assert count is not None
    leaves = Leaves(norm)
    leaves.begin()
    total = torch.zeros(leaves.length)
    for value in (1.0, 3.0):
        norm(torch.tensor([[value], [value + 2]])).sum().backward()
        total += torch.cat([one.reshape(-1) for one in leaves.take(torch.tensor(value))])
        assert mean.item() == 0.0
        assert norm.weight.grad is None
    leaves.give(total, 2)
    assert (mean.item(), count.item()) == (3.0, 1)
    assert norm.bias.grad is not None
    assert norm.bias.grad.tolist() == [2.0]
    assert mask.tolist() == [float("-inf"), 0.0]
    assert total[-1] == 4.0


def test_a_newcomer_gets_the_state_and_the_steps_that_follow() -> None:
    def objects() -> dict[str, feed.Stateful]:
        model = torch.nn.Linear(2, 2)
        return {"model": model, "optimizer": torch.optim.AdamW(model.parameters())}

    def step(state: dict[str, feed.Stateful]) -> None:
        model, optimizer = state["model"], state["optimizer"]
        assert isinstance(model, torch.nn.Linear)
        assert isinstance(optimizer, torch.optim.AdamW)
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    newcomer, member, other = links(), objects(), objects()
    step(member)
    asking = replace(MEMBER, links=(newcomer.address,))
    sent = feed.Feed(asking, 0, TOKEN, feed.snapshot(member), 5)
    intake = feed.Intake(newcomer.feeds.get(timeout=30), 30.0)
    assert intake.name() == MEMBER.id
    state, number = intake.state()
    assert number == 5
    feed.restore(other, state)
    for one in (member, other):
        step(one)
    for name in member:
        assert str(feed.snapshot(member)[name]) == str(feed.snapshot(other)[name])
    sent.add(6, torch.tensor([1.5, 2.5]))
    assert intake.total(torch.float32)[0] == 6
    intake.taken(6)
    until(lambda: sent.applied == 6, "step 6")
    sent.end(9)
    assert intake.total(torch.float32) == (9, None)
    sent.join(30)
    with pytest.raises(Lost, match="has ended"):
        intake.total(torch.float32)


def test_what_the_bits_depend_on_must_be_the_same() -> None:
    model = torch.nn.Linear(2, 2)
    mine = describe(model, 8, 1, 1, {"data": "v1"})
    assert differences(mine, describe(torch.nn.Linear(2, 2), 8, 1, 1, {"data": "v1"})) == []
    other = describe(torch.nn.Linear(2, 3), 8, 2, 1, {"data": "v1"})
    lines = differences(mine, other)
    assert [line.partition(":")[0] for line in lines] == ["parameters of the model", "seed"]
    assert lines[1] == (
        "seed: 1 here, 2 in the groups that train; must be the same; start this group with theirs, or all "
        "groups anew"
    )


@pytest.mark.parametrize(
    ("model", "workers", "problem"),
    [
        (torch.nn.Linear(2, 2), 6, "workers: 6 is not valid; must be a power of two"),
        (
            torch.nn.Sequential(torch.nn.SyncBatchNorm(2)),
            4,
            "0: SyncBatchNorm is not valid in groups",
        ),
    ],
)
def test_what_cannot_be_exact_is_refused(
    model: torch.nn.Module, workers: int, problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        elastic.join(model, torch.optim.SGD(model.parameters()), workers=workers)


def test_kernels_of_a_gpu_that_need_not_be_deterministic_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(same, "_is_on_gpu", lambda _: True)
    same.refuse(torch.nn.Linear(2, 2), 4)
    assert capsys.readouterr().err.endswith("call torch.use_deterministic_algorithms(True)\n")
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
    same.refuse(torch.nn.Linear(2, 2), 4)
    assert capsys.readouterr().err == ""


ARGUMENTS = {"max_steps": 10, "gradient_accumulation_steps": 1, "fp16": False}


@pytest.mark.parametrize(
    ("settings", "dataset", "named"),
    [
        ({}, [1, 2], []),
        ({"max_steps": -1}, [1, 2], ["max_steps"]),
        ({"gradient_accumulation_steps": 2}, [1, 2], ["gradient_accumulation_steps"]),
        ({"fp16": True}, iter([1]), ["fp16", "train_dataset"]),
    ],
)
def test_settings_of_a_hugging_face_trainer_that_groups_cannot_have_are_refused(
    settings: dict[str, Any], dataset: object, named: list[str]
) -> None:
    arguments: Any = SimpleNamespace(**(ARGUMENTS | settings))
    found = [line.partition(": ")[0] for line in elastic_trainer.refusals(arguments, dataset)]
    assert found == named
