"""What a member sends to a joining group: the memory of its copy, and the updates that wait."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.unit.trainer.checkpoints import progress_of
from tests.waiting import until
from training.trainer.elastic import transfer
from training.trainer.elastic.donors import Donors
from training.trainer.elastic.exchange import STEP, Note
from training.trainer.elastic.transfer import AppliedStep, CopyMemory, Donor, Stream

DEADLINE_S = 120.0
ABOUT = {"seed": 1}
PROGRESS = progress_of(3)


def state() -> transfer.Tensors:
    return {"model": {"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(4)}}


def update(step: int, numbers: int = 8) -> AppliedStep:
    return AppliedStep(Note(kind=STEP, view=1, step=step), torch.full((numbers,), float(step)))


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two connected sockets."""
    pair = socket.socketpair()
    yield pair
    for end in pair:
        end.close()


def prepared(memory: CopyMemory) -> CopyMemory:
    memory.prepare(state())
    until(lambda: memory.ready, "the memory", DEADLINE_S)
    return memory


def test_transfers_use_the_memory_of_the_copy_in_turn(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    memory = prepared(CopyMemory())
    sent, received = state(), {"model": {"a": torch.zeros(2, 3), "b": torch.zeros(4)}}
    donor = Donor(ends[0], "peer", PROGRESS, sent, ABOUT, memory)
    assert not memory.ready
    stream = Stream(ends[1], [], lambda: None, DEADLINE_S)
    assert stream.receive_state(received, ABOUT) == PROGRESS
    stream.acknowledge(3)
    until(lambda: memory.ready, "the end of the transfer", DEADLINE_S)
    assert donor.acknowledged == 3
    assert torch.equal(received["model"]["a"], sent["model"]["a"])
    first = memory.copy(state())
    memory.give_back(first)
    memory.prepare(state())
    second = memory.copy(state())
    assert [t.data_ptr() for t in first.values()] == [t.data_ptr() for t in second.values()]
    donor.offer(update(4))
    step = stream.receive_step(8, 4)
    assert isinstance(step, AppliedStep)
    assert torch.equal(step.share, update(4).share)
    donor.close()


def test_a_second_caller_waits_for_the_memory_that_the_first_one_uses(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    run: Any = SimpleNamespace(config=SimpleNamespace(collective_timeout_s=10), progress=PROGRESS)
    listener: Any = SimpleNamespace(joins=[])
    donors, second = Donors(listener, ABOUT), socket.socketpair()
    listener.joins += [(ends[0], "first"), (second[0], "second")]

    def obey(start: str) -> None:
        orders = {"fed": [start], "start": start, "refuse": False}
        donors.obey(orders, run, state(), compared=True)

    obey(start="")
    until(lambda: donors.report()["waiting"] == ["first", "second"], "the memory", DEADLINE_S)
    until(lambda: "copy-memory" not in threads(), "the end of the allocation", DEADLINE_S)
    obey(start="first")
    assert listener.joins == [(second[0], "second")]
    until(lambda: "copy-memory" not in threads(), "the end of any allocation", DEADLINE_S)
    assert donors.report()["waiting"] == []  # the first caller has not read its copy yet
    donors.close()
    until(lambda: donors.report()["waiting"] == ["second"], "the memory", DEADLINE_S)
    for end in second:
        end.close()


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


def test_updates_that_wait_are_limited_by_their_bytes(
    ends: tuple[socket.socket, socket.socket],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(transfer, "_PENDING_BYTES", 0)  # so it is the size of the state, 40 bytes
    donor = Donor(ends[0], "peer", PROGRESS, state(), ABOUT, prepared(CopyMemory()))
    for step in (4, 5):  # none is sent before the state is acknowledged
        donor.offer(update(step, numbers=5))
        assert not donor.failed
    donor.offer(update(6, numbers=5))
    assert donor.failed
    assert capsys.readouterr().err == (
        "group peer joins too slowly: 2 updates wait to be sent to it; it begins again\n"
    )
    stream = Stream(ends[1], [], lambda: None, DEADLINE_S)
    received = {"model": {"a": torch.zeros(2, 3), "b": torch.zeros(4)}}
    with pytest.raises(transfer.TransferLost):
        stream.receive_state(received, ABOUT)
        stream.receive_step(5, 4)
