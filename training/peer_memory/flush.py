"""Write the newest snapshot to storage as a checkpoint: the gang leaves, and memory does not outlive its pods.

The keeper of the lowest node that can be reached claims an attempt, lets each keeper write the files that it has,
and publishes. The others wait for it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final, Protocol

from training.peer_memory import inventory, wire
from training.peer_memory.inventory import Part
from training.peer_memory.slots import Slot, stamp_to_json
from trainyard.store.manifest import FileRecord, Manifest

MANIFEST_BASE: Final = "manifest-base.json"
"""File of rank 0's part with the manifest of the checkpoint, without its files. Not a file of the checkpoint."""
REASON: Final = "peer memory"
_WAIT_S: Final = 60.0
_WRITE_S: Final = 600.0


class Holder(Protocol):
    """A keeper, as far as writing needs it."""

    run_dir: Path
    node: int
    token: bytes
    address: dict[str, Any]

    def parts(self) -> list[Part]:
        """Return every whole snapshot on this node."""

    def slot_of(self, rank: int, stamp: Any) -> Slot | None:
        """Return the memory of a part; None if it is not here."""


def flush(keeper: Holder, place: str | None) -> str:
    """Write the newest complete snapshot unless storage has as new a checkpoint; return what was done.

    `place`: the run's checkpoint.store. Empty: there was nothing to do.
    """
    # Late import: it brings in the S3 client, which no keeper needs before.
    from training.checkpoint.factory import open_store

    reachable = _reachable(keeper)
    every = [part for found in reachable.values() for part in found]
    parts = inventory.newest_complete(inventory.trusted(keeper.run_dir, every))
    if not parts:
        return ""
    step = parts[0].stamp.step
    store = open_store(keeper.run_dir, place)
    if max(store.steps(), default=0) >= step:
        return ""
    if min(reachable) < keeper.node:
        limit = time.monotonic() + _WAIT_S
        while time.monotonic() < limit and max(store.steps(), default=0) < step:
            time.sleep(0.2)
        return f"step {step} was left to node {min(reachable)}"
    try:
        _publish(keeper, place, parts)
    except (OSError, ValueError, KeyError) as error:
        return f"step {step} was not written: {error}"
    return f"step {step} written to {store.place}"


def write_files(keeper: Holder, message: Mapping[str, Any]) -> dict[str, Any]:
    """Write files of parts that this keeper has; return their records, or what failed."""
    from training.checkpoint.factory import open_store

    try:
        stamp = message["stamp"]
        upload = open_store(keeper.run_dir, message["store"]).begin(
            stamp["step"], message["attempt"]
        )
        records = {}
        for rank, name in message["files"]:
            slot = keeper.slot_of(rank, stamp)
            if slot is None:
                return {"error": f"{name} of rank {rank} is gone"}
            records[name] = asdict(upload.put(name, [slot.content(name)]))
        return {"records": records}
    except (OSError, KeyError, TypeError) as error:
        return {"error": str(error)}


def _reachable(keeper: Holder) -> dict[int, list[Part]]:
    """Return what each keeper has that answers, by node."""
    found = {keeper.node: keeper.parts()}
    for address in inventory.keepers(keeper.run_dir):
        if int(address["node"]) != keeper.node:
            with suppress(OSError, ValueError, KeyError):
                found[int(address["node"])] = inventory.ask(address, keeper.token)
    return found


def _publish(keeper: Holder, place: str | None, parts: list[Part]) -> None:
    from training.checkpoint.factory import claim_attempt, open_store

    stamp = parts[0].stamp
    fence = claim_attempt(keeper.run_dir, place)
    base = _read_base(keeper, parts[0])
    records: dict[str, FileRecord] = {}
    for part in parts:
        names = [[part.rank, name] for name in part.files if name != MANIFEST_BASE]
        message = {
            "kind": "write",
            "stamp": stamp_to_json(stamp),
            "attempt": fence.attempt,
            "store": place,
            "files": names,
        }
        if part.address == keeper.address:
            answer = write_files(keeper, message)
        else:
            with wire.dial(part.address, keeper.token) as connection:
                connection.settimeout(_WRITE_S)
                wire.send(connection, message)
                answer = wire.receive(connection)
        if "error" in answer:
            raise OSError(answer["error"])
        records |= {name: FileRecord(**values) for name, values in answer["records"].items()}
    upload = open_store(keeper.run_dir, place).begin(stamp.step, fence.attempt)
    manifest = replace(base, reason=REASON, attempt=fence.attempt, saved_at=time.time())
    upload.commit(manifest.with_files(records), fence.check)


def _read_base(keeper: Holder, part: Part) -> Manifest:
    content = bytearray(part.files[MANIFEST_BASE][1])
    with inventory.fetch(part, MANIFEST_BASE, keeper.token) as source:
        view = memoryview(content)
        while view and (got := source.readinto(view)):
            view = view[got:]
    return Manifest.from_json(content.decode())
