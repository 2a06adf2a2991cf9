"""Elastic runs whose checkpoints are in a bucket: only the leader of the newest view publishes there."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.s3.bucket import Bucket
from tests.trainer.elastic_groups import (
    SILENT,
    ElasticRun,
    groups_of_one_or_two,
    grown,
)
from tests.trainer.ranks import Hook, until
from tests.trainer.runs import Trainer
from trainyard.store.s3 import S3Store
from trainyard.store.s3_fence import newest_attempt

pytestmark = pytest.mark.long(66)


@pytest.fixture
def prefix(bucket: Bucket, trainer: Trainer) -> str:
    """Where the run of one test has its checkpoints."""
    bucket.break_()
    return f"elastic/{trainer.root.name}"


@pytest.fixture
def stored(elastic: ElasticRun, bucket: Bucket, prefix: str) -> ElasticRun:
    """A run with its checkpoints in the bucket."""
    elastic.settings += (f"checkpoint.store={bucket.url(prefix)}",)
    return elastic


def commits(run: ElasticRun) -> list[int]:
    """Return the attempts that published checkpoints, in their order."""
    return [event["attempt"] for event in run.files.events("checkpoint_commit")]


@groups_of_one_or_two
def test_after_the_loss_of_all_groups_the_next_ones_resume_from_the_bucket(
    stored: ElasticRun, bucket: Bucket, prefix: str
) -> None:
    grown(stored, 2)
    until(lambda: commits(stored), "a checkpoint")
    for group in stored.groups:
        group.signal(signal.SIGKILL)
    for group in stored.groups:
        group.wait()
    store = S3Store(bucket.objects(prefix))
    newest, attempt = store.steps()[-1], newest_attempt(bucket.objects(prefix))
    for _ in range(2):
        stored.add()
    until(lambda: stored.files.events("resumed"), "the resumed run")
    stored.until_groups(2)
    until(lambda: commits(stored)[-1] > attempt, f"a checkpoint: {stored.output()}", 60)
    assert stored.files.events("resumed")[-1]["from_step"] == newest
    assert [store.verify(step) for step in (newest, store.steps()[-1])] == [[], []]
    assert not (stored.files.path / "checkpoints").exists()


def held(owner: Any, name: str, folder: Path) -> None:
    """Have the first call of a function in any process, once `folder/hold` exists, wait for `folder/go`.

    Its error is in `folder/error` then: the process may belong to no group by that time, and write no event.
    """
    plain = getattr(owner, name)

    def waiting(*arguments: Any) -> Any:
        try:
            (folder / "hold").rename(folder / "waiting")
        except FileNotFoundError:
            return plain(*arguments)
        until((folder / "go").exists, "the test")
        try:
            return plain(*arguments)
        except Exception as error:
            (folder / "error").write_text(str(error))
            raise

    pytest.MonkeyPatch().setattr(owner, name, waiting)


def late_to_publish(folder: Path) -> Hook:
    """Hold a leader between its upload and the check of its fence."""

    def hook(_: int) -> None:
        from trainyard.store.s3_fence import S3Fence

        held(S3Fence, "check", folder)

    return hook


def late_to_claim(folder: Path) -> Hook:
    """Hold a new leader before it claims its attempt."""

    def hook(rank: int) -> None:
        from trainer import groups

        if rank == 0:
            held(groups, "claim", folder)

    return hook


def replace_and_wake(run: ElasticRun, group: int, folder: Path, attempt: int) -> None:
    """Stop a leader that is held, let its successor save, and wake it."""
    until((folder / "waiting").exists, f"the leader: {run.output()}")
    run.groups[group].signal(signal.SIGSTOP)
    until(lambda: attempt in commits(run), f"its successor's checkpoint: {run.output()}")
    (folder / "go").touch()
    run.groups[group].signal(signal.SIGCONT)
    run.until_groups(2)
    saved = len(commits(run))
    until(lambda: len(commits(run)) > saved, f"a further checkpoint: {run.output()}")


@groups_of_one_or_two
def test_a_leader_that_lost_its_place_does_not_publish(stored: ElasticRun, tmp_path: Path) -> None:
    stored.settings += (SILENT,)
    grown(stored, 2, late_to_publish(tmp_path))
    (tmp_path / "hold").touch()
    replace_and_wake(stored, 0, tmp_path, attempt=2)
    assert "joins again" in stored.groups[0].output()
    until((tmp_path / "error").exists, f"its refused publication: {stored.output()}")
    until(
        lambda: (tmp_path / "error").read_text().startswith("attempt 1 was replaced"),
        "the reason",
    )
    found = commits(stored)
    assert found == sorted(found) and set(found) <= {1, 2}


@groups_of_one_or_two
def test_a_leader_that_claims_late_does_not_stop_its_successor(
    stored: ElasticRun, tmp_path: Path
) -> None:
    stored.settings += (SILENT,)
    grown(stored, 3, late_to_claim(tmp_path))
    until(lambda: commits(stored), "a checkpoint")
    (tmp_path / "hold").touch()
    stored.groups[0].signal(signal.SIGKILL)
    replace_and_wake(stored, 1, tmp_path, attempt=3)
    assert "joins again" in stored.groups[1].output()
    assert not stored.groups[2].all_ended()
    assert set(commits(stored)) == {1, 3}
