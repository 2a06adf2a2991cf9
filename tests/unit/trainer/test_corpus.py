"""Datasets that are mixed have the same tokens, and the mixture has a name of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.trainer.datasets import dataset
from trainer.data.dataset import combine_datasets
from trainer.data.windows import DatasetVersion
from trainer.prepare.dataset import DatasetError


def opened(root: Path, first: int, vocab_size: int = 257) -> DatasetVersion:
    folder, index = dataset(root, [list(range(first, first + 20))], vocab_size=vocab_size)
    return DatasetVersion(folder=folder, index=index)


def test_a_dataset_alone_keeps_its_version_and_a_mixture_has_one_by_versions_and_weights(
    tmp_path: Path,
) -> None:
    one, two = opened(tmp_path / "a", 0), opened(tmp_path / "b", 50)
    assert combine_datasets([one], [1], ["/a"]).version == one.index.version
    versions = {
        combine_datasets([one], [1], ["/a"]).version,
        combine_datasets([one, two], [1, 1], ["/a", "/b"]).version,
        combine_datasets([one, two], [2, 1], ["/a", "/b"]).version,
        combine_datasets([two, one], [1, 1], ["/b", "/a"]).version,
    }
    assert len(versions) == 4
    assert (
        combine_datasets([one, two], [1, 1], ["/elsewhere", "/b"]).version in versions
    )  # not where it lies


def test_datasets_with_other_tokens_are_not_mixed(tmp_path: Path) -> None:
    one, two = opened(tmp_path / "a", 0), opened(tmp_path / "b", 50, vocab_size=300)
    with pytest.raises(DatasetError, match="/b uses another tokenizer than /a"):
        combine_datasets([one, two], [1, 1], ["/a", "/b"])
