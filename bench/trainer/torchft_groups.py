"""Two replica groups of torchft on processors, of which one is killed: runs with the peers' interpreter.

Reads `Request` as JSON and answers with the attempts of the group that goes on, and when the other was killed.
A group takes the samples of its step again if torchft discards the step.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final

import torch
from torch.distributed import TCPStore  # type: ignore[attr-defined]
from transformers.models.llama.configuration_llama import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaForCausalLM

from bench.trainer.elastic_groups import free_port

GROUPS: Final = 2
VOCABULARY: Final = 257
_WAIT_S: Final = 120.0
_POLL_S: Final = 0.004
_OPERATION_S: Final = 30.0
"""Timeout of torchft's collectives and calls, as in its example."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """One run."""

    steps: int
    kill_after: int | None
    """The step after which the last group is killed; None: it is not."""
    quorum_tick_ms: int
    heartbeat_timeout_ms: int
    hidden: int
    wide: int
    length: int
    samples: int
    """Of a step, divided over the groups."""
    seed: int


def main() -> None:
    """Run the groups, and print the answer."""
    request = Request(**json.load(sys.stdin))
    with tempfile.TemporaryDirectory(prefix="trainyard-torchft-") as folder:
        print(json.dumps(run_groups(request, Path(folder))))


def run_groups(request: Request, folder: Path) -> dict[str, Any]:
    """Start the groups and a lighthouse, kill one, and wait for the end of the others."""
    coordination: Any = importlib.import_module("torchft.coordination")
    port = free_port()
    context = multiprocessing.get_context("fork")
    groups = [
        context.Process(target=_be_group, args=(request, number, port, folder), daemon=True)
        for number in range(GROUPS)
    ]
    for group in groups:  # before the lighthouse has threads
        group.start()
    lighthouse = coordination.LighthouseServer(
        bind=f"127.0.0.1:{port}",
        min_replicas=1,
        join_timeout_ms=10_000,
        quorum_tick_ms=request.quorum_tick_ms,
        heartbeat_timeout_ms=request.heartbeat_timeout_ms,
    )
    killed = 0.0
    try:
        if request.kill_after is not None:
            _await_step(folder, request.kill_after, groups[0])
            killed = time.time()
            groups[-1].kill()
        _await_step(folder, request.steps, groups[0])
    finally:
        for group in groups:
            group.kill()
            group.join()
        lighthouse.shutdown()
    return {"attempts": _attempts(folder), "killed": killed}


def _be_group(request: Request, number: int, port: int, folder: Path) -> None:
    descriptor = os.open(folder / f"log{number}", os.O_WRONLY | os.O_CREAT, 0o600)
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    train(request, number, f"http://127.0.0.1:{port}", folder)


def _await_step(folder: Path, step: int, group: BaseProcess) -> None:
    limit = time.monotonic() + _WAIT_S
    while not any(line["step"] >= step for line in _attempts(folder)[-1:]):
        if not group.is_alive() or time.monotonic() > limit:
            log = (folder / "log0").read_text(errors="replace").strip().splitlines()
            raise RuntimeError(f"step {step} of torchft did not come: {' '.join(log[-3:])[-300:]}")
        time.sleep(_POLL_S)


def _attempts(folder: Path) -> list[dict[str, Any]]:
    file = folder / "attempts0"
    return [json.loads(line) for line in file.read_text().split("\n")[:-1]] if file.exists() else []


def train(request: Request, group: int, lighthouse: str, folder: Path) -> None:
    """Be one group: take steps until the last, and append a line for each attempt at one."""
    torchft: Any = importlib.import_module("torchft")
    torch.set_num_threads(1)
    torch.manual_seed(request.seed)
    model = _build(request)
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    inner = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def load(state: dict[str, Any]) -> None:
        model.load_state_dict(state["model"])
        inner.load_state_dict(state["optimizer"])

    manager = torchft.Manager(
        pg=torchft.ProcessGroupGloo(timeout=timedelta(seconds=_OPERATION_S)),
        load_state_dict=load,
        state_dict=lambda: {"model": model.state_dict(), "optimizer": inner.state_dict()},
        min_replica_size=1,
        timeout=timedelta(seconds=_OPERATION_S),
        rank=0,
        world_size=1,
        store_addr="127.0.0.1",
        store_port=store.port,
        lighthouse_addr=lighthouse,
        replica_id=f"group{group}",
        hostname="127.0.0.1",
        init_sync=False,  # all weights are from the same seed
    )
    optimizer = torchft.Optimizer(manager, inner)
    (folder / f"ready{group}").touch()
    while len(list(folder.glob("ready*"))) < GROUPS:
        time.sleep(_POLL_S)
    with (folder / f"attempts{group}").open("a", buffering=1) as lines:
        while manager.current_step() < request.steps:
            before = manager.current_step()
            rows = _samples(request, before + 1, group)
            optimizer.zero_grad()
            logits = model(rows[:, :-1]).logits
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
            loss.backward()  # type: ignore[no-untyped-call]
            _average_gradients(manager, model)
            groups = manager.num_participants()
            optimizer.step()
            line = {
                "step": before + 1,
                "kept": manager.current_step() > before,
                "time": time.time(),
                "loss": float(loss),
                "groups": groups,
            }
            lines.write(json.dumps(line) + "\n")


def _average_gradients(manager: Any, model: torch.nn.Module) -> None:
    """Average the gradients over the groups, as one tensor.

    Not by torchft's DistributedDataParallel: that of 0.2.0 ends the process of a group whose peer is killed, by
    an AssertionError in its communication hook (`assert fut._fut`).
    """
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
    manager.allreduce(flat).wait()
    parts = torch.split(flat, [gradient.numel() for gradient in gradients])
    for gradient, part in zip(gradients, parts, strict=True):
        gradient.copy_(part.view_as(gradient))


def _samples(request: Request, step: int, group: int) -> torch.Tensor:
    chance = torch.Generator().manual_seed(request.seed * 1_000_003 + step * GROUPS + group)
    shape = (request.samples // GROUPS, request.length + 1)
    return torch.randint(0, VOCABULARY, shape, generator=chance)


def _build(request: Request) -> torch.nn.Module:
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=request.hidden,
        intermediate_size=request.wide,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        use_cache=False,
    )
    model: torch.nn.Module = LlamaForCausalLM(config)
    return model


if __name__ == "__main__":
    main()
