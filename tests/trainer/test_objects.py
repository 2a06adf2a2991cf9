"""Objects of a bucket: names stay below their prefix, lists are whole, large ones are read ahead."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.s3.bucket import Bucket, Fault
from trainyard.objects import (
    BadLocation,
    Location,
    ObjectExists,
    ObjectMissing,
    Objects,
    RetryPolicy,
)
from trainyard.objects import client as client_module


@pytest.fixture
def objects(bucket: Bucket, request: pytest.FixtureRequest) -> Iterator[Objects]:
    """An empty place, over a connection of its own."""
    bucket.break_()
    yield bucket.objects(f"objects/{request.node.name}", own_connection=True)
    bucket.break_()


@pytest.mark.parametrize(
    ("text", "prefix"),
    [("s3://bucket", ""), ("s3://bucket/", ""), ("s3://bucket/a/b", "a/b/"), ("s3://b.c/a/", "a/")],
)
def test_a_location_ends_in_a_slash_so_that_it_reaches_nobody_else(text: str, prefix: str) -> None:
    location = Location.parse(text)
    assert location.prefix == prefix
    assert location.key("x") == f"{prefix}x"
    assert str(location) == text.removesuffix("/")
    assert location.below("c").prefix == f"{prefix}c/"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "bucket/a",
        "/bucket",
        "S3://bucket",
        "s3:/bucket",
        "s3://",
        "s3:///a",
        "s3://B/a",
        "s3://bu_cket/a",
        "s3://bucket//a",
        "s3://bucket/a//b",
        "s3://bucket/a/../b",
        "s3://bucket/./a",
        "s3://bucket/" + "a" * 600,
    ],
)
def test_what_is_no_location_is_said_in_a_line(text: str) -> None:
    with pytest.raises(BadLocation, match="must be s3://BUCKET/PREFIX"):
        Location.parse(text)


def test_pauses_grow_to_a_limit_and_are_never_alike() -> None:
    patience, chance = RetryPolicy(first_s=0.1, longest_s=3.0), random.Random(1)
    drawn = [[patience.pause_s(tries, chance) for _ in range(200)] for tries in (0, 1, 4, 5, 5000)]
    for pauses, longest in zip(drawn, (0.1, 0.2, 1.6, 3.0, 3.0), strict=True):
        assert 0.9 * longest < max(pauses) <= longest
        assert min(pauses) < 0.1 * longest
        assert len(set(pauses)) == len(pauses)


def test_lists_of_many_pages_are_whole(objects: Objects) -> None:
    def pages_of_two(params: dict[str, Any], **_: object) -> dict[str, Any]:
        return {**params, "MaxKeys": 2}

    objects.connection.client().meta.events.register(
        "provide-client-params.s3.ListObjectsV2", pages_of_two
    )
    names = [f"{folder}/{number}" for folder in "abc" for number in range(3)]
    for name in names:
        objects.put(name, name.encode())
    assert [entry.name for entry in objects.list()] == names
    assert [entry.name for entry in objects.list("b/")] == names[3:6]
    assert [entry.name for entry in objects.list(after="b/1")] == names[5:]
    assert list(objects.folders()) == ["a", "b", "c"]
    objects.delete(names[1:])
    assert [entry.name for entry in objects.list()] == names[:1]


def test_a_conditional_write_loses_to_what_is_there_and_wins_over_what_was_read(
    objects: Objects,
) -> None:
    first = objects.create("x", b"first")
    assert objects.create("x", b"first") == first
    with pytest.raises(ObjectExists, match="412 PreconditionFailed"):
        objects.create("x", b"second")
    second = objects.create("x", b"second", instead_of=first)
    with pytest.raises(ObjectExists):
        objects.create("x", b"third", instead_of=first)
    assert objects.read_tagged("x") == (b"second", second)
    with pytest.raises(ObjectMissing):
        objects.create("y", b"third", instead_of=first)


def test_pieces_come_in_order_whoever_answers_first(
    objects: Objects, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "CHUNK_BYTES", 1000)
    whole = random.Random(2).randbytes(25_300)
    objects.put("x", whole)
    bucket.break_(
        Fault(kind="slow", share=0.3, seconds=0.02, match="^GET"),
        Fault(kind="truncate", share=0.2, times=10, match="^GET"),
    )
    assert b"".join(objects.chunks("x")) == whole
    assert b"".join(objects.chunks("x", count=1500)) == whole[:1500]
    assert list(objects.chunks("x", count=0)) == []
    with pytest.raises(ObjectMissing):
        list(objects.chunks("y"))


def test_a_reader_that_stops_early_leaves_nothing_under_way(
    objects: Objects, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "CHUNK_BYTES", 1000)
    objects.put("x", bytes(100_000))
    bucket.break_()
    with ThreadPoolExecutor(2) as threads:
        pieces = objects.read_ahead("x", 100_000, threads)
        assert next(pieces) == bytes(1000)
        pieces.close()
    assert 1 <= len(bucket.seen()) <= client_module.READERS
