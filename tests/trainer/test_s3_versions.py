"""docs/recover.md, "Lost or overwritten object": a file of a checkpoint comes back from its versions."""

from __future__ import annotations

from typing import Any

import pytest

from tests.s3 import aws_cli
from tests.s3.bucket import NAME, Bucket
from tests.trainer.s3_places import MODEL, Place, save
from trainer.checkpoint import __main__ as command

pytestmark = pytest.mark.long(11)


def verified(monkeypatch: pytest.MonkeyPatch, where: str) -> int:
    monkeypatch.setattr("sys.argv", ["checkpoint", "verify", where])
    return command.main()


def restore(bucket: Bucket, key: str, index: int) -> None:
    """Follow the page: list the versions of the object, newest first, and copy one over it."""
    listing, copying = aws_cli.commands("docs/recover.md", "Lost or overwritten object")
    found: list[Any] = aws_cli.run(bucket, listing, BUCKET=NAME, KEY=key)["Versions"]
    aws_cli.run(bucket, copying, BUCKET=NAME, KEY=key, VERSION=found[index]["VersionId"])


def test_a_damaged_and_a_deleted_file_come_back_from_their_versions(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bucket.break_()
    aws_cli.keep_versions(bucket)
    place = Place(bucket)
    store = place.store()
    for step in (10, 20):
        save(store, step)
    where = bucket.url(place.prefix)
    key = f"{place.prefix}/checkpoints/step-00000020/attempt-00000001/{MODEL}"
    assert verified(monkeypatch, where) == 0
    client = bucket.connection.client()
    client.put_object(Bucket=NAME, Key=key, Body=b"damaged")
    assert verified(monkeypatch, where) == 1
    assert "got 7 bytes" in capsys.readouterr().out
    restore(bucket, key, 1)
    assert verified(monkeypatch, where) == 0
    client.delete_object(Bucket=NAME, Key=key)
    assert verified(monkeypatch, where) == 1
    restore(bucket, key, 0)
    assert verified(monkeypatch, where) == 0
    assert store.steps() == [10, 20]
