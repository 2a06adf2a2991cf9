"""Runs on S3 for tests that need no tensors: what is written, and what must hold afterwards."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable

from tests.s3.bucket import QUICK, Bucket
from tests.unit.trainer.checkpoints import draft
from trainyard.objects import Objects, RetryPolicy
from trainyard.objects.upload import Uploader
from trainyard.store.interface import CheckpointStore, folder_name
from trainyard.store.manifest import Manifest
from trainyard.store.s3 import S3Store

PART = 100_000
"""Small parts: moto takes any size, and is slow."""
MODEL, OPTIMIZER, PROGRESS = "model-00000.safetensors", "model-00001.safetensors", "progress.json"
_RUNS = itertools.count()


def content(step: int) -> dict[str, bytes]:
    """What the ranks write: three parts, just over one, and one request."""
    word = step.to_bytes(4, "little")
    return {
        MODEL: word * 65_000,
        OPTIMIZER: word * 25_001,
        PROGRESS: json.dumps({"step": step}).encode(),
    }


class Place:
    """One run's place in the bucket."""

    def __init__(self, bucket: Bucket, patience: RetryPolicy = QUICK) -> None:
        self.bucket = bucket
        self.prefix = f"team/run-{next(_RUNS)}"
        self.patience = patience

    def objects(self) -> Objects:
        """The run's, over the bucket's connection."""
        return self.bucket.objects(self.prefix, self.patience)

    def store(self, objects: Objects | None = None) -> S3Store:
        """A store as one process has it."""
        return S3Store(objects or self.objects(), Uploader(part_bytes=PART, lanes=3))

    def rubbish(self) -> list[str]:
        """What no checkpoint needs: files without a manifest, unfinished uploads."""
        store, objects = self.store(), self.objects()
        whole = {
            f"{folder_name(step)}/attempt-{store.manifest(step).attempt:08d}/"
            for step in store.steps()
        }
        names = [entry.name for entry in objects.below("checkpoints").list()]
        files = [name for name in names if "/attempt-" in name]
        left = [name for name in files if not any(name.startswith(folder) for folder in whole)]
        return left + [name for name, _ in objects.unfinished_uploads()]


def no_fence() -> None:
    """Let everybody publish."""


def save(
    store: CheckpointStore, step: int, attempt: int = 1, fence: Callable[[], None] = no_fence
) -> Manifest:
    """As a trainer with one rank does."""
    upload = store.begin(step, attempt)
    try:
        files = {
            name: upload.put(name, [data[:9], memoryview(data)[9:]])
            for name, data in content(step).items()
        }
        manifest = dataclasses.replace(draft(step), attempt=attempt)
        return upload.commit(manifest.with_files(files), fence)
    except BaseException:
        upload.abort()
        raise


def assert_loads(store: S3Store, step: int) -> None:
    """What is read is what was written."""
    manifest = store.manifest(step)
    assert manifest.step == step
    assert set(manifest.files) == set(content(step))
    for name, data in content(step).items():
        if name == PROGRESS:
            assert store.read(step, name) == data
            continue
        with store.open(step, name) as source:
            block, found = memoryview(bytearray(30_000)), b""
            while got := source.readinto(block):
                found += bytes(block[:got])
        assert found == data


def assert_sound(place: Place) -> list[int]:
    """Every step that is listed loads whole; the steps."""
    place.bucket.break_()
    store = place.store()
    steps = store.steps()
    for step in steps:
        assert_loads(store, step)
    return steps
