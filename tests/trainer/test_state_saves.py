"""`save_async` and `load` as a script uses them: real ranks with DDP and FSDP2, slow and failing storage, S3.

The trainer uses them, too: other layouts, damage and full disks are tested with its runs.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox.ports import free_port
from tests.s3.bucket import Bucket
from tests.unit.trainyard.test_runtime import events, finish, run, start

pytestmark = pytest.mark.long(60)

TRAIN = """
import hashlib, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.distributed.fsdp import fully_shard
from trainyard.adapters import dcp

kind, steps, fault = {kind!r}, {steps}, {fault!r}
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(1)
parts = torch.nn.Linear(33, 64), torch.nn.BatchNorm1d(64), torch.nn.Dropout(), torch.nn.Linear(64, 6)
model = torch.nn.Sequential(*parts)
if kind == "ddp":
    model = DDP(model)
else:
    fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
checkpointer = dcp.Checkpointer(model, optimizer, every=1, schedule=schedule)
torch.manual_seed(7 + rank)
step = checkpointer.resume()

def digest():
    whole = hashlib.sha256()
    state = checkpointer._state()
    for group in state["model"], *state["optimizer"]["state"].values():
        for name in sorted(group):
            value = group[name]
            value = value.full_tensor() if hasattr(value, "full_tensor") else value
            whole.update(name.encode() + value.detach().numpy().tobytes())
    return whole.hexdigest()[:8], schedule.get_last_lr()

if step:
    print("resumed", step, digest())
if fault:
    exec(fault)
while step < steps:
    data = torch.Generator().manual_seed(100 * step + rank)
    loss = model(torch.randn(8, 33, generator=data)).square().mean()
    loss.backward()
    optimizer.step(); schedule.step(); optimizer.zero_grad()
    step += 1
    print(step, loss.item().hex())
    checkpointer.finish_step(step, last=step == steps)
print("ended", step, digest())
dist.destroy_process_group()
"""


def train(
    folder: Path, kind: str = "ddp", steps: int = 4, world: int = 2, fault: str = ""
) -> list[str]:
    program = TRAIN.format(kind=kind, steps=steps, fault=fault)
    return run(program, folder, world, gang=str(free_port()))


def losses(*outputs: str) -> list[str]:
    return [line for one in outputs for line in one.splitlines() if line[0].isdigit()]


def state_of(output: str, what: str) -> str:
    (line,) = [line for line in output.splitlines() if line.startswith(what)]
    return line.removeprefix(what)


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_a_run_resumes_with_the_bits_of_an_undisturbed_one(kind: str, tmp_path: Path) -> None:
    for name in ("whole", "parts"):
        (tmp_path / name).mkdir()
    whole = train(tmp_path / "whole", kind, 4)
    first, second = (train(tmp_path / "parts", kind, steps) for steps in (2, 4))
    for rank in range(2):
        assert losses(first[rank], second[rank]) == losses(whole[rank])
    checkpoints = tmp_path / "whole/checkpoints"
    assert sorted(one.name for one in checkpoints.glob("step-*")) == [
        f"step-{step:08d}" for step in (2, 3, 4)
    ]


UNREACHABLE = """
from trainyard.tensors import saver
def unreachable(*_):
    raise OSError(5, "Input/output error")
if rank == 1:
    saver.load_tensors = unreachable
model.requires_grad_(False)
try:
    trainyard.checkpoints.load(checkpointer._state())
except OSError as error:
    print("load:", error)
trainyard.checkpoints.wait()
step = steps
"""


def test_a_rank_that_cannot_read_stops_all_ranks_at_once(tmp_path: Path) -> None:
    train(tmp_path, steps=1)
    outputs = train(tmp_path, steps=1, fault=UNREACHABLE)
    assert state_of(outputs[0], "load: ") == "[Errno 5] Input/output error (rank 1)"
    assert state_of(outputs[1], "load: ") == "[Errno 5] Input/output error"
    assert not [one for one in events(tmp_path) if one["event"] == "checkpoint_corrupt"]


REFUSES = """
import torch
def check(metadata):
    raise ValueError(f"the checkpoint has {metadata['note']}")
weight = torch.full((2, 3), 7.0)
try:
    trainyard.checkpoints.load({"model": {"weight": weight}}, check)
except ValueError as error:
    print(error, weight.unique().tolist())
"""


def test_a_program_refuses_a_checkpoint_before_its_tensors_are_overwritten(tmp_path: Path) -> None:
    run(SAVE, tmp_path)
    (output,) = run(REFUSES, tmp_path, gang="2")
    assert output == "the checkpoint has x [7.0]\n"


STUCK = """
import threading, torch
from trainyard.store import posix
free, commit = threading.Event(), posix.PosixUpload.commit
def held(self, *given):
    assert free.wait(60)
    return commit(self, *given)
posix.PosixUpload.commit = held
state = {"x": torch.ones(3)}
trainyard.checkpoints.prepare(state)
print(trainyard.checkpoints.save_async(state, 1), trainyard.checkpoints.save_async(state, 2, timeout_s=0.1))
try:
    trainyard.checkpoints.wait(0.1)
except OSError as error:
    print(error)
free.set()
trainyard.checkpoints.wait()
print(trainyard.checkpoints.saved_step())
"""


def test_a_save_that_storage_delays_is_not_waited_for_longer_than_asked(tmp_path: Path) -> None:
    (output,) = run(STUCK, tmp_path)
    assert output.splitlines() == [
        "True False",
        "step 1 not written within 0 s",
        "1",
        "checkpoint not written: step-00000002: the checkpoint before it is still being written",
    ]
    names = [(one["event"], one["step"]) for one in events(tmp_path)]
    assert ("checkpoint_waited", 2) in names and ("checkpoint_failed", 2) in names


STALE = """
import torch
trainyard.checkpoints.save_async({"x": torch.ones(3)}, 1)
trainyard.checkpoints.wait()
print("ready", flush=True)
while not os.path.exists("go"):
    pass
trainyard.checkpoints.save_async({"x": torch.ones(3)}, 2)
try:
    trainyard.checkpoints.wait()
except Exception as error:
    print(type(error).__name__)
"""


def test_a_start_that_was_replaced_publishes_nothing(tmp_path: Path) -> None:
    old = start(STALE, tmp_path)
    assert old.stdout and old.stdout.readline() == "ready\n"
    run("trainyard.checkpoints.load()", tmp_path, gang="2")
    (tmp_path / "go").touch()
    (output,) = finish(old)
    assert output.splitlines()[-1] == "StaleAttempt"
    assert [one.name for one in (tmp_path / "checkpoints").glob("step-*")] == ["step-00000001"]


SAVE = """
import torch
model = torch.nn.Linear(3, 2)
optimizer = torch.optim.AdamW(model.parameters())
model(torch.ones(3)).sum().backward()
optimizer.step()
trainyard.checkpoints.save_async({
    "model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3,
    "history": [(1, 0.5), None, {"best": "a"}], 5: torch.tensor(7, dtype=torch.int8),
}, step=9, metadata={"note": "x"}, reason="test", files={"tokenizer.json": b"{}"})
trainyard.checkpoints.wait()
print("saved", trainyard.checkpoints.saved_step())
trainyard.finished()
"""
LOAD = """
import torch
model = torch.nn.Linear(3, 2)
optimizer = torch.optim.AdamW(model.parameters())
found = trainyard.checkpoints.load({"model": model.state_dict(), "optimizer": {}})
optimizer.load_state_dict(found.state["optimizer"])
print(found.step == trainyard.checkpoints.saved_step(), found.metadata, found.state.get("epoch"))
print(int(optimizer.state_dict()["state"][0]["step"]))
print(torch.equal(found.state["model"]["weight"], model.weight))
whole = trainyard.checkpoints.load().state
print(whole["history"], whole[5], torch.equal(whole["model"]["weight"], model.weight))
try:
    trainyard.checkpoints.load({"model": torch.nn.Linear(3, 1).state_dict()})
except ValueError as error:
    print(str(error).split(": ", 1)[1])
try:
    trainyard.checkpoints.save_async({"model": {"a": {1, 2}}}, 10)
except TypeError as error:
    print(error)
"""


def check_plain(output: str) -> None:
    assert output.splitlines() == [
        "True {'note': 'x'} None",
        "1",
        "True",
        "[(1, 0.5), None, {'best': 'a'}] tensor(7, dtype=torch.int8) True",
        "model/bias: is F32 [2] in the checkpoint, F32 [1] in the state;"
        " model/weight: is F32 [2, 3] in the checkpoint, F32 [1, 3] in the state",
        "model/a: is a set; valid are tensors, numbers, text, None, and dicts, lists and tuples of them;"
        " convert it",
    ]


def test_any_tree_of_one_process_comes_back_and_what_does_not_fit_is_said(tmp_path: Path) -> None:
    run(SAVE, tmp_path)
    (output,) = run(LOAD, tmp_path, gang="2")
    check_plain(output)


def test_checkpoints_lie_in_a_bucket_if_the_run_says_so(bucket: Bucket, tmp_path: Path) -> None:
    at_bucket = f"os.environ['TRAINYARD_CHECKPOINT_STORE'] = {bucket.url('team/state')!r}\n"
    run(at_bucket + SAVE, tmp_path)
    assert not (tmp_path / "checkpoints").exists()
    (output,) = run(at_bucket + LOAD, tmp_path, gang="2")
    check_plain(output)
