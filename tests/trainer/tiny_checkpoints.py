"""Real checkpoints of a few kilobytes: what a trainer of one rank writes, without a model."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import torch

from tests.unit.trainer.checkpoints import draft
from trainer.checkpoint.contents import MODEL, OPTIMIZER, Progress
from trainyard.contract import CHECKPOINTS_DIR
from trainyard.store.interface import CheckpointStore
from trainyard.store.manifest import Manifest
from trainyard.store.posix import PosixStore
from trainyard.tensors.layout import LAYOUT_FILE, layout_to_json, whole_box
from trainyard.tensors.local_tensors import DTYPES
from trainyard.tensors.plan import TensorShard, make_plan
from trainyard.tensors.staging import Staging


def write(store: CheckpointStore, step: int, saved_at: float = 0.0, elements: int = 64) -> Manifest:
    """One checkpoint, committed."""
    generator = torch.Generator().manual_seed(step)
    weight = torch.rand(elements, generator=generator)
    groups = {MODEL: {"weight": weight}, OPTIMIZER: {"weight/exp_avg": weight * 0.5}}
    shares = {
        group: {
            name: TensorShard(
                DTYPES[tensor.dtype], tuple(tensor.shape), whole_box(tuple(tensor.shape))
            )
            for name, tensor in tensors.items()
        }
        for group, tensors in groups.items()
    }
    plan = make_plan([shares])
    memory = Staging(plan.files[0], groups, torch.device("cpu"))
    memory.stage(groups)
    upload = store.begin(step, 1)
    files = {
        LAYOUT_FILE: upload.put(LAYOUT_FILE, [layout_to_json(plan.layout)]),
        **{file.name: upload.put(file.name, memory.chunks(file.name)) for file in plan.files[0]},
    }
    metadata = {"progress": dataclasses.asdict(_progress(step))}
    manifest = dataclasses.replace(draft(step), saved_at=saved_at, trainer={"metadata": metadata})
    return upload.commit(manifest.with_files(files), lambda: None)


def _progress(step: int) -> Progress:
    return Progress(
        step=step,
        samples=step * 8,
        windows=1000,
        seed=0,
        evaluated_step=0,
        evaluation_loss=None,
        dataset_version="0" * 16,
        model={},
        tokens={},
    )


def run_in(volume: Path, name: str, *steps: int, saved_at: float = 0.0) -> PosixStore:
    """A run directory with these checkpoints."""
    store = PosixStore(volume / name / CHECKPOINTS_DIR)
    for step in steps:
        write(store, step, saved_at)
    return store


def damage(store: PosixStore, step: int) -> str:
    """Flip a bit of the newest model file; its name."""
    [file] = sorted((store.root / f"step-{step:08d}").glob("model*"))
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(bytes(content))
    return file.name
