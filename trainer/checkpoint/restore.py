"""Export a checkpoint for transformers, or restore it to a scratch folder as a drill."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import safetensors.torch
import torch

from trainer.checkpoint.contents import MODEL, progress_of
from trainer.checkpoint.tokenizer_export import CONFIG_FILE, TokenizerExportError, export_files
from trainer.prepare.dataset import TOKENIZER_FILE
from trainyard.contract import CHECKPOINTS_DIR
from trainyard.store.interface import CheckpointStore, Upload
from trainyard.store.manifest import Content, FileRecord, Manifest
from trainyard.store.posix import PosixStore
from trainyard.tensors.layout import (
    LAYOUT_FILE,
    Layout,
    layout_from_json,
    layout_to_json,
    whole_box,
)
from trainyard.tensors.loading import load_tensors, whole_tensors
from trainyard.tensors.plan import TensorShard, make_plan
from trainyard.tensors.staging import Staging

_ATTEMPT: Final = 1


class RestoreError(Exception):
    """The export or restore is not possible with this checkpoint or folder."""


@dataclass(frozen=True, kw_only=True)
class DrillResult:
    """Summary of a successful drill."""

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
    """Restore a checkpoint under `scratch` as one rank, read it back and compare every tensor.

    Leaves a run directory's checkpoints folder. Needs memory for the larger of model and optimizer
    state. Raises RestoreError, CorruptCheckpoint, OSError.
    """
    _refuse_used(scratch)
    manifest, layout = store.manifest(step), _layout(store, step)
    copy = PosixStore(scratch / CHECKPOINTS_DIR)
    upload = copy.begin(step, _ATTEMPT)
    try:
        before, files, new_layout = _restore_tensors(store, manifest, layout, upload)
        files[LAYOUT_FILE] = upload.put(LAYOUT_FILE, [layout_to_json(new_layout)])
        for name in manifest.files.keys() - _tensor_files(layout) - {LAYOUT_FILE}:
            files[name] = upload.put(name, [store.read(step, name)])
        restored = upload.commit(manifest.with_files(files), lambda: None)
    except BaseException:
        upload.abort()
        raise
    for group in new_layout:
        for name, tensor in _loaded(copy, restored, new_layout, group).items():
            if _record(tensor) != before[group, name]:
                raise RestoreError(f"{group} tensor {name} differs after the restore")
    return DrillResult(step=step, tensors=len(before), bytes=restored.bytes)


def _restore_tensors(
    store: CheckpointStore, manifest: Manifest, layout: Layout, upload: Upload
) -> tuple[dict[tuple[str, str], FileRecord], dict[str, FileRecord], Layout]:
    """Copy the tensors; return their sizes and hashes, and the files and layout of the copy."""
    shares = {
        group: {
            name: TensorShard(t.dtype, t.shape, whole_box(t.shape)) for name, t in tensors.items()
        }
        for group, tensors in layout.items()
    }
    plan = make_plan([shares])
    before: dict[tuple[str, str], FileRecord] = {}
    files: dict[str, FileRecord] = {}
    for group in layout:
        tensors = _loaded(store, manifest, layout, group)
        before |= {(group, name): _record(tensor) for name, tensor in tensors.items()}
        for file in plan.files[0]:
            if file.group == group:
                memory = Staging([file], {group: tensors}, torch.device("cpu"))
                memory.stage({group: tensors})
                files[file.name] = upload.put(file.name, memory.chunks(file.name))
    return before, files, plan.layout


def _loaded(
    store: CheckpointStore, manifest: Manifest, layout: Layout, group: str
) -> Mapping[str, torch.Tensor]:
    tensors = whole_tensors(layout, group)
    load_tensors(store, manifest, layout, {group: tensors})
    return tensors


def _layout(store: CheckpointStore, step: int) -> Layout:
    return layout_from_json(store.read(step, LAYOUT_FILE))


def _tensor_files(layout: Layout) -> set[str]:
    tensors = (tensor for group in layout.values() for tensor in group.values())
    return {piece.file for tensor in tensors for piece in tensor.pieces}


def _record(tensor: torch.Tensor) -> FileRecord:
    raw: Any = tensor.reshape(-1).view(torch.uint8).numpy()
    content = Content()
    content.update(memoryview(raw))
    return content.record()


def _refuse_used(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RestoreError(f"{folder}: exists and is not an empty folder; choose another")
