"""Save the state of all ranks in the background, and load it into ranks of any layout.

All ranks call the same methods in the same order. A save returns once the state is copied; a thread writes,
hashes and publishes the copy while training goes on.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.distributed import HashStore, PrefixStore  # type: ignore[attr-defined]

from trainyard.publication import Publication, describe_node
from trainyard.run_info import run
from trainyard.store.interface import (
    CheckpointStore,
    Chunk,
    SaveFailed,
    SaveUnfinished,
    StaleAttempt,
    Upload,
    folder_name,
)
from trainyard.store.manifest import CorruptCheckpoint, FileRecord, Manifest
from trainyard.tensors import random_state, state
from trainyard.tensors.layout import LAYOUT_FILE, Layout, layout_from_json, layout_to_json
from trainyard.tensors.loading import load_tensors
from trainyard.tensors.local_tensors import DTYPES, is_sharded, local_shards
from trainyard.tensors.plan import Plan, make_plan, shards_from_bytes, shards_to_bytes
from trainyard.tensors.rank_save import RankSave, SaveCoordinator
from trainyard.tensors.ranks import Ranks
from trainyard.tensors.staging import Staging
from trainyard.tensors.writer import BackgroundWriter
from trainyard.watchdog import watchdog

_STATE_FILE: Final = "state.json"
_PAUSES_SHARE: Final = 1 / 40
"""Most pauses of a save, as a share of the time since the last one: so much later a checkpoint is complete."""
_POLL_S: Final = 0.05

Check = Callable[[Manifest], None]
"""Called with the manifest before tensors are read; raises where the checkpoint is not to be loaded."""


@dataclass(frozen=True)
class Loaded:
    manifest: Manifest
    state: Any


class Saver:
    """Saves and loads the state of this program's ranks; one save at a time."""

    def __init__(self, store: CheckpointStore) -> None:
        """A call of all ranks. Raises RuntimeError for several ranks without torch.distributed."""
        self.store = store
        self._ranks = Ranks()
        if run.world_size > 1 and self._ranks.count == 1:
            raise RuntimeError(
                "checkpoints of several ranks: torch.distributed is not initialized; call"
                " torch.distributed.init_process_group first"
            )
        self._writer = BackgroundWriter()
        default: Any = HashStore()
        if self._ranks.count > 1:
            default = dist.distributed_c10d._get_default_store()
        self._coordinator = SaveCoordinator(
            PrefixStore("trainyard-checkpoints", default), self._ranks.rank, self._ranks.count
        )
        self._signature: Any = None
        """Of the tensors that `_plan` is for."""
        self._plan: Plan
        self._layout: bytes
        self._staging: Future[Staging]
        self._odd_names = False
        """Whether this rank has tensors that rank 0 does not have."""
        self._nodes: list[dict[str, str]] = []
        self._saves = 0
        self._begun = time.monotonic()
        self._step = 0
        """Of the last save."""
        self._publication: Publication
        self.saved_step = 0
        """Of the newest checkpoint that this start has loaded or completed; 0 for none."""
        self.last_save_s = 0.0
        """Seconds of the last save until it was complete, without pauses."""

    def prepare(self, tree: Any) -> None:
        """Plan the saves of such a state, and allocate the memory for its copy in the background."""
        groups = state.split(tree)[1]
        if self._ranks.any(_signature(groups) != self._signature):
            self._prepare(groups)

    def save(
        self,
        tree: Any,
        publication: Publication,
        others: Mapping[str, bytes],
        give_up: Callable[[float], bool],
    ) -> bool:
        """Start a checkpoint, once that in flight is complete; return whether it is started.

        That an earlier save failed is printed, and training goes on. `give_up`: called with the seconds waited,
        ends the wait on all ranks. `others`: files of rank 0 by name. Raises StaleAttempt, and TypeError for a
        state that cannot be saved, before anything is written.
        """
        encoded, groups = state.split(tree)
        step = publication.step
        if self._writer.busy:
            publication.waited(self._wait(give_up))
        signature = _signature(groups)
        late, changed = self._ranks.all_reduce(
            torch.tensor([int(self._writer.busy), int(signature != self._signature)]),
            dist.ReduceOp.MAX,
        ).tolist()
        if late:
            error = SaveFailed("the checkpoint before it is still being written")
            publication.failed(error)
            self._print(step, error)
            return False
        self._report_error(publication.attempt)
        if changed:
            self._prepare(groups)
        staged = self._staging.result()
        staged.stage(groups)
        # Buffers change in a forward pass already.
        staged.before_change()
        files: dict[str, Sequence[Chunk]] = {name: staged.chunks(name) for name in staged.files}
        files[random_state.file_name(run.rank)] = [random_state.capture()]
        if run.rank == 0 or self._odd_names:
            files[_state_file(run.rank)] = [json.dumps(encoded).encode()]
        if run.rank == 0:
            files[LAYOUT_FILE] = [self._layout]
            files |= {name: [content] for name, content in others.items()}
        now = time.monotonic()
        pauses_s = _PAUSES_SHARE * (now - self._begun)
        self._begun, self._step, self._publication = now, step, publication
        attempt = publication.attempt
        part = RankSave(self.store, step, attempt, files, staged.wait, pauses_s=pauses_s)
        number, nodes = self._saves, self._nodes
        self._saves += 1

        def publish(upload: Upload, records: dict[str, FileRecord], paused_s: float) -> None:
            publication.publish(self.store, upload, records, nodes, paused_s)

        def commit() -> None:
            try:
                if run.rank == 0:
                    part.lead(self._coordinator, number, publication.announce, publish)
                else:
                    part.follow(self._coordinator, number)
            except BaseException as error:
                publication.failed(error)
                raise
            self.saved_step = step
            self.last_save_s = time.monotonic() - now - part.work.paused_s

        self._writer.start(commit, part.work)
        return True

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait for the save in flight, which then takes all cores.

        Raises SaveUnfinished, SaveFailed, StaleAttempt or OSError on all ranks if it is not complete.
        """
        self._wait(lambda waited_s: timeout_s is not None and waited_s >= timeout_s)
        if self._ranks.any(self._writer.busy):
            late = SaveUnfinished(f"step {self._step} not written within {timeout_s:.0f} s")
            self._publication.failed(late)
            raise late
        if error := self._writer.take_error():
            raise error

    def settle(self, timeout_s: float) -> None:
        """Wait for the save in flight and print why it failed; not a call of all ranks."""
        self._wait(lambda waited_s: waited_s >= timeout_s)
        if self._writer.busy:
            self._print(self._step, f"not written within {timeout_s:.0f} s")
        elif error := self._writer.take_error():
            self._print(self._step, error)

    def _wait(self, give_up: Callable[[float], bool]) -> float:
        """Wait for the save in flight or `give_up`; return the seconds waited."""
        begun = time.monotonic()
        self._writer.help()
        while not self._writer.wait(_POLL_S) and not give_up(time.monotonic() - begun):
            watchdog.still_working()  # storage is slow, not this rank
        return time.monotonic() - begun

    def _report_error(self, attempt: int) -> None:
        """Print why the last save failed. Raises StaleAttempt if this attempt was replaced."""
        error = self._writer.take_error()
        if isinstance(error, StaleAttempt) and self._publication.attempt == attempt:
            raise error
        if error is not None and not isinstance(error, OSError | StaleAttempt):
            raise error
        if error is not None:
            self._print(self._step, error)

    def _print(self, step: int, why: object) -> None:
        if run.rank == 0:
            text = f"checkpoint not written: {folder_name(step)}: {why}"
            print(text, file=sys.stderr, flush=True)

    def steps(self) -> list[int]:
        """Return the steps of complete checkpoints as rank 0 sees them, ascending. Raises OSError on all ranks."""
        found: list[int] = []
        failure: Exception | None = None
        try:
            found = self.store.steps() if run.rank == 0 else []
        except OSError as error:
            failure = error
        self._agree(failure)
        return list(self._ranks.gather(found)[0])

    def load(self, step: int, tree: Any, check: Check) -> Loaded:
        """Return the state of this checkpoint, verified; its tensors are those of `tree` where it has them.

        Raises CorruptCheckpoint on all ranks if any rank found it so; on all ranks also what else any rank
        raises, the others as OSError: StateMismatch, UnknownFormat, OSError, or what `check` raises.
        """
        _, groups = state.split(tree)
        found: Loaded | None = None
        failure: Exception | None = None
        try:
            manifest = self.store.manifest(step)
            check(manifest)
        except Exception as error:
            failure = error
        own = None if failure else shards_to_bytes(local_shards(groups)).hex()
        everyone = self._ranks.gather(own)
        if all(everyone):
            wanted = make_plan([shards_from_bytes(bytes.fromhex(one)) for one in everyone]).layout
            try:
                found = self._load(manifest, tree, groups, wanted)
            except Exception as error:
                failure = error
        self._agree(failure)
        assert found is not None
        self.saved_step = step
        return found

    def _agree(self, failure: Exception | None) -> None:
        """Raise on all ranks if any of them has failed."""
        corrupt = isinstance(failure, CorruptCheckpoint)
        texts = self._ranks.gather([not corrupt, str(failure) if failure else ""])
        if failure and not corrupt:
            raise failure
        failed = [(other, rank, text) for rank, (other, text) in enumerate(texts) if text]
        for other, rank, text in sorted(failed, key=lambda one: (not one[0], one[1])):
            more = f"; {len(failed) - 1} other ranks found errors" if len(failed) > 1 else ""
            kind = OSError if other else CorruptCheckpoint
            raise kind(f"{text} (rank {rank}){more}")

    def _load(self, manifest: Manifest, tree: Any, groups: state.Groups, wanted: Layout) -> Loaded:
        step = manifest.step
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
        """Plan who writes what, and begin to allocate the copy."""
        own = {"node": describe_node(), "shards": shards_to_bytes(local_shards(groups)).hex()}
        everyone = self._ranks.gather(own)
        ranks = [shards_from_bytes(bytes.fromhex(one["shards"])) for one in everyone]
        names = [{(group, name) for group in one for name in one[group]} for one in ranks]
        self._odd_names = not names[run.rank] <= names[0]
        nodes = [one["node"] for one in everyone if one["node"]]
        self._nodes = [node for i, node in enumerate(nodes) if node not in nodes[:i]]
        plan = make_plan(ranks)
        self._signature, self._layout = _signature(groups), layout_to_json(plan.layout)
        device = next(
            (one.device for group in groups.values() for one in group.values() if one.is_cuda),
            torch.device("cpu"),
        )
        files = plan.files[run.rank]
        pool = ThreadPoolExecutor(1, "staging")
        self._staging = pool.submit(Staging, files, groups, device)
        pool.shutdown(wait=False)


def _signature(groups: Mapping[str, Mapping[str, torch.Tensor]]) -> Any:
    """Return what the plan of a save depends on, found without communication and quickly."""
    return {
        (group, name): (
            tensor.dtype,
            tensor.shape,
            tensor.device,
            (tensor.placements, id(tensor.device_mesh)) if is_sharded(tensor) else None,
        )
        for group, tensors in groups.items()
        for name, tensor in tensors.items()
    }


def _state_file(rank: int) -> str:
    return f"state-{rank:05d}.json" if rank else _STATE_FILE
