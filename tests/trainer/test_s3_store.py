"""A checkpoint on S3 is whole or not there, whatever happens on the way to the bucket."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.s3.bucket import Bucket, Fault, Kind
from tests.trainer.fault_table import Trials
from tests.trainer.s3_places import (
    MODEL,
    PROGRESS,
    Place,
    assert_loads,
    assert_sound,
    save,
)
from trainyard.objects import AccessDenied, ObjectError, ObjectsUnavailable, RetryPolicy
from trainyard.store.interface import folder_name
from trainyard.store.manifest import CorruptCheckpoint
from trainyard.store.posix import PosixStore
from trainyard.store.s3_fence import S3Fence

pytestmark = pytest.mark.long(37)


@pytest.fixture
def place(bucket: Bucket) -> Iterator[Place]:
    """A place for a run, on a way without faults."""
    bucket.break_()
    yield Place(bucket)
    bucket.break_()


def test_what_was_written_is_read_back(place: Place) -> None:
    store = place.store()
    assert store.steps() == []
    for step in (20, 10, 100_000_000):
        save(store, step)
    assert assert_sound(place) == [10, 20, 100_000_000]
    assert store.place == place.bucket.url(f"{place.prefix}/checkpoints")
    assert place.rubbish() == []


def test_every_byte_goes_up_with_a_checksum(place: Place) -> None:
    place.bucket.break_(Fault(kind="flip", match="^PUT", share=0.3), seed=1)
    store = place.store()
    for step in (10, 20):
        save(store, step)
    broken = [seen for seen in place.bucket.seen() if seen["fault"] == "flip"]
    assert len(broken) > 3
    assert {seen["status"] for seen in broken} == {400}
    assert assert_sound(place) == [10, 20]


def test_a_large_file_goes_up_in_parts_and_a_small_one_in_one_request(place: Place) -> None:
    save(place.store(), 10)
    parts = [seen["request"] for seen in place.bucket.seen() if "partNumber=" in seen["request"]]
    assert sorted(int(text.split("partNumber=")[1][0]) for text in parts) == [1, 1, 2, 2, 3]
    assert not [text for text in parts if PROGRESS in text]


def faults_of_a_save(chance: random.Random) -> list[Fault]:
    """A bad day on the network."""
    writes = "^(PUT|POST|DELETE)"
    return [
        Fault(kind="503", share=0.3, times=150),
        Fault(kind="500 after", match=writes, share=0.15, times=60),
        Fault(kind="reset", share=0.1, times=40),
        Fault(kind="reset after", match=writes, share=0.1, times=40),
        Fault(kind="slow", share=0.1, times=10, seconds=chance.uniform(0, 0.05)),
        Fault(kind="expired", share=0.02, times=2),
    ]


@pytest.mark.timeout(3600)  # 200 bad days in full
def test_a_bad_day_on_the_network_costs_time_and_nothing_else(place: Place, trials: Trials) -> None:
    fault = "S3: 503, 500 after it was done, slow, reset, expired credentials"
    for number in trials.numbers(fault, 2, 200):
        run = Place(place.bucket)
        seed = trials.chance.randrange(10**9)
        fence = S3Fence.claim(run.objects())
        place.bucket.break_(*faults_of_a_save(trials.chance), seed=seed)
        store = run.store()
        save(store, 10, fence.attempt, fence.check)
        save(store, 20, fence.attempt, fence.check)
        store.mark_known_good(20)
        store.delete(10)
        assert any(seen["fault"] for seen in place.bucket.seen()), (number, seed)
        assert assert_sound(run) == [20], (number, seed)
        assert run.store().last_known_good() == 20
        S3Fence.claim(run.objects())
        run.store().sweep()  # of uploads whose number was lost with the answer
        assert assert_sound(run) == [20]
        assert run.rubbish() == [], (number, seed)
    trials.passed = True


def test_a_bucket_that_is_gone_fails_the_save_and_leaves_the_last_one(
    place: Place, trials: Trials
) -> None:
    chance = trials.chance
    for _ in trials.numbers("S3: gone in the middle of a save", 2, 50):
        run = Place(
            place.bucket, RetryPolicy(total_s=0.05, first_s=0.001, longest_s=0.01, answer_s=5)
        )
        store = run.store()
        place.bucket.break_()
        save(store, 10)
        kinds: list[Kind] = ["503", "reset", "reset after", "500 after"]
        skip, kind = chance.randrange(8), chance.choice(kinds)
        place.bucket.break_(Fault(kind=kind, match="^(PUT|POST)", skip=skip))
        try:
            save(store, 20)
        except ObjectError:
            assert 10 in assert_sound(run)
        else:
            assert assert_sound(run) == [10, 20]
        run.store().sweep()
        assert assert_sound(run) in ([10], [10, 20])
    trials.passed = True


@pytest.mark.parametrize("kind", ["500 after", "reset after"])
def test_a_manifest_whose_answer_is_lost_is_published_once(place: Place, kind: Kind) -> None:
    store = place.store()
    fault = Fault(kind=kind, match=r"^PUT .*/manifest\.json", times=1)
    place.bucket.break_(fault)
    assert save(store, 10).files
    puts = [
        s
        for s in place.bucket.seen()
        if s["request"].startswith("PUT") and "manifest" in s["request"]
    ]
    assert [seen["status"] for seen in puts] == [500 if kind == "500 after" else 200, 412]
    assert assert_sound(place) == [10]


@pytest.mark.parametrize("kind", ["500 after", "reset after"])
def test_an_upload_whose_completion_is_not_answered_is_complete(place: Place, kind: Kind) -> None:
    place.bucket.break_(Fault(kind=kind, match=r"^POST .*uploadId=", times=2))
    save(place.store(), 10)
    assert assert_sound(place) == [10]
    assert place.rubbish() == []


def test_expired_credentials_are_refreshed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    url = f"{place.bucket.endpoint}/_credentials"
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", url)
    objects = place.bucket.objects(place.prefix, own_connection=True)
    save(place.store(objects), 10)
    (key,) = {seen["request"].split("key=")[1] for seen in place.bucket.seen()}
    assert key.startswith("KEY")
    place.bucket.break_(Fault(kind="expired", match=f"key={key}$"))
    save(place.store(objects), 20)
    assert [seen["fault"] for seen in place.bucket.seen()].count("expired") <= 4
    assert assert_sound(place) == [10, 20]


def test_credentials_that_expire_before_a_bodyless_request_are_refreshed(
    place: Place,
) -> None:
    save(place.store(), 10)
    place.bucket.break_(Fault(kind="expired", match="^HEAD", times=2))
    assert place.store().steps() == [10]
    assert len(place.bucket.seen()) == 4  # a list, and two tries too many


def test_expired_credentials_without_renewal_fail_with_one_line(place: Place) -> None:
    impatient = RetryPolicy(total_s=0.05, first_s=0.001, longest_s=0.01)
    store = place.store(place.bucket.objects(place.prefix, impatient))
    place.bucket.break_(Fault(kind="expired"))
    with pytest.raises(AccessDenied, match="400 ExpiredToken: The provided token has expired"):
        save(store, 10)
    assert assert_sound(place) == []


def test_a_refusal_is_not_tried_again(place: Place) -> None:
    place.bucket.break_(Fault(kind="denied"))
    with pytest.raises(AccessDenied, match="403 AccessDenied"):
        place.store().steps()
    assert len(place.bucket.seen()) == 1


def test_credentials_come_from_the_environment_and_nowhere_else(
    place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    file = tmp_path / "credentials"
    file.write_text("[default]\naws_access_key_id = a\naws_secret_access_key = b\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setenv("AWS_PROFILE", "default")
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", place.bucket.endpoint)
    with pytest.raises(AccessDenied, match="no AWS credentials in the environment"):
        place.bucket.objects(place.prefix, own_connection=True).read("x")
    assert place.bucket.seen() == []


def test_damage_in_the_bucket_is_found(place: Place) -> None:
    store, objects = place.store(), place.objects().below("checkpoints")
    save(store, 10)
    save(store, 20)
    for name in (MODEL, "manifest.json"):
        inner = "" if name == "manifest.json" else "/attempt-00000001"
        there, elsewhere = (f"{folder_name(step)}{inner}/{name}" for step in (20, 10))
        whole, other = objects.read(there), objects.read(elsewhere)
        for damage in (whole[:-1], flipped(whole), None, other, whole + b"x"):
            if damage is None:
                objects.delete([there])
            else:
                objects.put(there, damage)
            (mistake,) = store.verify(20)
            assert name in mistake or "manifest" in mistake
            with pytest.raises(CorruptCheckpoint):
                store.manifest(20)
                store.read(20, name)
            objects.put(there, whole)
        assert store.verify(20) == []


def flipped(whole: bytes) -> bytes:
    """One bit of it."""
    middle = len(whole) // 2
    return whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]


@pytest.mark.parametrize("kind", ["reset", "503", "truncate"])
def test_reading_survives_what_can_be_tried_again(place: Place, kind: Kind) -> None:
    save(place.store(), 10)
    fault = Fault(kind=kind, match="^GET", share=0.5, times=20)
    place.bucket.break_(fault, seed=3)
    assert_loads(place.store(), 10)
    assert [seen["fault"] for seen in place.bucket.seen()].count(kind) > 2


def test_a_bucket_that_cannot_be_reached_is_no_corrupt_checkpoint(place: Place) -> None:
    save(place.store(), 10)
    impatient = RetryPolicy(total_s=0.05, first_s=0.001, longest_s=0.01)
    store = place.store(place.bucket.objects(place.prefix, impatient))
    place.bucket.break_(Fault(kind="503"))
    for ask in (store.steps, lambda: store.manifest(10), lambda: store.verify(10)):
        with pytest.raises(ObjectsUnavailable, match="503 SlowDown"):
            ask()


def test_files_next_to_the_manifest_are_read_as_a_file_system_exports_them(
    place: Place, tmp_path: Path
) -> None:
    posix = PosixStore(tmp_path)
    save(posix, 10)
    objects = place.objects().below("checkpoints")
    for file in (tmp_path / folder_name(10)).iterdir():
        objects.put(f"{folder_name(10)}/{file.name}", file.read_bytes())
    assert assert_sound(place) == [10]
    place.store().sweep()
    assert assert_sound(place) == [10]


def test_what_is_deleted_is_gone_and_what_is_set_aside_stays_until_the_sweep(place: Place) -> None:
    store = place.store()
    for step in (10, 20, 30):
        save(store, step)
    store.delete(10)
    store.delete(11)
    store.set_aside(20)
    assert store.steps() == place.store().steps() == [30]
    assert len(place.rubbish()) == 3
    S3Fence.claim(place.objects())
    fence = S3Fence.claim(place.objects())
    store.sweep()
    assert place.rubbish() == []
    save(store, 20, fence.attempt, fence.check)
    save(store, 10, fence.attempt, fence.check)
    assert assert_sound(place) == [10, 20, 30]
