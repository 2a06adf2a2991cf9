"""Ranks of a group that watch each other: one that ends in order is not a failure."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from tests.waiting import until
from training.trainer.elastic.watch import Watch

DEADLINE_S = 60.0
Ends = tuple[socket.socket, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    """A connection of two ranks."""
    one, other = socket.socketpair()
    yield one, other
    one.close()
    other.close()


def is_watching() -> bool:
    return any(thread.name == "watch" for thread in threading.enumerate())


@pytest.mark.parametrize("content", [b"e", b"he", b"eh"], ids=bytes.decode)
def test_a_rank_that_ends_in_order_is_not_missed(ends: Ends, content: bytes) -> None:
    """Its own watch may be in a round, and send a last beat after the end."""
    failures: list[str] = []
    own, other = ends
    other.sendall(content)
    other.close()
    watch = Watch({1: own}, DEADLINE_S, lambda text, _: failures.append(text))
    until(lambda: failures or not is_watching(), "the end", DEADLINE_S)
    watch.end()
    assert failures == []


def test_a_rank_that_is_gone_without_a_word_is_missed(ends: Ends) -> None:
    failures: list[str] = []
    own, other = ends
    other.sendall(b"h")
    other.close()
    watch = Watch({1: own}, DEADLINE_S, lambda text, _: failures.append(text))
    until(lambda: failures, "the failure", DEADLINE_S)
    watch.end()
    assert failures[0] == "rank 1 of this group is gone"
    until(lambda: not is_watching(), "the end of the thread", DEADLINE_S)
