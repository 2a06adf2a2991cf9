"""Whether a run's dataset can be prepared and read: its source, format, tokenizer and version."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from infra.domain.platform import Platform
from infra.sections.errors import ConfigIssue, did_you_mean, shown
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
        yield ConfigIssue(
            path="dataset.source",
            code="image-required",
            problem=f"the stack has no image {PREPARATION_IMAGE}, which prepares the datasets of programs",
            valid=f"requires images.{PREPARATION_IMAGE} in the stack file",
            action="add it, or prepare the dataset before and remove source",
        )
    yield from _source(dataset, file.team, platform)
    yield from _format(dataset)
    yield from _tokenizer(dataset)
    if dataset.version != contract.LATEST and not _VERSION.fullmatch(dataset.version):
        yield ConfigIssue(
            path="dataset.version",
            code="invalid-version",
            problem=f"{shown(dataset.version)} is not a version",
            valid=f"must be {contract.LATEST}, or 16 hexadecimal digits",
            action="copy it from the dataset's folder, or leave it out",
        )


def check_vocabulary(file: RunFile, settings: Mapping[str, Any]) -> Iterator[ConfigIssue]:
    """Check that the model knows all tokens of a tokenizer that is trained to a stated size."""
    model = settings.get("model") or {}
    size = _trained_size(file.dataset.tokenizer)
    known = model.get("vocab_size", ModelConfig().vocab_size)
    if size is None or model.get("path") or not isinstance(known, int) or size <= known:
        return
    yield ConfigIssue(
        path="dataset.tokenizer",
        code="vocabulary-too-large",
        problem=f"{shown(file.dataset.tokenizer)} is larger than the model's vocabulary ({known})",
        valid=f"must have at most model.vocab_size = {known} tokens",
        action="train a smaller one, or raise model.vocab_size",
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
        yield ConfigIssue(
            path="dataset.source",
            code="invalid-source",
            problem=f"{shown(source)} is not a source",
            valid=f"must be {STDLIB}, s3://BUCKET/PREFIX, or the absolute path of a folder in the image or "
            "the data volume",
            action=did_you_mean(source, [STDLIB], "write the whole path"),
        )


def _format(dataset: Dataset) -> Iterator[ConfigIssue]:
    for key in ("format", "column", "tokenizer"):
        if getattr(dataset, key) and not dataset.source:
            yield ConfigIssue(
                path=f"dataset.{key}",
                code="source-required",
                problem="dataset.source is absent, so nothing is prepared",
                valid="requires dataset.source",
                action=f"add the source, or remove {key}",
            )
    if dataset.column and dataset.format == "text":
        yield ConfigIssue(
            path="dataset.column",
            code="conflict",
            problem="text files have no columns",
            valid="requires format parquet or jsonl",
            action="remove it, or correct format",
        )


def _tokenizer(dataset: Dataset) -> Iterator[ConfigIssue]:
    choice = dataset.tokenizer
    size = _trained_size(choice)
    trained = size is not None and BYTES_VOCAB_SIZE <= size <= MOST_VOCABULARY
    if choice and choice != BYTES and not choice.startswith("/") and not trained:
        yield ConfigIssue(
            path="dataset.tokenizer",
            code="invalid-tokenizer",
            problem=f"{shown(choice)} is not a tokenizer",
            valid=f"must be {BYTES}, {TRAIN}VOCAB with VOCAB from {BYTES_VOCAB_SIZE} to {MOST_VOCABULARY}, or the "
            "absolute path of a tokenizer.json in the image or the data volume",
            action="correct it",
        )
