"""Runs whose checkpoints are in a bucket end as if they were in a folder, and as if nothing had happened."""

from __future__ import annotations

import random
import shutil
import signal
from collections.abc import Iterator

import pytest

from tests.s3.bucket import Bucket, Fault
from tests.trainer.ranks import RunFiles, until
from tests.trainer.runs import INTERVAL, STEPS, Trainer, assert_same
from trainyard.store.s3 import S3Store

pytestmark = pytest.mark.long(76)


@pytest.fixture
def place(bucket: Bucket, trainer: Trainer) -> Iterator[str]:
    """Of one test's run, on a way without faults."""
    bucket.break_()
    yield bucket.url(f"runs/{trainer.root.name}")
    bucket.break_()


def store_of(bucket: Bucket, place: str) -> S3Store:
    return S3Store(bucket.objects(place.removeprefix(f"s3://{bucket.name}/")))


def test_a_rank_killed_at_any_step_resumes_from_the_bucket_with_the_same_bits(
    trainer: Trainer, control: RunFiles, bucket: Bucket, place: str, chance: random.Random
) -> None:
    files, step = trainer.files("run"), chance.randrange(INTERVAL + 1, STEPS - 2)
    ranks = trainer.start("run", f"checkpoint.store={place}")
    files.until_step(step)
    until(lambda: files.events("checkpoint_commit") or ranks.all_ended(), "a checkpoint")
    ranks.signal(signal.SIGKILL, chance.randrange(2))
    codes = ranks.wait()
    if codes != [0, 0]:
        assert trainer.run("run", f"checkpoint.store={place}") == [0, 0]
        assert files.events("resumed")[-1]["from_step"] % INTERVAL == 0
    assert_same(files, control)
    assert not (files.path / "checkpoints").exists()
    store = store_of(bucket, place)
    assert store.steps()[-1] == STEPS
    assert [store.verify(kept) for kept in store.steps()] == [[]] * len(store.steps())
    commits = files.events("checkpoint_commit")
    assert commits[-1]["path"] == f"{place}/checkpoints/step-{STEPS:08d}"


def test_a_notice_saves_to_the_bucket_and_another_machine_goes_on_from_there(
    trainer: Trainer, control: RunFiles, place: str, chance: random.Random
) -> None:
    files, step = trainer.files("run"), chance.randrange(2, STEPS - 4)
    told = [chance.randrange(2)]
    ranks = trainer.stop("run", step, f"checkpoint.store={place}", to=told)
    assert ranks.wait() == [75, 75]
    stopped = files.last_step()
    elsewhere = trainer.files("elsewhere")
    elsewhere.path.mkdir()
    shutil.copy(files.path / "metrics.jsonl", elsewhere.path)
    assert trainer.run("elsewhere", f"checkpoint.store={place}") == [0, 0]
    assert elsewhere.events("resumed")[-1]["from_step"] == stopped
    assert elsewhere.events("started")[-1]["attempt"] == 2
    assert elsewhere.losses() == control.losses()


def test_a_finished_run_is_whole_in_its_bucket(
    trainer: Trainer, bucket: Bucket, place: str
) -> None:
    files = trainer.files("run")
    assert trainer.run("run", "steps=6", f"checkpoint.store={place}", "checkpoint.export=true") == [
        0,
        0,
    ]
    there = bucket.objects(place.removeprefix(f"s3://{bucket.name}/"))
    for name in ("metrics.jsonl", "export/model.safetensors", "export/config.json"):
        assert there.read(name) == (files.path / name).read_bytes(), name
    (copied,) = files.events("results_copied")
    assert copied["to"] == place and copied["files"] >= 5
    assert not (files.path / "checkpoints").exists()


def test_a_bucket_that_throttles_and_deletes_nothing_costs_no_checkpoint_and_no_bit(
    trainer: Trainer, control: RunFiles, bucket: Bucket, place: str, chance: random.Random
) -> None:
    faults = (
        Fault(kind="denied", match=r"^POST .*\?delete"),
        Fault(kind="503", share=0.2),
        Fault(kind="500 after", match="^(PUT|POST)", share=0.1),
        Fault(kind="reset", share=0.05),
    )
    bucket.break_(*faults, seed=chance.randrange(10**6))
    ranks = trainer.start("run", f"checkpoint.store={place}")
    assert ranks.wait() == [0, 0]
    assert "old checkpoints not removed" in ranks.output()
    files = trainer.files("run")
    assert len([seen for seen in bucket.seen() if seen["fault"]]) > 5
    assert not files.events("checkpoint_failed")
    assert_same(files, control)


def test_a_bucket_that_refuses_stops_no_training_but_is_no_success_either(
    trainer: Trainer, control: RunFiles, bucket: Bucket, place: str
) -> None:
    bucket.break_(Fault(kind="denied", match=r"^(PUT|POST) .*/step-000000(15|2.)/"))
    assert trainer.run("run", f"checkpoint.store={place}") == [1, 1]
    files = trainer.files("run")
    assert files.losses() == control.losses()
    failed = files.events("checkpoint_failed")
    assert [event["step"] for event in failed] == [15, 20, STEPS]
    assert all("403 AccessDenied" in event["error"] for event in failed)
    assert store_of(bucket, place).steps() == [5, 10]
    bucket.break_()
    assert trainer.run("run", f"checkpoint.store={place}") == [0, 0]
    assert_same(files, control)


def test_denied_bucket_access_at_startup_is_one_line_per_rank(
    trainer: Trainer, bucket: Bucket, place: str
) -> None:
    bucket.break_(Fault(kind="denied"))
    ranks = trainer.start("run", f"checkpoint.store={place}")
    assert ranks.wait() == [1, 1]
    said = f"{place}/checkpoints: 403 AccessDenied: Access Denied"
    assert sorted(ranks.output().splitlines()) == [f"rank 0: {said}", f"rank 1: {said}"]


def test_an_unresponsive_bucket_does_not_delay_exit_past_the_deadline(
    trainer: Trainer, control: RunFiles, bucket: Bucket, place: str
) -> None:
    files, settings = trainer.files("run"), (f"checkpoint.store={place}", "checkpoint.deadline_s=2")
    bucket.break_(Fault(kind="hold", match="^(PUT|POST) .*/step-000000(1|2)"))
    ranks = trainer.start("run", *settings)
    until(lambda: any(seen["fault"] for seen in bucket.seen()), "a save that gets no answer")
    ranks.signal(signal.SIGTERM)
    assert ranks.wait() == [75, 75]
    assert "not written within" in files.events("checkpoint_failed")[-1]["error"]
    bucket.break_()
    assert trainer.run("run", *settings) == [0, 0]
    assert files.events("resumed")[-1]["from_step"] == INTERVAL
    assert_same(files, control)


def test_what_each_rank_of_a_sharded_run_puts_into_a_bucket_loads_on_one_rank(
    trainer: Trainer, bucket: Bucket, place: str
) -> None:
    settings = (f"checkpoint.store={place}", "schedule.warmup_steps=1")
    assert trainer.run("run", *settings, "steps=5", "parallel.shard=2") == [0, 0]
    store = store_of(bucket, place)
    assert store.steps() == [5] and store.verify(5) == []
    assert store.manifest(5).trainer["metadata"]["parallelism"] == {"shard": 2}
    assert len([name for name in store.manifest(5).files if name.startswith("model")]) == 2
    assert trainer.run("run", *settings, "steps=7", world=1) == [0]
    files = trainer.files("run")
    assert files.events("resumed")[-1]["from_step"] == 5
    assert len(files.losses()) == 7
    assert store.manifest(7).trainer["metadata"]["parallelism"] == {"data": 1}
