"""Models from S3: only content that S3 states a checksum of, and resumed at the last byte."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from tests.s3 import bucket as s3
from trainer.prepare.command import RetryableError
from trainer.prepare.progress import no_progress
from trainer.weights import fetch as fetching
from trainer.weights.bucket import Bucket, _checksums
from trainer.weights.files import CRC32, MD5, SHA256, RemoteFile, WeightsError
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


ETAG = f'"{hashlib.md5(WEIGHTS).hexdigest()}"'
KMS = {"ETag": ETAG, "ServerSideEncryption": "aws:kms"}
SHA = {"ChecksumSHA256": "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="}


@pytest.mark.parametrize(
    ("head", "algorithms"),
    [
        ({"ETag": ETAG}, [MD5]),
        (KMS, []),
        ({"ETag": ETAG, "SSECustomerAlgorithm": "AES256"}, []),
        (KMS | SHA, [SHA256]),
        ({"ETag": ETAG, "ChecksumCRC32": "AAAAAA==-3"} | SHA, [SHA256, CRC32, MD5]),
    ],
)
def test_the_etag_of_an_object_encrypted_with_kms_is_no_checksum(
    head: dict[str, Any], algorithms: list[str]
) -> None:
    assert [algorithm for algorithm, _, _ in _checksums(head)] == algorithms


def test_checksums_of_parts_are_computed_as_s3_does(
    place: tuple[Bucket, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 5000
    parts = [WEIGHTS[at : at + size] for at in range(0, len(WEIGHTS), size)]
    digest = hashlib.md5(b"".join(hashlib.md5(one).digest() for one in parts)).hexdigest()
    head = {"ETag": f'"{digest}-{len(parts)}"', "ContentLength": size}
    monkeypatch.setattr(type(place[0]._objects), "call", lambda *_, **__: head)
    listed: Any = type("Listed", (), {"name": "model.safetensors", "bytes": len(WEIGHTS)})()
    file = place[0]._file(listed)
    expected = RemoteFile(
        name=listed.name, bytes=listed.bytes, algorithm=MD5, digest=digest, part_bytes=size
    )
    assert file == expected
    path = tmp_path / "weights"
    path.write_bytes(WEIGHTS)
    assert file.verify(path) == hashlib.sha256(WEIGHTS).hexdigest()
    path.write_bytes(WEIGHTS.replace(b"\x07", b"\x08"))
    assert not file.verify(path)
    head["ContentLength"] = size // 2
    with pytest.raises(WeightsError, match="--checksum-algorithm SHA256"):
        place[0]._file(listed)
