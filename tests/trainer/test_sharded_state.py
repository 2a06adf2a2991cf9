"""Real DTensors of four ranks: saved by their boxes, loaded by other ranks, and by one alone."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from sandbox.ports import free_port
from tests.trainer.ranks import until
from tests.unit.trainer.checkpoints import draft
from trainer.checkpoint import contents
from trainyard.store.manifest import FileRecord
from trainyard.store.posix import PosixStore
from trainyard.tensors.layout import Box, whole_box
from trainyard.tensors.loading import load_tensors
from trainyard.tensors.local_tensors import local_shards, local_tensor
from trainyard.tensors.plan import Plan, make_plan
from trainyard.tensors.staging import Staging, part_of

RANKS = 4
Made = tuple[torch.nn.Module, torch.optim.Optimizer]


def plain(kind: str = "none") -> Made:
    """A small model, the same in every process, divided as `kind` says; sizes do not divide."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(6, 10),
        torch.nn.ReLU(),
        torch.nn.Linear(10, 7, bias=False),
        torch.nn.LayerNorm(7),
    )
    if kind != "none":
        divide(model, kind)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
    contents.prepare_optimizer(model, optimizer)
    return model, optimizer


def divide(model: torch.nn.Sequential, kind: str) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    if kind == "shard":
        fully_shard(model, mesh=init_device_mesh("cpu", (RANKS,)))
    elif kind == "replicate x shard":
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
        fully_shard(model, mesh=mesh)
    else:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("shard", "tensor"))
        styles = {"0": ColwiseParallel(), "2": RowwiseParallel()}
        parallelize_module(model, mesh["tensor"], styles)
        fully_shard(model, mesh=mesh["shard"])


def on_four_ranks(work: Callable[[int], None], folder: Path) -> None:
    """Fork four gloo ranks, each doing `work`; fails with what one of them said."""
    port, pids = free_port(), {}
    for rank in range(RANKS):
        pid = os.fork()
        if not pid:
            code = 1
            try:
                # The threads of whoever computed here before are not there after a fork.
                torch.set_num_threads(1)
                os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
                torch.distributed.init_process_group("gloo", rank=rank, world_size=RANKS)
                work(rank)
                code = 0
            except BaseException:
                (folder / f"rank{rank}.txt").write_text(traceback.format_exc())
            finally:
                os._exit(code)
        pids[pid] = rank
    codes: dict[int, int] = {}

    def ended() -> bool:
        for pid in pids.keys() - codes.keys():
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                codes[pid] = os.waitstatus_to_exitcode(status)
        return len(codes) == RANKS

    try:
        until(ended, "the four ranks", 60)
    finally:
        for pid in pids.keys() - codes.keys():
            os.kill(pid, 9)
            os.waitpid(pid, 0)
    said = "\n".join(file.read_text() for file in sorted(folder.glob("rank*.txt")))
    assert set(codes.values()) == {0}, said


def train(made: Made) -> None:
    model, optimizer = made
    for _ in range(2):
        model(torch.ones(3, 6)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def save_all(rank: int, made: Made, store: PosixStore) -> Plan:
    """As the trainer does, with the test's own messages."""
    groups = contents.tensors(*made)
    own = local_shards(groups)
    shares = [own] * RANKS
    torch.distributed.all_gather_object(shares, own)
    plan = make_plan(shares)
    memory = Staging(plan.files[rank], groups, torch.device("cpu"))
    memory.stage(groups)
    upload = store.begin(1, 1)
    records = {name: upload.put(name, memory.chunks(name)) for name in memory.files}
    everyone: list[dict[str, FileRecord]] = [{}] * RANKS
    torch.distributed.all_gather_object(everyone, records)
    if rank == 0:
        files = {name: record for own in everyone for name, record in own.items()}
        upload.commit(draft(1).with_files(files), lambda: None)
    torch.distributed.barrier()
    return plan


def assert_loads_into(
    made: Made, plan: Plan, store: PosixStore, whole: dict[str, torch.Tensor]
) -> None:
    """Every element that this rank holds comes back, whatever it held before."""
    groups = contents.tensors(*made)
    for tensors in groups.values():
        for tensor in tensors.values():
            local_tensor(tensor).local.fill_(7)
    load_tensors(store, store.manifest(1), plan.layout, groups)
    for group, tensors in groups.items():
        for name, tensor in tensors.items():
            mine = local_tensor(tensor)
            expected = whole[f"{group} {name}"]
            cut = expected[mine.share.box.slices_in(plan_box(expected))]
            assert torch.equal(part_of(mine, mine.share.box), cut), name


def plan_box(tensor: torch.Tensor) -> Box:
    return whole_box(tuple(tensor.shape))


KINDS = ("shard", "replicate x shard", "shard x tensor")


@pytest.mark.parametrize("kind", KINDS)
def test_sharded_state_comes_back_in_every_other_division(kind: str, tmp_path: Path) -> None:
    store = PosixStore(tmp_path / "checkpoints")

    def work(rank: int) -> None:
        made = plain(kind)
        train(made)
        groups = contents.tensors(*made)
        whole = {
            f"{group} {name}": getattr(tensor, "full_tensor", lambda tensor=tensor: tensor)()
            for group, tensors in groups.items()
            for name, tensor in tensors.items()
        }
        plan = save_all(rank, made, store)
        for other in ("none", *KINDS):
            fresh = plain(other)
            assert_loads_into(fresh, plan, store, whole)
        # The division computes what one rank alone computes: so these are the trained values.
        expected = plain()
        train(expected)
        for name, tensor in contents.tensors(*expected)["model"].items():
            torch.testing.assert_close(whole[f"model {name}"], tensor)

    on_four_ranks(work, tmp_path)
    written = sum(record.bytes for record in store.manifest(1).files.values())
    # This process must not compute: the threads that torch starts for it do not survive a fork.
    data = 3 * 4 * sum(parameter.numel() for parameter in plain()[0].parameters())
    assert data < written < data + 16_384  # each element once; the rest are headers
    assert store.verify(1) == []
