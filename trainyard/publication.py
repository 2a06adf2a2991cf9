"""What becomes of one checkpoint: rank 0 announces it and publishes it or gives it up; in any thread."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any, Final

from trainyard import contract, notice, session
from trainyard.run_info import run
from trainyard.store.interface import CheckpointStore, Upload, folder_name
from trainyard.store.manifest import FileRecord, Manifest
from trainyard.store.policy import NOTICE, apply_retention


@dataclass(frozen=True)
class Publication:
    """One checkpoint of this start."""

    current: session.Session
    record: Manifest
    keep_latest: int
    begun: float

    @classmethod
    def begin(
        cls,
        step: int,
        metadata: Mapping[str, Any] | None,
        milestone: bool,
        evaluation_loss: float | None,
        keep_latest: int,
        begun: float,
        reason: str = "",
    ) -> Publication:
        """Return the record of one that begins. The loss may be a tensor, which does not fit into JSON."""
        current = session.current()
        reason = reason or (NOTICE if notice.requested() else "program")
        record = Manifest(
            step=step,
            reason=reason,
            milestone=milestone,
            evaluation_loss=None if evaluation_loss is None else float(evaluation_loss),
            attempt=current.fence.attempt,
            saved_at=time.time(),
            world_size=run.world_size,
            parallelism={"data": run.world_size},
            data_cursor={},
            run=run.record(),
            trainer={**describe_process(), "metadata": dict(metadata or {})},
        )
        return cls(current, record, keep_latest, begun)

    @property
    def step(self) -> int:
        """Optimizer steps completed."""
        return self.record.step

    @property
    def attempt(self) -> int:
        return self.record.attempt

    def waited(self, seconds: float) -> None:
        self.current.events.write("checkpoint_waited", self.record.step, seconds=seconds)

    def announce(self) -> None:
        """Record that it has begun, and make the metrics durable up to its step. Raises OSError."""
        step, reason = self.record.step, self.record.reason
        self.current.events.write("checkpoint_begin", step, reason=reason)
        for log in session.metrics:
            log.sync()

    def publish(
        self,
        store: CheckpointStore,
        upload: Upload,
        files: dict[str, FileRecord],
        nodes: list[dict[str, str]],
        paused_s: float = 0.0,
    ) -> None:
        """Publish it and delete what is not kept. Raises StaleAttempt, OSError."""
        self.record.trainer["nodes"] = nodes
        written = upload.commit(self.record.with_files(files), self.current.fence.check)
        self.current.events.write(
            "checkpoint_commit",
            self.record.step,
            seconds=time.monotonic() - self.begun - paused_s,
            path=f"{store.place}/{folder_name(self.record.step)}",
            bytes=written.bytes,
            reason=self.record.reason,
        )
        try:
            apply_retention(store, self.keep_latest)
        except OSError as error:  # the new checkpoint is there already
            print(f"old checkpoints not removed: {error}", file=sys.stderr, flush=True)

    def failed(self, error: BaseException) -> None:
        if run.rank == 0:
            text = " ".join(str(error).split())
            seconds = time.monotonic() - self.begun
            self.current.events.write(
                "checkpoint_failed", self.record.step, seconds=seconds, error=text
            )


_PACKAGES: Final = (
    "torch",
    "numpy",
    "transformers",
    "accelerate",
    "deepspeed",
    "lightning",
    "torchtitan",
    "peft",
    "safetensors",
)
_NODE: Final = {
    "name": contract.NODE_NAME_ENV,
    "pool": contract.POOL_ENV,
    "instance_type": contract.INSTANCE_TYPE_ENV,
    "capacity_type": contract.CAPACITY_TYPE_ENV,
    "zone": contract.ZONE_ENV,
}


def describe_process() -> dict[str, Any]:
    """Return the version of Python and of the packages that training depends on."""
    packages = {}
    for name in _PACKAGES:
        try:
            packages[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {"python": platform.python_version(), "packages": packages}


def describe_node() -> dict[str, str]:
    """Return what the platform tells about this node; only what is known."""
    found = {key: os.environ.get(name, "") for key, name in _NODE.items()}
    return {key: value for key, value in found.items() if value}
