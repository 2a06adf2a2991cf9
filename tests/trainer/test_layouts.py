"""A checkpoint of any number of ranks loads into any other, and every damaged byte is found."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from tests.unit.trainer.checkpoints import draft
from trainyard.store.manifest import CorruptCheckpoint, FileRecord, Manifest
from trainyard.store.posix import PosixStore
from trainyard.tensors import loading
from trainyard.tensors import staging as staging_module
from trainyard.tensors.layout import Box, layout_from_json, layout_to_json, whole_box
from trainyard.tensors.loading import load_tensors
from trainyard.tensors.local_tensors import LocalTensor
from trainyard.tensors.plan import (
    Plan,
    TensorShard,
    UnevenLayout,
    make_plan,
    shards_from_bytes,
    shards_to_bytes,
)
from trainyard.tensors.staging import Staging

STATE = {
    "weight": torch.arange(8 * 6, dtype=torch.float32).reshape(8, 6),
    "bias": torch.arange(7, dtype=torch.bfloat16),
    "cube": torch.arange(4 * 2 * 6, dtype=torch.int64).reshape(4, 2, 6),
    "step": torch.tensor(5.0),
    "empty": torch.zeros(0, 3),
}
Cut = tuple[int, int]
"""Parts along the first and along the last dimension."""


class Boxed(torch.Tensor):
    """A rank's part of a tensor, which says where it belongs: as a DTensor, without ranks."""

    held: LocalTensor


@pytest.fixture(autouse=True)
def _boxes_instead_of_meshes(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (loading, staging_module):
        monkeypatch.setattr(module, "local_tensor", lambda tensor: tensor.held)
    monkeypatch.setattr(staging_module, "local_data", lambda tensor: tensor.held.local)


def part(name: str, rank: int, cut: Cut, fill: bool = True) -> Boxed:
    """What this rank of cut[0] x cut[1] holds of a tensor of STATE."""
    whole = STATE[name]
    row, column = divmod(rank, cut[1])
    bounds = [(0, size) for size in whole.shape]
    if whole.dim():
        bounds[0] = split(whole.shape[0], cut[0], row)
    if whole.dim() > 1:
        bounds[-1] = split(whole.shape[-1], cut[1], column)
    box = Box(tuple(a for a, _ in bounds), tuple(b - a for a, b in bounds))
    names = {torch.float32: "F32", torch.bfloat16: "BF16", torch.int64: "I64"}
    local = whole[tuple(slice(a, b) for a, b in bounds)].clone()
    boxed = local.as_subclass(Boxed)
    share = TensorShard(names[whole.dtype], tuple(whole.shape), box)
    boxed.held = LocalTensor(share, local if fill else torch.zeros_like(local))
    return boxed


def split(size: int, parts: int, number: int) -> Cut:
    return size * number // parts, size * (number + 1) // parts


def parts(rank: int, cut: Cut, fill: bool = True) -> dict[str, dict[str, torch.Tensor]]:
    return {"model": {name: part(name, rank, cut, fill) for name in STATE}}


def planned(cut: Cut, file_bytes: int) -> Plan:
    everyone = [
        {"model": {name: part(name, rank, cut).held.share for name in STATE}}
        for rank in range(cut[0] * cut[1])
    ]
    gathered = [shards_from_bytes(shards_to_bytes(shares)) for shares in everyone]
    assert gathered == everyone
    return make_plan(gathered, file_bytes)


def saved(store: PosixStore, cut: Cut, file_bytes: int = 1 << 20) -> tuple[Manifest, Plan]:
    """Write STATE as the ranks of `cut` would."""
    plan = planned(cut, file_bytes)
    records: dict[str, FileRecord] = {}
    upload = store.begin(1, 1)
    for rank, files in enumerate(plan.files):
        memory = Staging(files, parts(rank, cut), torch.device("cpu"))
        memory.stage(parts(rank, cut))
        records |= {name: upload.put(name, memory.chunks(name)) for name in memory.files}
    return upload.commit(draft(1).with_files(records), lambda: None), plan


CUTS: Sequence[Cut] = [(1, 1), (2, 1), (4, 1), (2, 2), (1, 3), (3, 2)]


@pytest.mark.parametrize(("before", "after"), list(itertools.product(CUTS, CUTS)))
def test_what_any_ranks_wrote_any_other_ranks_read(before: Cut, after: Cut, tmp_path: Path) -> None:
    store = PosixStore(tmp_path)
    manifest, plan = saved(store, before, file_bytes=100)
    layout = layout_from_json(layout_to_json(plan.layout))
    assert layout == plan.layout
    for rank in range(after[0] * after[1]):
        wanted = parts(rank, after, fill=False)
        load_tensors(store, manifest, layout, wanted)
        for name, tensor in wanted["model"].items():
            assert isinstance(tensor, Boxed)
            assert torch.equal(tensor.held.local, part(name, rank, after).held.local), name


def test_what_several_ranks_hold_is_written_once_by_the_lowest() -> None:
    plan = planned((3, 2), file_bytes=1 << 20)
    writers = [
        (rank, piece.name)
        for rank, files in enumerate(plan.files)
        for file in files
        for piece in file.pieces
    ]
    assert [rank for rank, name in writers if name == "step"] == [0]
    assert [rank for rank, name in writers if name == "bias"] == [0, 2, 4]
    total = sum(piece.bytes for files in plan.files for file in files for piece in file.pieces)
    assert total == sum(tensor.numel() * tensor.element_size() for tensor in STATE.values())


def test_a_rank_that_writes_nothing_stages_nothing() -> None:
    plan = planned((1, 2), 1 << 20)
    replicated = {"model": {"step": part("step", 1, (1, 2))}}
    assert "step" not in {piece.name for file in plan.files[1] for piece in file.pieces}
    memory = Staging((), replicated, torch.device("cpu"))
    memory.stage(replicated)
    assert memory.bytes == 0


def test_files_are_bounded_and_one_rank_with_little_writes_one_per_group() -> None:
    assert [[file.name for file in files] for files in planned((1, 1), 1 << 20).files] == [
        ["model.safetensors"]
    ]
    plan = planned((1, 1), file_bytes=100)
    sizes = [sum(piece.bytes for piece in file.pieces) for file in plan.files[0]]
    assert max(sizes) <= 100 and len(sizes) > 4
    assert len({file.name for file in plan.files[0]}) == len(sizes)


@pytest.mark.parametrize("fault", ["twice", "missing", "type", "beyond"])
def test_ranks_that_do_not_hold_each_element_once_are_refused(fault: str) -> None:
    def share(first: int, rows: int, dtype: str = "F32") -> dict[str, dict[str, TensorShard]]:
        return {"model": {"x": TensorShard(dtype, (4, 2), Box((first, 0), (rows, 2)))}}

    other = {
        "twice": share(1, 3),
        "missing": share(2, 1),
        "type": share(2, 2, "F64"),
        "beyond": share(2, 3),
    }[fault]
    assert make_plan([share(0, 2), share(2, 2)])
    with pytest.raises(UnevenLayout, match="model tensor x"):
        make_plan([share(0, 2), other])


@pytest.mark.parametrize("after", [(1, 1), (4, 1), (1, 3)])
def test_any_flipped_bit_of_any_file_is_found_by_a_rank_that_reads_it(
    after: Cut, tmp_path: Path, chance: random.Random
) -> None:
    store = PosixStore(tmp_path)
    manifest, plan = saved(store, (2, 1))
    for name in manifest.files:
        file = tmp_path / "step-00000001" / name
        good = file.read_bytes()
        for _ in range(20):
            bad = bytearray(good)
            bad[chance.randrange(len(bad))] ^= 1 << chance.randrange(8)
            file.write_bytes(bad)
            with pytest.raises(CorruptCheckpoint, match=f"{name}: content differs"):
                for rank in range(after[0] * after[1]):
                    load_tensors(store, manifest, plan.layout, parts(rank, after, fill=False))
        for length in (0, len(good) // 2, len(good) - 1):
            file.write_bytes(good[:length])
            with pytest.raises(CorruptCheckpoint, match="bytes; the manifest says"):
                for rank in range(after[0] * after[1]):
                    load_tensors(store, manifest, plan.layout, parts(rank, after, fill=False))
        file.write_bytes(good + b"x")
        with pytest.raises(CorruptCheckpoint, match="bytes; the manifest says"):
            for rank in range(after[0] * after[1]):
                load_tensors(store, manifest, plan.layout, parts(rank, after, fill=False))
        file.write_bytes(good)


def test_ranks_share_the_writing_of_large_tensors_and_the_first_writes_small_ones() -> None:
    def shard(*shape: int) -> TensorShard:
        return TensorShard("F32", shape, whole_box(shape))

    held = {"model": {"a": shard(1024, 512), "b": shard(1024, 256), "c": shard(1024, 256)}}
    plan = make_plan([{"model": {**held["model"], "buffer": shard(7)}}] * 3)
    written = [{one.name for file in own for one in file.pieces} for own in plan.files]
    assert "buffer" in written[0] and [len(own - {"buffer"}) for own in written] == [1, 1, 1]
