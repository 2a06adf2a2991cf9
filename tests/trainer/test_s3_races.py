"""Attempts that die, are cut off, or come back late: the bucket has whole checkpoints or none."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tests import waiting
from tests.s3.bucket import Bucket, Fault, Kind
from tests.trainer.fault_table import Trials
from tests.trainer.s3_places import MODEL, Place, assert_sound, content, no_fence, save
from tests.unit.trainer.checkpoints import draft
from trainyard.objects import ObjectError, Objects
from trainyard.store.interface import StaleAttempt
from trainyard.store.s3_fence import S3Fence, newest_attempt

pytestmark = pytest.mark.long(29)
WRITES = "^(PUT|POST|DELETE)"
MANIFEST_PUT = r"^PUT .*step-00000020/manifest\.json"


@pytest.fixture
def place(bucket: Bucket) -> Iterator[Place]:
    """A place for a run, on a way without faults."""
    bucket.break_()
    yield Place(bucket)
    bucket.break_()


@pytest.fixture(scope="module")
def unused(bucket: Bucket) -> Objects:
    """A connection that no process has used yet: each child makes it its own."""
    objects = bucket.objects("", own_connection=True)
    assert objects.connection.client()
    return objects


def held(place: Place) -> list[str]:
    """Requests that wait for an answer that will not come."""
    return [s["request"] for s in place.bucket.seen() if s["fault"] in ("hold", "hold after")]


def start_child(place: Place, unused: Objects, attempt: int) -> int:
    """Save step 20 in a process of its own."""
    child = os.fork()
    if child == 0:
        objects = unused.below("team").below(place.prefix.removeprefix("team/"))
        fence = S3Fence(objects, attempt)
        try:
            save(place.store(objects), 20, attempt, fence.check)
        except BaseException:
            os._exit(1)
        os._exit(0)
    return child


def end(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def writes_of_a_save(place: Place) -> int:
    """How many requests of a save change something."""
    place.bucket.break_()
    save(place.store(), 20)
    return sum(seen["request"].startswith(("PUT", "POST")) for seen in place.bucket.seen())


def test_killed_at_every_write_of_a_save_the_old_or_the_new_one_is_there(
    bucket: Bucket, unused: Objects, trials: Trials
) -> None:
    count = writes_of_a_save(Place(bucket))
    assert count == 11
    kinds: list[Kind] = ["hold", "hold after"]
    boundaries = [(number, kind) for number in range(count) for kind in kinds]
    must: list[tuple[int, Kind]] = [
        (count - 1, "hold"),
        (count - 1, "hold after"),
    ]  # the manifest's own
    some = [*trials.chance.sample(boundaries, 1), *must]
    for trial in trials.numbers(
        "S3: SIGKILL at every request of a save", len(some), len(boundaries)
    ):
        number, kind = (boundaries if trials.full else some)[trial]
        place = Place(bucket)
        bucket.break_()
        fence = S3Fence.claim(place.objects())
        save(place.store(), 10, fence.attempt, fence.check)
        bucket.break_(Fault(kind=kind, match=WRITES, skip=number, times=1))
        child = start_child(place, unused, fence.attempt)
        waiting.until(partial(held, place), f"boundary {number}", 90.0, every_s=0.002)
        end(child)
        new = number == count - 1 and kind == "hold after"
        assert assert_sound(place) == ([10, 20] if new else [10])
        fence = S3Fence.claim(place.objects())
        store = place.store()
        store.sweep()
        assert place.rubbish() == []
        save(store, 20, fence.attempt, fence.check)
        assert assert_sound(place) == [10, 20]
    trials.passed = True


def publish_late(place: Place, meanwhile: Callable[[], None]) -> None:
    """Attempt 1 writes step 20; after its fence was asked, and before it publishes: `meanwhile`."""
    old = S3Fence.claim(place.objects())
    upload = place.store().begin(20, old.attempt)
    files = {name: upload.put(name, [data]) for name, data in content(20).items()}
    left = [meanwhile]

    def fence() -> None:
        old.check()
        if left:
            left.pop()()

    try:
        upload.commit(draft(20).with_files(files), fence)
    finally:
        upload.abort()


def test_a_manifest_that_comes_late_finds_its_step_closed(place: Place) -> None:
    def replaced() -> None:
        S3Fence.claim(place.objects())
        place.store().sweep()

    with pytest.raises(StaleAttempt, match="attempt 1 was replaced by attempt-00000002"):
        publish_late(place, replaced)
    assert assert_sound(place) == []
    assert place.rubbish() == []


def test_a_manifest_that_comes_late_finds_the_same_step_of_the_next_attempt(place: Place) -> None:
    def overtaken() -> None:
        new = S3Fence.claim(place.objects())
        place.store().sweep()
        save(place.store(), 20, new.attempt, new.check)

    publish_late(place, overtaken)
    assert place.store().manifest(20).attempt == 2
    assert assert_sound(place) == [20]
    assert place.rubbish() == []


def test_a_manifest_that_comes_late_finds_its_step_deleted_again(place: Place) -> None:
    def overtaken() -> None:
        new = S3Fence.claim(place.objects())
        store = place.store()
        store.sweep()
        save(store, 20, new.attempt, new.check)
        store.delete(20)

    with pytest.raises(StaleAttempt):
        publish_late(place, overtaken)
    assert assert_sound(place) == []
    assert place.rubbish() == []


def test_a_manifest_published_while_another_attempt_sweeps_keeps_its_files(place: Place) -> None:
    """The other order: it was on its way when the next attempt looked, and came first."""
    fence = S3Fence.claim(place.objects())
    S3Fence.claim(place.objects())
    save(place.store(), 20, fence.attempt, no_fence)
    place.store().sweep()
    assert assert_sound(place) == [20]


def test_an_attempt_that_gives_up_leaves_nothing_and_stops_its_own_late_manifest(
    place: Place,
) -> None:
    """Whichever rank gives up: the leader's manifest may be on its way still."""
    leader, other = (place.store().begin(20, 1) for _ in range(2))
    files = {name: leader.put(name, [data]) for name, data in content(20).items()}
    asked: list[str] = []

    def another_rank_gives_up() -> None:
        if not asked:
            asked.append("once")
            other.abort()

    with pytest.raises(ObjectError, match="another rank gave up"):
        leader.commit(draft(20).with_files(files), another_rank_gives_up)
    assert assert_sound(place) == []
    assert place.rubbish() == []


def test_giving_up_after_the_manifest_is_there_takes_nothing_away(place: Place) -> None:
    leader, other = (place.store().begin(20, 1) for _ in range(2))
    files = {name: leader.put(name, [data]) for name, data in content(20).items()}
    place.bucket.break_(Fault(kind="reset after", match=MANIFEST_PUT, times=1))
    leader.commit(draft(20).with_files(files), no_fence)
    leader.abort()
    other.abort()
    assert assert_sound(place) == [20]


def test_a_whole_checkpoint_is_kept_and_a_corrupt_one_gives_way(place: Place) -> None:
    save(place.store(), 20, 1)
    assert save(place.store(), 20, 2).attempt == 1
    assert place.rubbish() == []
    name = f"step-00000020/attempt-00000001/{MODEL}"
    place.objects().below("checkpoints").put(name, b"something else")
    assert save(place.store(), 20, 3).attempt == 3
    assert assert_sound(place) == [20]


def test_attempts_that_claim_at_once_get_different_numbers(place: Place) -> None:
    claimed: list[int] = []

    def claim() -> None:
        claimed.append(S3Fence.claim(place.objects()).attempt)

    place.bucket.break_(Fault(kind="reset after", match="^PUT", share=0.3), seed=5)
    threads = [threading.Thread(target=claim) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(claimed) == [1, 2, 3, 4, 5, 6]
    assert newest_attempt(place.objects()) == 6


def test_only_the_newest_attempt_may_publish(place: Place) -> None:
    old = S3Fence.claim(place.objects())
    old.check()
    new = S3Fence.claim(place.objects(), above=7)
    assert new.attempt == 8
    new.check()
    with pytest.raises(StaleAttempt):
        save(place.store(), 20, old.attempt, old.check)
    assert assert_sound(place) == []
    place.bucket.break_(Fault(kind="denied"))
    with pytest.raises(ObjectError):
        new.check()


def test_a_given_attempt_is_claimed_once_and_only_as_the_highest(place: Place) -> None:
    place.bucket.break_(Fault(kind="reset after", match="^PUT", times=1))
    S3Fence.claim(place.objects(), number=5).check()
    for number in (5, 4):
        with pytest.raises(StaleAttempt):
            S3Fence.claim(place.objects(), number=number)
    assert S3Fence.claim(place.objects()).attempt == 6


def test_the_sweep_touches_older_attempts_only_and_does_without_the_right_to_list_uploads(
    place: Place,
) -> None:
    store, objects = place.store(), place.objects().below("checkpoints")
    for _ in range(2):
        S3Fence.claim(place.objects())
    name = "step-00000020/attempt-0000000{}/x"
    for attempt in (1, 2, 3):
        objects.put(name.format(attempt), b"x")
        objects.call("create_multipart_upload", name.format(attempt))
    place.bucket.break_(Fault(kind="denied", match=r"^GET .*[?&]uploads"))
    store.sweep()
    place.bucket.break_()
    assert len(place.rubbish()) == 5
    store.sweep()
    ours = [name.format(number) for number in (2, 3)]
    assert place.rubbish() == [*ours, *(f"checkpoints/{file}" for file in ours)]
    assert store.steps() == []
