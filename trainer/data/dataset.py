"""The datasets of a run: versions, local folders and weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer.data.windows import DatasetVersion
from trainer.prepare.dataset import DatasetError, Index, read_index, verify_files
from trainyard.hashing import content_hash


@dataclass(frozen=True, kw_only=True)
class Corpus:
    """One or several datasets with the same tokens."""

    opened: tuple[DatasetVersion, ...]
    weights: tuple[int, ...]
    """Samples from each dataset per sum(weights) consecutive samples; 1 for a single dataset."""
    paths: tuple[str, ...]
    """Configured path of each."""

    @property
    def index(self) -> Index:
        """Index of the first dataset; all share its tokenizer."""
        return self.opened[0].index

    @property
    def folders(self) -> list[Path]:
        return [dataset.folder for dataset in self.opened]

    @property
    def version(self) -> str:
        """16 hexadecimal characters: the dataset's version, or a hash of the mixture."""
        versions = [dataset.index.version for dataset in self.opened]
        if len(versions) == 1:
            return versions[0]
        return content_hash([versions, list(self.weights)])[:16]

    @property
    def tokens(self) -> dict[str, Any]:
        return {**self.index.tokenizer, "boundary": self.index.boundary}

    def sources(self) -> list[dict[str, Any]]:
        return [
            {"path": path, "version": dataset.index.version, "weight": weight}
            for path, dataset, weight in zip(self.paths, self.opened, self.weights, strict=True)
        ]


def open_version(folder: Path, *, full_check: bool) -> DatasetVersion:
    """Open a version and verify its files. Raises DatasetError with one line per bad file."""
    index = read_index(folder)
    issues = verify_files(folder, index, hashes=full_check)
    if issues:
        raise DatasetError(*issues)
    return DatasetVersion(folder=folder, index=index)


def combine_datasets(
    opened: Sequence[DatasetVersion], weights: Sequence[int], paths: Sequence[str]
) -> Corpus:
    """Return the datasets as one corpus. Raises DatasetError when their tokenizers differ."""
    first = opened[0].index
    for dataset, path in zip(opened, paths, strict=True):
        index = dataset.index
        same = (index.tokenizer, index.boundary, index.vocab_size)
        if same != (first.tokenizer, first.boundary, first.vocab_size):
            raise DatasetError(
                f"data.sources: {path} uses another tokenizer than {paths[0]}; "
                "prepare both with the same --tokenizer"
            )
    return Corpus(opened=tuple(opened), weights=tuple(weights), paths=tuple(paths))
