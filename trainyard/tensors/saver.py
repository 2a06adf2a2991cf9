"""Save the state of all ranks in the background, and load it into ranks of any layout.

All ranks call the same methods in the same order. A save returns once the state is copied; a thread writes,
hashes and publishes the copy while training goes on.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.distributed import HashStore, PrefixStore  # type: ignore[attr-defined]

from trainyard import session
from trainyard.lineage import describe_node
from trainyard.run_info import run
from trainyard.store.interface import (
    CheckpointStore,
    Chunk,
    SaveFailed,
    Upload,
    folder_name,
)
from trainyard.store.manifest import CorruptCheckpoint, FileRecord, Manifest
from trainyard.tensors import random_state, state
from trainyard.tensors.coordination import SaveCoordinator
from trainyard.tensors.layout import LAYOUT_FILE, layout_from_json, layout_to_json
from trainyard.tensors.loading import load_tensors
from trainyard.tensors.local_tensors import DTYPES, local_shards
from trainyard.tensors.plan import RankShards, make_plan, shards_from_bytes, shards_to_bytes
from trainyard.tensors.rank_save import RankSave
from trainyard.tensors.staging import Staging
from trainyard.tensors.writer import BackgroundWriter

_STATE_FILE: Final = "state.json"
_PAUSES_SHARE: Final = 1 / 40
"""Most pauses of a save, as a share of the time since the last one: so much later a checkpoint is complete."""

Publish = Callable[[Upload, dict[str, FileRecord], list[dict[str, str]]], None]
"""Called on rank 0 in the background, with the files of all ranks and the nodes that wrote them."""


@dataclass(frozen=True)
class Loaded:
    """The state of a checkpoint."""

    manifest: Manifest
    state: Any


class Saver:
    """Saves and loads the state of this program's ranks; one save at a time."""

    def __init__(self, store: CheckpointStore) -> None:
        """A call of all ranks. Raises RuntimeError for several ranks without torch.distributed."""
        self.store = store
        self._ranks = Ranks()
        self._writer = BackgroundWriter()
        self._coordinator = self._ranks.coordinator()
        self._shards: RankShards | None = None
        self._layout: bytes
        self._staging: Staging
        self._odd_names = False
        """Whether this rank has tensors that rank 0 does not have."""
        self._nodes: list[dict[str, str]] = []
        self._saves = 0
        self._begun = time.monotonic()
        self._step = 0
        self.last_save_s = 0.0
        """Seconds of the last save until it was complete."""

    def save(
        self, tree: Any, step: int, publish: Publish, failed: Callable[[BaseException], None]
    ) -> None:
        """Start a checkpoint of this step; waits for the one in flight. Raises StaleAttempt.

        `failed` is called in the background. That an earlier save failed is printed, and training goes on.
        Raises TypeError for a state that cannot be saved, before anything is written.
        """
        encoded, groups = state.split(tree)
        self.report()
        self._prepare(groups)
        self._staging.stage(groups)
        # Buffers change in a forward pass already.
        self._staging.before_change()
        files: dict[str, Sequence[Chunk]] = {
            name: self._staging.chunks(name) for name in self._staging.files
        }
        files[random_state.file_name(run.rank)] = [random_state.capture()]
        if run.rank == 0 or self._odd_names:
            files[_state_file(run.rank)] = [json.dumps(encoded).encode()]
        if run.rank == 0:
            files[LAYOUT_FILE] = [self._layout]
        now = time.monotonic()
        pauses_s = _PAUSES_SHARE * (now - self._begun)
        self._begun, self._step = now, step
        attempt = session.current().fence.attempt
        part = RankSave(self.store, step, attempt, files, self._staging.wait, pauses_s=pauses_s)
        number, nodes = self._saves, self._nodes
        self._saves += 1

        def commit() -> None:
            try:
                if run.rank == 0:
                    part.lead(
                        self._coordinator,
                        number,
                        lambda: None,
                        lambda upload, records: publish(upload, records, nodes),
                    )
                else:
                    part.follow(self._coordinator, number)
            except BaseException as error:
                failed(error)
                raise
            self.last_save_s = time.monotonic() - now

        self._writer.start(commit, part.work)

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait for the save in flight, which then takes all cores. Raises SaveFailed, StaleAttempt, OSError."""
        self._writer.help()
        if not self._writer.wait(timeout_s):
            raise SaveFailed(f"step {self._step} not saved within {timeout_s:.0f} s")
        if error := self._writer.take_error():
            raise error

    def report(self, timeout_s: float | None = None) -> None:
        """Wait for the save in flight; print why it failed. Raises StaleAttempt."""
        try:
            self.wait(timeout_s)
        except OSError as error:
            if run.rank == 0:
                where = f"checkpoint {folder_name(self._step)} not written"
                print(f"{where}: {error}", file=sys.stderr, flush=True)

    def steps(self) -> list[int]:
        """Return the steps of complete checkpoints as rank 0 sees them, ascending."""
        found: list[int] = self._ranks.share(self.store.steps() if run.rank == 0 else None)
        return found

    def load(self, step: int, tree: Any) -> Loaded:
        """Return the state of this checkpoint, verified; its tensors are those of `tree` where it has them.

        Raises CorruptCheckpoint on every rank if any rank found it so, and StateMismatch.
        """
        found, problem = None, ""
        _, groups = state.split(tree)
        everyone = self._ranks.gather(shards_to_bytes(local_shards(groups)))
        wanted = make_plan([shards_from_bytes(one) for one in everyone]).layout
        try:
            found = self._load(step, tree, groups, wanted)
        except CorruptCheckpoint as error:
            problem = str(error)
        for rank, text in enumerate(self._ranks.gather(problem.encode())):
            if text:
                raise CorruptCheckpoint(f"{text.decode()} (rank {rank})")
        assert found is not None
        return found

    def _load(self, step: int, tree: Any, groups: state.Groups, wanted: Any) -> Loaded:
        manifest = self.store.manifest(step)
        if LAYOUT_FILE not in manifest.files:
            raise state.StateMismatch(
                f"{self.store.place}/{folder_name(step)}: was not saved by save_async; use `latest`"
            )
        layout = layout_from_json(self.store.read(step, LAYOUT_FILE))
        if odd := list(state.mismatches(layout, wanted)):
            more = f" (and {len(odd) - 3} more)" if len(odd) > 3 else ""
            raise state.StateMismatch(
                f"{self.store.place}/{folder_name(step)}: {'; '.join(odd[:3])}{more}"
            )
        encoded: Any = None
        for rank in range(manifest.world_size):
            if (name := _state_file(rank)) in manifest.files:
                one = json.loads(self.store.read(step, name))
                encoded = one if encoded is None else state.merge(encoded, one)
        by_name = {name: dtype for dtype, name in DTYPES.items()}
        targets: state.Groups = {}

        def find(group: str, name: str) -> torch.Tensor:
            stored = layout[group][name]
            known = groups.get(group, {}).get(name)
            if known is None:
                known = torch.empty(stored.shape, dtype=by_name[stored.dtype])
            targets.setdefault(group, {})[name] = known
            return known

        joined = state.join(encoded, tree, find)
        self._verify_small(manifest)
        load_tensors(self.store, manifest, layout, targets)
        name = random_state.file_name(run.rank)
        if manifest.world_size == run.world_size and name in manifest.files:
            random_state.restore(self.store.read(step, name))
        return Loaded(manifest, joined)

    def _verify_small(self, manifest: Manifest) -> None:
        """Verify this rank's part of the files that no rank loads for itself. Raises CorruptCheckpoint."""
        small = sorted(name for name in manifest.files if not name.endswith(".safetensors"))
        for name in small[run.rank :: run.world_size]:
            self.store.read(manifest.step, name)

    def _prepare(self, groups: Mapping[str, Mapping[str, torch.Tensor]]) -> None:
        """Plan who writes what, and allocate the copy, when the tensors are others than at the last save."""
        shards = local_shards(groups)
        if not self._ranks.any(shards != self._shards):
            return
        own = {"node": describe_node(), "shards": shards_to_bytes(shards).hex()}
        everyone = [json.loads(one) for one in self._ranks.gather(json.dumps(own).encode())]
        ranks = [shards_from_bytes(bytes.fromhex(one["shards"])) for one in everyone]
        names = [{(group, name) for group in one for name in one[group]} for one in ranks]
        self._odd_names = not names[run.rank] <= names[0]
        nodes = [one["node"] for one in everyone if one["node"]]
        self._nodes = [node for i, node in enumerate(nodes) if node not in nodes[:i]]
        plan = make_plan(ranks)
        self._shards, self._layout = shards, layout_to_json(plan.layout)
        device = next(
            (one.device for group in groups.values() for one in group.values() if one.is_cuda),
            torch.device("cpu"),
        )
        self._staging = Staging(plan.files[run.rank], groups, device)


class Ranks:
    """The ranks of this program; all methods are calls of all of them."""

    def __init__(self) -> None:
        self._group: Any = None
        if run.world_size > 1:
            if not (dist.is_available() and dist.is_initialized()):
                raise RuntimeError(
                    "checkpoints of several ranks: torch.distributed is not initialized; call"
                    " torch.distributed.init_process_group first"
                )
            self._group = dist.new_group(backend="gloo")

    def any(self, flag: bool) -> bool:
        """Return whether it is so on any rank."""
        if self._group is None:
            return flag
        seen = torch.tensor(int(flag))
        dist.all_reduce(seen, dist.ReduceOp.MAX, group=self._group)
        return bool(seen.item())

    def share(self, value: Any) -> Any:
        """Return rank 0's value, which has to fit into JSON."""
        return json.loads(self.gather(json.dumps(value).encode())[0])

    def gather(self, content: bytes) -> list[bytes]:
        """Return the bytes of all ranks, in their order."""
        if self._group is None:
            return [content]
        length = torch.tensor(len(content))
        longest = length.clone()
        dist.all_reduce(longest, dist.ReduceOp.MAX, group=self._group)
        # The length precedes the content: eight bytes.
        own = torch.zeros(8 + int(longest), dtype=torch.uint8)
        own[: 8 + len(content)] = torch.frombuffer(
            bytearray(len(content).to_bytes(8, "little") + content), dtype=torch.uint8
        )
        everyone = [torch.empty_like(own) for _ in range(run.world_size)]
        dist.all_gather(everyone, own, group=self._group)
        raw = [bytes(one.numpy()) for one in everyone]
        return [one[8 : 8 + int.from_bytes(one[:8], "little")] for one in raw]

    def coordinator(self) -> SaveCoordinator:
        """Return what coordinates the saves of the background threads."""
        store = dist.distributed_c10d._get_default_store() if self._group else HashStore()
        return SaveCoordinator(
            PrefixStore("trainyard-checkpoints", store), run.rank, run.world_size
        )


def _state_file(rank: int) -> str:
    return f"state-{rank:05d}.json" if rank else _STATE_FILE
