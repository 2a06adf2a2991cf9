"""A plain DistributedDataParallel script whose rank 1 breaks in one way: it knows nothing of the watchdog."""

import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

fault, at = sys.argv[1], 30
dist.init_process_group("gloo")
broken = dist.get_rank() == 1
model = DistributedDataParallel(
    torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.Linear(512, 8))
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def stand_still() -> None:
    """As a rank does that waits for a file system."""
    time.sleep(3600)


def hold_the_lock() -> None:
    """As a library does that never returns to Python."""
    import ctypes

    library, mutex = ctypes.PyDLL(None), ctypes.create_string_buffer(64)
    library.pthread_mutex_lock(mutex)
    library.pthread_mutex_lock(mutex)


def save() -> None:
    """By the library, which marks the phase."""
    import trainyard

    with trainyard.checkpoints.save(at) as folder:
        if broken:
            stand_still()
        (folder / f"rank-{dist.get_rank()}").touch()


def work_long() -> None:
    """For longer than a step may take, without a mark: an evaluation, or a compilation."""
    end = time.monotonic() + 8
    while time.monotonic() < end:
        torch.randn(64, 64) @ torch.randn(64, 64)


if fault == "start" and broken:
    stand_still()
for step in range(1, 10**6):
    if step == at and fault == "long":
        if broken:
            work_long()
        print("worked long", flush=True)
    if step == at and fault == "save":
        save()
    if step == at and broken and fault == "loader":
        stand_still()
    loss = model(torch.randn(256, 256)).square().mean()
    if broken and fault == "slow":
        time.sleep(0.01)
    if step == at and broken and fault == "lock":
        hold_the_lock()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step == at and broken and fault == "update":
        stand_still()
    if step == at and broken and fault == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    if step == 2 * at and fault == "long":
        break
dist.destroy_process_group()
