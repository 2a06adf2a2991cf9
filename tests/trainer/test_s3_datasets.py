"""Datasets in a bucket are staged with every byte checked; text in a bucket is prepared as a folder's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.s3.bucket import Bucket, Fault
from tests.unit.trainer.datasets import dataset
from trainer.data.local_cache import cache_version, latest_version
from trainer.prepare.dataset import DatasetError, verify_files
from trainer.prepare.download import local_folder
from trainer.prepare.source import open_source
from trainer.prepare.state import no_progress
from trainer.prepare.writer import Settings, prepare

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
    opened = cache_version(url, latest_version(url), tmp_path / "nvme", full_check=True)
    assert verify_files(opened.folder, opened.index, hashes=True) == []


def test_a_byte_that_changed_on_the_way_is_found(bucket: Bucket, url: str, tmp_path: Path) -> None:
    version = latest_version(url)
    bucket.break_(Fault(kind="flip", match=r"^GET .*shard-train-00001\.bin"))
    with pytest.raises(DatasetError, match=r"s3://.*shard-train-00001\.bin"):
        cache_version(url, version, tmp_path / "nvme", full_check=True)
    bucket.break_()
    assert not (tmp_path / "nvme" / version).exists()


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


def test_an_interrupted_download_continues_with_the_objects_that_it_lacks(
    bucket: Bucket, tmp_path: Path
) -> None:
    objects = bucket.objects("large/")
    for number in range(10):
        objects.put(f"{number}.txt", b"%d words" % number * 100)
    fetched: list[str] = []

    def killed(what: str, done: int, total: int = 0, /) -> None:
        fetched.append(what)
        if len(fetched) == 6:
            raise KeyboardInterrupt

    out, url = tmp_path / "out", bucket.url("large")
    with pytest.raises(KeyboardInterrupt), local_folder(url, out, (), killed):
        pass
    fetched.clear()

    def counted(what: str, done: int, total: int = 0, /) -> None:
        fetched.append(what)

    with local_folder(url, out, (), counted) as folder:
        found = {file.name: file.read_bytes() for file in Path(folder).iterdir()}
    assert len(fetched) == 5
    assert found == {f"{number}.txt": b"%d words" % number * 100 for number in range(10)}
    with pytest.raises(KeyboardInterrupt), local_folder(url, out, (), killed):
        pass
    objects.put("0.txt", b"other words")  # changed in the meantime
    objects.delete(["1.txt"])
    with local_folder(url, out, (), counted) as folder:
        found = {file.name: file.read_bytes() for file in Path(folder).iterdir()}
    assert sorted(found) == [f"{number}.txt" for number in (0, *range(2, 10))]
    assert found["0.txt"] == b"other words"
    assert list(out.iterdir()) == []


def test_text_in_another_teams_prefix_is_one_line(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.objects("other-team/").put("a.txt", b"words")
    bucket.break_(Fault(kind="denied", match="other-team"))
    with (
        pytest.raises(DatasetError, match=r"^--source: .*other-team.*(denied|AccessDenied)"),
        local_folder(bucket.url("other-team"), tmp_path / "out", (), no_progress),
    ):
        pass
    bucket.break_()


@pytest.mark.parametrize("keys", [["x" * 300], ["a", "a/b"]])
def test_a_key_that_cannot_be_a_file_is_named_and_not_tried_again(
    keys: list[str], bucket: Bucket, tmp_path: Path
) -> None:
    objects = bucket.objects("odd/")
    for key in [*keys, ".hidden"]:
        objects.put(key, b"text")
    with (
        pytest.raises(DatasetError, match=rf"{keys[-1][:20]}.*: cannot be a file here"),
        local_folder(bucket.url("odd"), tmp_path / "out", (), no_progress),
    ):
        pass
