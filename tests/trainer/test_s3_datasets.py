"""Datasets in a bucket are staged with every byte checked; text in a bucket is prepared as a folder's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.s3.bucket import Bucket, Fault
from tests.unit.trainer.datasets import dataset
from training.prepare.dataset import DatasetError, verify_files
from training.prepare.download import local_folder
from training.prepare.source import open_source
from training.prepare.writer import Settings, no_progress, prepare
from training.trainer.data.local_cache import cache_version, latest_version, open_dataset_source

SETTINGS = Settings(eval_fraction=0.3, shard_tokens=2000)


@pytest.fixture
def url(bucket: Bucket, tmp_path: Path) -> str:
    """A small dataset in the bucket, under a prefix of its own."""
    prefix = f"datasets/{tmp_path.name}"
    root = tmp_path / "source"
    dataset(root, [list(range(40)), list(range(50, 90))])
    objects = bucket.objects(f"{prefix}/")
    for file in sorted(root.rglob("*")):
        if file.is_file():
            objects.put(file.relative_to(root).as_posix(), file.read_bytes())
    bucket.break_()
    return bucket.url(prefix)


def test_a_dataset_in_a_bucket_is_staged_whole(bucket: Bucket, url: str, tmp_path: Path) -> None:
    place = open_dataset_source(url)
    opened = cache_version(place, latest_version(place), tmp_path / "nvme", full_check=True)
    assert verify_files(opened.folder, opened.index, hashes=True) == []


def test_throttled_requests_are_tried_again(bucket: Bucket, url: str, tmp_path: Path) -> None:
    bucket.break_(Fault(kind="503", share=0.3), seed=4)
    place = open_dataset_source(url)
    opened = cache_version(place, latest_version(place), tmp_path / "nvme", full_check=True)
    bucket.break_()
    assert verify_files(opened.folder, opened.index, hashes=True) == []


def test_a_byte_that_changed_on_the_way_is_found(bucket: Bucket, url: str, tmp_path: Path) -> None:
    place = open_dataset_source(url)
    version = latest_version(place)
    bucket.break_(Fault(kind="flip", match=r"^GET .*shard-train-00001\.bin"))
    with pytest.raises(DatasetError, match=r"s3://.*shard-train-00001\.bin"):
        cache_version(place, version, tmp_path / "nvme", full_check=True)
    bucket.break_()
    assert not (tmp_path / "nvme" / version).exists()


def test_a_missing_object_is_named(bucket: Bucket, url: str, tmp_path: Path) -> None:
    place = open_dataset_source(url)
    version = latest_version(place)
    prefix = url.removeprefix("s3://bucket/")
    bucket.objects(f"{prefix}/").delete([f"{version}/shard-eval-00000.bin"])
    with pytest.raises(DatasetError, match=r"shard-eval-00000\.bin: missing"):
        cache_version(place, version, tmp_path / "nvme", full_check=True)
    with pytest.raises(DatasetError, match="latest: missing"):
        latest_version(open_dataset_source(f"{url}-elsewhere"))


def test_text_in_a_bucket_makes_the_same_version_as_the_same_text_in_a_folder(
    bucket: Bucket, tmp_path: Path
) -> None:
    texts = tmp_path / "texts"
    (texts / "deep").mkdir(parents=True)
    objects = bucket.objects("texts/")
    for number in range(30):
        name, content = f"{'deep/' * (number % 2)}{number}.txt", b"%d words" % number
        (texts / name).write_bytes(content)
        objects.put(name, content)
    objects.put("not-wanted.md", b"left out")
    local, _ = prepare(open_source(str(texts), (".txt",)), tmp_path / "local", SETTINGS)
    out = tmp_path / "fetched"
    with local_folder(bucket.url("texts"), out, (".txt",), no_progress) as folder:
        fetched, _ = prepare(open_source(folder, (".txt",)), out, SETTINGS)
    assert fetched.name == local.name
    assert sorted(path.name for path in out.iterdir()) == sorted(["latest", fetched.name])


def test_a_prefix_with_nothing_below_it_is_refused(bucket: Bucket, tmp_path: Path) -> None:
    with (
        pytest.raises(DatasetError, match=r"s3://bucket/none: no objects found"),
        local_folder(bucket.url("none"), tmp_path / "out", (), no_progress),
    ):
        pass
