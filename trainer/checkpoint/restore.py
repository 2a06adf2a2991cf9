"""Export a checkpoint for transformers, or restore it to a scratch folder as a drill."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import safetensors.torch
import torch

from trainer.checkpoint.contents import MODEL, progress_of
from trainer.checkpoint.tokenizer_export import CONFIG_FILE, TokenizerExportError, export_files
from trainer.prepare.dataset import TOKENIZER_FILE
from trainyard.contract import CHECKPOINTS_DIR
from trainyard.store.interface import CheckpointStore
from trainyard.store.manifest import Content, FileRecord, Manifest
from trainyard.store.posix import PosixStore
from trainyard.tensors.layout import (
    LAYOUT_FILE,
    Layout,
    layout_from_json,
)
from trainyard.tensors.loading import load_tensors, whole_tensors

_ATTEMPT: Final = 1


class RestoreError(Exception):
    """The export or restore is not possible with this checkpoint or folder."""


@dataclass(frozen=True, kw_only=True)
class DrillResult:
    step: int
    tensors: int
    bytes: int


def export_model(store: CheckpointStore, step: int, out: Path) -> None:
    """Write the model and its tokenizer for transformers' `from_pretrained`.

    Creates `out`; needs memory for the whole model. RestoreError if transformers would tokenize
    otherwise than the dataset did. Raises RestoreError, CorruptCheckpoint, OSError.
    """
    _refuse_used(out)
    manifest = store.manifest(step)
    if CONFIG_FILE not in manifest.files:
        raise RestoreError(f"step {step} has no {CONFIG_FILE}; transformers needs it")
    progress = progress_of(manifest.trainer.get("metadata", {}))
    if progress is None:
        raise RestoreError(f"step {step} was not written by the trainer of this release")
    tokenizer = store.read(step, TOKENIZER_FILE) if TOKENIZER_FILE in manifest.files else None
    try:
        files = export_files(json.loads(store.read(step, CONFIG_FILE)), progress.tokens, tokenizer)
    except TokenizerExportError as error:
        raise RestoreError(f"not exported: {error}") from None
    tensors = _loaded(store, manifest, _layout(store, step), MODEL)
    out.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (out / name).write_bytes(content)
    unfinished = out / ".model.safetensors"
    safetensors.torch.save_file(dict(tensors), unfinished, metadata={"format": "pt"})
    unfinished.rename(out / "model.safetensors")


def run_drill(store: CheckpointStore, step: int, scratch: Path) -> DrillResult:
    """Copy a checkpoint to `scratch`, and load every tensor from there; all hashes are compared on both ways.

    Leaves a run directory's checkpoints folder. Needs memory for the largest file, and for the larger of model and
    optimizer state. Raises RestoreError, CorruptCheckpoint, OSError.
    """
    _refuse_used(scratch)
    manifest, copy = store.manifest(step), PosixStore(scratch / CHECKPOINTS_DIR)
    upload = copy.begin(step, _ATTEMPT)
    try:
        files = {
            name: upload.put(name, [_verified(store, step, name, record)])
            for name, record in manifest.files.items()
        }
        restored = upload.commit(manifest.with_files(files), lambda: None)
    except BaseException:
        upload.abort()
        raise
    layout = _layout(copy, step)
    count = sum(len(_loaded(copy, restored, layout, group)) for group in layout)
    return DrillResult(step=step, tensors=count, bytes=restored.bytes)


def _verified(store: CheckpointStore, step: int, name: str, record: FileRecord) -> memoryview:
    """Return the content of a file. Raises CorruptCheckpoint."""
    whole = memoryview(bytearray(record.bytes + 1))  # one more would be read, too
    at, content = 0, Content(record.algorithm)
    with store.open(step, name) as source:
        while count := source.readinto(whole[at:]):
            content.update(whole[at : at + count])
            at += count
    record.compare(name, content.record())
    return whole[:at]


def _loaded(
    store: CheckpointStore, manifest: Manifest, layout: Layout, group: str
) -> Mapping[str, torch.Tensor]:
    tensors = whole_tensors(layout, group)
    load_tensors(store, manifest, layout, {group: tensors})
    return tensors


def _layout(store: CheckpointStore, step: int) -> Layout:
    return layout_from_json(store.read(step, LAYOUT_FILE))


def _refuse_used(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RestoreError(f"{folder}: exists and is not an empty folder; choose another")
