"""Whether a run's dataset can be prepared and read: its source, format, tokenizer and version."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from infra.domain.platform import Platform
from infra.sections.errors import ConfigIssue, did_you_mean, issue, shown
from trainer.config.settings import ModelConfig
from trainer.prepare.names import BYTES, BYTES_VOCAB_SIZE, MOST_VOCABULARY, STDLIB, TRAIN
from training import bucket_checks
from training.run_schema import PREPARATION_IMAGE, RunFile
from training.spec import Dataset
from trainyard import contract
from trainyard.objects.location import is_location

_VERSION: Final = re.compile(r"[0-9a-f]{16}")


def check_dataset(
    file: RunFile, platform: Platform, references: Mapping[str, str]
) -> Iterator[ConfigIssue]:
    """Check the keys of `dataset` against each other and against the stack's buckets and images."""
    dataset: Dataset = file.dataset
    if dataset.source and file.program and PREPARATION_IMAGE not in references:
        yield issue(
            "image-required",
            "dataset.source",
            f"the stack has no image {PREPARATION_IMAGE}, which prepares the datasets of programs",
            f"requires images.{PREPARATION_IMAGE} in the stack file",
            "add it, or prepare the dataset before and remove source",
        )
    yield from _source(dataset, file.team, platform)
    yield from _format(dataset)
    yield from _tokenizer(dataset)
    if dataset.version != contract.LATEST and not _VERSION.fullmatch(dataset.version):
        yield issue(
            "invalid-version",
            "dataset.version",
            f"{shown(dataset.version)} is not a version",
            f"must be {contract.LATEST}, or 16 hexadecimal digits",
            "copy it from the dataset's folder, or leave it out",
        )


def check_vocabulary(file: RunFile, settings: Mapping[str, Any]) -> Iterator[ConfigIssue]:
    """Check that the model knows all tokens of a tokenizer that is trained to a stated size."""
    model = settings.get("model") or {}
    size = _trained_size(file.dataset.tokenizer)
    known = model.get("vocab_size", ModelConfig().vocab_size)
    if size is None or model.get("path") or not isinstance(known, int) or size <= known:
        return
    yield issue(
        "vocabulary-too-large",
        "dataset.tokenizer",
        f"{shown(file.dataset.tokenizer)} is larger than the model's vocabulary ({known})",
        f"must have at most model.vocab_size = {known} tokens",
        "train a smaller one, or raise model.vocab_size",
    )


def _trained_size(tokenizer: str) -> int | None:
    """Return the vocabulary of `train:VOCAB`; None for another tokenizer or an invalid size."""
    size = tokenizer.removeprefix(TRAIN)
    return int(size) if tokenizer.startswith(TRAIN) and size.isdecimal() else None


def _source(dataset: Dataset, team: str, platform: Platform) -> Iterator[ConfigIssue]:
    source = dataset.source
    if is_location(source):
        yield from bucket_checks.check_bucket("dataset.source", source, team, platform)
    elif source and source != STDLIB and not source.startswith("/"):
        yield issue(
            "invalid-source",
            "dataset.source",
            f"{shown(source)} is not a source",
            f"must be {STDLIB}, s3://BUCKET/PREFIX, or the absolute path of a folder in the image or "
            "the data volume",
            did_you_mean(source, [STDLIB], "write the whole path"),
        )


def _format(dataset: Dataset) -> Iterator[ConfigIssue]:
    for key in ("format", "column", "tokenizer"):
        if getattr(dataset, key) and not dataset.source:
            yield issue(
                "source-required",
                f"dataset.{key}",
                "dataset.source is absent, so nothing is prepared",
                "requires dataset.source",
                f"add the source, or remove {key}",
            )
    if dataset.column and dataset.format == "text":
        yield issue(
            "conflict",
            "dataset.column",
            "text files have no columns",
            "requires format parquet or jsonl",
            "remove it, or correct format",
        )


def _tokenizer(dataset: Dataset) -> Iterator[ConfigIssue]:
    choice = dataset.tokenizer
    size = _trained_size(choice)
    trained = size is not None and BYTES_VOCAB_SIZE <= size <= MOST_VOCABULARY
    if choice and choice != BYTES and not choice.startswith("/") and not trained:
        yield issue(
            "invalid-tokenizer",
            "dataset.tokenizer",
            f"{shown(choice)} is not a tokenizer",
            f"must be {BYTES}, {TRAIN}VOCAB with VOCAB from {BYTES_VOCAB_SIZE} to {MOST_VOCABULARY}, or the "
            "absolute path of a tokenizer.json in the image or the data volume",
            "correct it",
        )
