"""Write the newest snapshot to storage as a checkpoint: the gang leaves, and memory does not outlive its pods.

The keeper of the lowest node that can be reached claims an attempt, lets all keepers write the files that they
have, at the same time, and publishes. The others stay until it has. If it ends before, the next one takes over.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final, Protocol

from training.peer_memory import inventory, wire
from training.peer_memory.inventory import Part
from training.peer_memory.slots import Slot, stamp_to_json
from trainyard.store.interface import CheckpointStore, StaleAttempt
from trainyard.store.manifest import FileRecord, Manifest

MANIFEST_BASE: Final = "manifest-base.json"
"""File of rank 0's part with the manifest of the checkpoint, without its files. Not a file of the checkpoint."""
REASON: Final = "peer memory"
_POLL_S: Final = 0.5
_KEEPERS_AT_ONCE: Final = 64
"""The publisher only waits for their answers."""
_FILES_AT_ONCE: Final = 8
"""Files that one keeper writes at a time: about as many as the ranks of its node in a save."""


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


def flush(keeper: Holder, place: str | None, grace_s: float) -> str:
    """Write the newest complete snapshot unless storage has as new a checkpoint; return what was done.

    `place`: the run's checkpoint.store. `grace_s`: how long it may take. Empty: there was nothing to do.
    """
    # Late import: it brings in the S3 client, which no keeper needs before.
    from training.checkpoint.factory import open_store

    limit = time.monotonic() + grace_s
    problem = ""
    while True:
        reachable = _reachable(keeper)
        every = [part for _, found in reachable for part in found]
        parts = inventory.newest_complete(inventory.trusted(keeper.run_dir, every))
        if not parts:
            return problem
        step = parts[0].stamp.step
        store = open_store(keeper.run_dir, place)
        if _has_step(store, step):
            return ""
        publisher = min((address for address, _ in reachable), key=lambda one: int(one["node"]))
        if publisher == keeper.address:
            break
        name = f"node {publisher['node']}"
        if _await_step(store, step, publisher, keeper.token, limit):
            return f"step {step} was left to {name}"
        if time.monotonic() >= limit:
            return f"step {step} was not written by {name} within {grace_s:g} s"
        problem = f"step {step} was not written: {name} is gone"
    try:
        _publish(keeper, place, parts, limit)
    except (OSError, ValueError, KeyError, StaleAttempt) as error:
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

        def write(file: tuple[int, str]) -> tuple[str, dict[str, Any]]:
            rank, name = file
            slot = keeper.slot_of(rank, stamp)
            if slot is None:
                raise OSError(f"{name} of rank {rank} is gone")
            return name, asdict(upload.put(name, [slot.content(name)]))

        with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
            return {"records": dict(pool.map(write, message["files"]))}
    except (OSError, KeyError, TypeError) as error:
        return {"error": str(error)}


def _reachable(keeper: Holder) -> list[tuple[Mapping[str, Any], list[Part]]]:
    """Return the address of each keeper that answers, and what it has."""
    found: list[tuple[Mapping[str, Any], list[Part]]] = [(keeper.address, keeper.parts())]
    for address in inventory.keepers(keeper.run_dir):
        if int(address["node"]) != keeper.node:
            with suppress(OSError, ValueError, KeyError):
                found.append((address, inventory.ask(address, keeper.token)))
    return found


def _await_step(
    store: CheckpointStore, step: int, publisher: Mapping[str, Any], token: bytes, limit: float
) -> bool:
    """Wait until storage has the step; False once the publisher is gone, or at the limit."""
    while time.monotonic() < limit:
        try:
            wire.dial(publisher, token).close()
        except OSError:
            return _has_step(store, step)
        if _has_step(store, step):
            return True
        time.sleep(_POLL_S)
    return False


def _has_step(store: CheckpointStore, step: int) -> bool:
    """Return whether storage has as new a checkpoint; False while it cannot be read."""
    try:
        return max(store.steps(), default=0) >= step
    except OSError:
        return False


def _publish(keeper: Holder, place: str | None, parts: list[Part], limit: float) -> None:
    from training.checkpoint.factory import claim_attempt, open_store

    stamp = parts[0].stamp
    fence = claim_attempt(keeper.run_dir, place)
    base = _read_base(keeper, parts[0])
    message = {
        "kind": "write",
        "stamp": stamp_to_json(stamp),
        "attempt": fence.attempt,
        "store": place,
    }
    files: dict[tuple[str, int], list[tuple[int, str]]] = defaultdict(list)
    for part in parts:
        names = [(part.rank, name) for name in part.files if name != MANIFEST_BASE]
        files[part.address["host"], part.address["port"]] += names

    def write(address: tuple[str, int]) -> dict[str, Any]:
        request = message | {"files": files[address]}
        if address == (keeper.address["host"], keeper.address["port"]):
            return write_files(keeper, request)
        host, port = address
        with wire.dial({"host": host, "port": port}, keeper.token) as connection:
            connection.settimeout(max(_POLL_S, limit - time.monotonic()))
            wire.send(connection, request)
            return wire.receive(connection)

    records: dict[str, FileRecord] = {}
    with ThreadPoolExecutor(min(len(files), _KEEPERS_AT_ONCE)) as pool:
        for answer in pool.map(write, files):
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
