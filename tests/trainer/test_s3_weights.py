"""Models from S3: only content that S3 states a checksum of, and resumed at the last byte."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from tests.s3 import bucket as s3
from trainer.prepare.progress import no_progress
from trainer.weights import bucket as weights_bucket
from trainer.weights.bucket import Bucket
from trainer.weights.checksums import MD5, SHA256, Checksum, RunningChecksum
from trainer.weights.fetch import Fetch
from trainer.weights.files import WeightsError
from trainer.weights.reference import BucketModel
from trainyard.objects.location import Location

WEIGHTS = bytes(range(256)) * 64
PREFIX = "research/models/"


@pytest.fixture
def place(bucket: s3.Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Bucket, str]:
    prefix = f"{PREFIX}{tmp_path.name}"
    objects = bucket.objects(prefix + "/")
    objects.put("config.json", b"{}")
    objects.put("model.safetensors", WEIGHTS)
    objects.put("optimizer.pt", b"pickled")
    found = Bucket(BucketModel(location=Location.parse(bucket.url(prefix))))
    monkeypatch.setattr(found, "_objects", objects)
    return found, bucket.url(prefix)


def fetch(place: tuple[Bucket, str], folder: Path) -> bool:
    return Fetch(
        place=place[0],
        source=place[1],
        folder=folder,
        progress=no_progress,
        pause=lambda _: None,
    ).run()


def test_a_model_is_fetched_from_a_prefix(place: tuple[Bucket, str], tmp_path: Path) -> None:
    assert fetch(place, tmp_path / "tiny")
    assert (tmp_path / "tiny" / "model.safetensors").read_bytes() == WEIGHTS
    assert not (tmp_path / "tiny" / "optimizer.pt").exists()
    assert not fetch(place, tmp_path / "tiny")


def test_content_that_was_changed_on_the_way_is_not_published(
    place: tuple[Bucket, str], bucket: s3.Bucket, tmp_path: Path
) -> None:
    bucket.break_(s3.Fault(kind="flip", match=r"^GET .*model\.safetensors"))
    with pytest.raises(WeightsError, match="differs from the checksum"):
        fetch(place, tmp_path / "tiny")
    bucket.break_()
    assert not (tmp_path / "tiny").exists()
    assert fetch(place, tmp_path / "tiny")


def test_a_fetch_continues_after_the_last_chunk(
    place: tuple[Bucket, str],
    bucket: s3.Bucket,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(weights_bucket, "CHUNK_BYTES", 4096)
    bucket.break_(s3.Fault(kind="denied", match=r"GET .*model\.safetensors", skip=2))
    with pytest.raises(WeightsError):
        fetch(place, tmp_path / "tiny")
    bucket.break_()
    assert fetch(place, tmp_path / "tiny")
    reads = [
        one
        for one in bucket.seen()
        if one["request"].startswith("GET") and "model.saf" in one["request"]
    ]
    assert len(reads) == len(WEIGHTS) // 4096 - 2
    assert (tmp_path / "tiny" / "model.safetensors").read_bytes() == WEIGHTS


def head(**more: Any) -> dict[str, Any]:
    return {"ETag": f'"{hashlib.md5(WEIGHTS).hexdigest()}"', "ContentLength": 4096, **more}


def test_checksums_of_parts_are_computed_as_s3_does(
    place: tuple[Bucket, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 5000
    parts = [WEIGHTS[at : at + size] for at in range(0, len(WEIGHTS), size)]
    digest = hashlib.md5(b"".join(hashlib.md5(one).digest() for one in parts)).hexdigest()
    wanted = Checksum(algorithm=MD5, digest=digest, part_bytes=size)
    objects = place[0]._objects
    monkeypatch.setattr(type(objects), "call", lambda *_, **__: head(ContentLength=size))
    listed = type("Listed", (), {"name": "model.safetensors", "bytes": len(WEIGHTS)})()
    etag = f'"{digest}-{len(parts)}"'
    assert list(place[0]._checksums(listed, {"ETag": etag})) == [wanted]
    for block in (700, size, 8192, len(WEIGHTS)):
        running, other = (RunningChecksum(wanted, len(WEIGHTS)) for _ in range(2))
        for at in range(0, len(WEIGHTS), block):
            running.update(WEIGHTS[at : at + block])
            other.update(WEIGHTS[at : at + block].replace(b"\x07", b"\x08"))
        assert running.matches()
        assert not other.matches()


def test_the_etag_of_an_object_encrypted_with_kms_is_no_checksum(place: tuple[Bucket, str]) -> None:
    listed: Any = type("Listed", (), {"name": "model.safetensors", "bytes": len(WEIGHTS)})()
    assert [one.algorithm for one in place[0]._checksums(listed, head())] == [MD5]
    kms = head(ServerSideEncryption="aws:kms")
    assert list(place[0]._checksums(listed, kms)) == []
    stated = kms | {"ChecksumSHA256": "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="}
    assert [one.algorithm for one in place[0]._checksums(listed, stated)] == [SHA256]


def test_an_object_that_cannot_be_verified_is_refused_with_the_remedy(
    place: tuple[Bucket, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place[0], "_checksums", lambda *_: iter(()))
    with pytest.raises(WeightsError, match="--checksum-algorithm SHA256"):
        fetch(place, tmp_path / "tiny")
