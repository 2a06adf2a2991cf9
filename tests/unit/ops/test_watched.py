"""Lists that a watch keeps, with scripted events."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest

from ops.cluster import Cluster, ForbiddenError, Kind, UnreachableError
from ops.objects import Json
from ops.watched import FORBIDDEN_S, IDLE_S, RELIST_S, Watched
from tests.waiting import until

PODS = Kind("v1", "pods", "Pod")


def pod(name: str, version: int, phase: str = "Running") -> Json:
    metadata = {"name": name, "namespace": "team-a", "resourceVersion": str(version)}
    return {"metadata": metadata, "status": {"phase": phase}}


class Scripted:
    """Lists one pod; a watch yields what is put into `events`, and raises errors from there; None ends it."""

    def __init__(self) -> None:
        self.events: queue.Queue[Any] = queue.Queue()
        self.lists, self.watches = 0, list[str]()
        self.found = [pod("one", 5)]
        self.refusal: Exception | None = None

    def listing(self, *_: Any) -> tuple[list[Json], str]:
        self.lists += 1
        if self.refusal:
            raise self.refusal
        return self.found, "7"

    def watch(self, *of: Any) -> Iterator[Json]:
        self.watches.append(of[-1])
        while (event := self.events.get()) is not None:
            if isinstance(event, Exception):
                raise event
            yield {"type": event[0], "object": event[1]}


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def api() -> Iterator[Scripted]:
    found = Scripted()
    yield found
    found.events.put(UnreachableError("the test is over"))


def names(watched: Watched) -> list[str]:
    return [item["metadata"]["name"] for item in watched.items(PODS, "team-a")]


def ended(watched: Watched) -> None:
    """Wait for the end of its only watch."""
    (kept,) = watched._lists.values()
    until(lambda: not kept._watching, "the end of the watch", 20)


def test_readers_share_one_list_and_one_watch_that_keeps_it(api: Scripted) -> None:
    watched = Watched(cast(Cluster, api))
    readers = [threading.Thread(target=names, args=(watched,)) for _ in range(20)]
    for one in readers:
        one.start()
    for one in readers:
        one.join()
    api.events.put(("ADDED", pod("two", 8)))
    until(lambda: names(watched) == ["one", "two"], "the new pod", 20)
    api.events.put(("MODIFIED", pod("one", 9, "Failed")))
    until(lambda: watched.items(PODS, "team-a")[0]["status"]["phase"] == "Failed", "its end", 20)
    api.events.put(("DELETED", pod("one", 10, "Failed")))
    until(lambda: names(watched) == ["two"], "the deletion", 20)
    assert (api.lists, api.watches) == (1, ["7"])


def test_a_watch_that_the_server_ends_goes_on_from_its_last_version(api: Scripted) -> None:
    watched = Watched(cast(Cluster, api))
    names(watched)
    api.events.put(("BOOKMARK", {"metadata": {"resourceVersion": "31"}}))
    api.events.put(None)
    until(lambda: len(api.watches) == 2, "the second watch", 20)
    assert (api.lists, api.watches) == (1, ["7", "31"])


@pytest.mark.parametrize(
    "end", [UnreachableError("no answer"), ("ERROR", {"code": 410, "message": "too old"})]
)
def test_after_a_failed_watch_a_reader_lists_again(api: Scripted, end: Any) -> None:
    clock = Clock()
    watched = Watched(cast(Cluster, api), clock)
    names(watched)
    api.found = [pod("three", 40)]
    api.events.put(end)
    ended(watched)
    assert names(watched) == ["one"], "not at once"
    clock.now = RELIST_S * 1.1
    assert (names(watched), api.lists) == (["three"], 2)


def lists_at(api: Scripted, clock: Clock, watched: Watched, *times: float) -> list[int]:
    found = []
    for clock.now in times:
        with contextlib.suppress(ForbiddenError):
            names(watched)
        found.append(api.lists)
    return found


def test_without_the_right_to_watch_lists_are_read_now_and_then(api: Scripted) -> None:
    clock = Clock()
    watched = Watched(cast(Cluster, api), clock)
    names(watched)
    api.events.put(ForbiddenError("watch is forbidden"))
    ended(watched)
    times = (RELIST_S * 0.9, RELIST_S * 1.1, RELIST_S * 1.2, RELIST_S * 2.2)
    assert lists_at(api, clock, watched, *times) == [1, 2, 2, 3]
    assert len(api.watches) == 1


def test_a_refused_list_is_not_asked_for_again_at_once(api: Scripted) -> None:
    clock = Clock()
    api.refusal = ForbiddenError("pods is forbidden")
    watched = Watched(cast(Cluster, api), clock)
    assert lists_at(api, clock, watched, 0.0, FORBIDDEN_S * 0.9, FORBIDDEN_S * 1.1) == [1, 1, 2]
    api.refusal = None
    clock.now = FORBIDDEN_S * 3
    assert names(watched) == ["one"]


def test_a_list_without_readers_is_not_watched_any_more(api: Scripted) -> None:
    clock = Clock()
    watched = Watched(cast(Cluster, api), clock)
    names(watched)
    clock.now = IDLE_S * 2
    api.events.put(None)
    ended(watched)
    clock.now += RELIST_S
    assert names(watched) == ["one"] and (api.lists, len(api.watches)) == (2, 2)
