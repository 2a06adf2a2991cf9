"""Models from S3: compared with the SHA-256 that S3 states, and resumed after the last object."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.s3 import bucket as s3
from trainer.prepare.state import RetryableError, no_progress
from trainer.weights import fetch as fetching
from trainer.weights.places import Bucket, WeightsError
from trainer.weights.reference import BucketModel
from trainyard.objects.location import Location

WEIGHTS = bytes(range(256)) * 64
PREFIX = "research/models/"


@pytest.fixture
def place(bucket: s3.Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Bucket, str]:
    prefix = f"{PREFIX}{tmp_path.name}"
    objects = bucket.objects(prefix + "/")
    objects.put("config.json", b"{}")
    objects.call("put_object", "model.safetensors", Body=WEIGHTS, ChecksumAlgorithm="SHA256")
    objects.put("optimizer.pt", b"pickled")
    found = Bucket(BucketModel(location=Location.parse(bucket.url(prefix))))
    monkeypatch.setattr(found, "_objects", objects)
    return found, bucket.url(prefix)


def fetch(place: tuple[Bucket, str], folder: Path) -> bool:
    return fetching.fetch(place[0], place[1], folder, no_progress)


def test_a_model_is_fetched_from_a_prefix(place: tuple[Bucket, str], tmp_path: Path) -> None:
    assert fetch(place, tmp_path / "tiny")
    assert (tmp_path / "tiny" / "model.safetensors").read_bytes() == WEIGHTS
    assert not (tmp_path / "tiny" / "optimizer.pt").exists()
    assert not fetch(place, tmp_path / "tiny")


def test_content_that_was_changed_on_the_way_is_not_published(
    place: tuple[Bucket, str], bucket: s3.Bucket, tmp_path: Path
) -> None:
    bucket.break_(s3.Fault(kind="flip", match=r"^GET .*model\.safetensors"))
    with pytest.raises(RetryableError, match="differs from the checksum"):
        fetch(place, tmp_path / "tiny")
    bucket.break_()
    assert not (tmp_path / "tiny").exists()
    assert fetch(place, tmp_path / "tiny")


def test_a_fetch_continues_with_the_objects_that_are_missing(
    place: tuple[Bucket, str], bucket: s3.Bucket, tmp_path: Path
) -> None:
    bucket.break_(s3.Fault(kind="denied", match=r"^GET .*model\.safetensors"))
    with pytest.raises(WeightsError):
        fetch(place, tmp_path / "tiny")
    bucket.break_()
    assert fetch(place, tmp_path / "tiny")
    read = [one["request"] for one in bucket.seen() if one["request"].startswith("GET /")]
    assert not [one for one in read if "config.json" in one]
    assert (tmp_path / "tiny" / "model.safetensors").read_bytes() == WEIGHTS
