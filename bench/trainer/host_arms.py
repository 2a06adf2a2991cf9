"""Training loops that do the same arithmetic: one of them, with a bare loop's step between its steps.

Reads {"arm", "folder", "pairs"} as JSON and answers with what every step took. All arms train the
same model on the same tokens in float32 on one thread; they differ in what is around it.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

SEQUENCE: Final = 32
SAMPLES: Final = 4
LAYERS: Final = 16
SHAPE: Final = {
    "vocab_size": 264,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "tie_word_embeddings": True,
}
"""146 tensors: nine in each block, the final norm, and the tied embedding."""
WARMUP_STEPS: Final = 20

Step = Callable[[], None]


class MeasurementDone(Exception):
    """All pairs are measured."""


@dataclass(kw_only=True)
class PairedSteps:
    """Steps of an arm and of the bare loop by turns, so that both see the same machine."""

    bare: Step
    wanted: int
    taken: dict[str, list[tuple[float, float]]] = field(
        default_factory=lambda: {"bare": [], "arm": []}
    )
    """Seconds of each step: by the clock, and of the thread's CPU."""
    _begun: tuple[float, float] | None = None
    _skip: int = WARMUP_STEPS
    _all_cpu: float = 0.0

    def between(self) -> None:
        """Between two steps of the arm; the arm's thread calls it. Raises Enough."""
        if self._begun:
            self._note("arm", self._begun)
        begun = _clocks()
        self.bare()
        self._note("bare", begun)
        if self._skip == 0 and len(self.taken["bare"]) == 1:
            self._all_cpu = time.process_time()
        if len(self.taken["arm"]) == self.wanted:
            raise MeasurementDone
        self._begun = _clocks()

    def answer(self) -> dict[str, Any]:
        """Return the measurements; `other_threads_s` is the CPU time of other threads per pair of steps."""
        own = sum(cpu for _, cpu in (*self.taken["arm"], *self.taken["bare"][1:]))
        other_threads_s = time.process_time() - self._all_cpu - own
        return {**self.taken, "other_threads_s": max(0.0, other_threads_s) / self.wanted}

    def _note(self, name: str, begun: tuple[float, float]) -> None:
        ended = _clocks()
        if self._skip:
            self._skip -= 1
        else:
            self.taken[name].append((ended[0] - begun[0], ended[1] - begun[1]))


def _clocks() -> tuple[float, float]:
    return time.perf_counter(), time.thread_time()


def main() -> None:
    """Measure one arm."""
    asked = json.load(sys.stdin)
    folder = Path(asked["folder"])
    torch.set_num_threads(1)
    answers = os.dup(1)
    os.dup2(2, 1)  # keep what libraries print out of the results
    pairs = PairedSteps(bare=baseline_step(folder), wanted=asked["pairs"])
    with ExitStack() as stack:
        ARMS[asked["arm"]](folder, stack, pairs)
        os.write(answers, json.dumps(pairs.answer()).encode() + b"\n")
        os._exit(0)  # taking libraries apart is not measured


def run_alternating(step: Step, pairs: PairedSteps) -> None:
    """For an arm whose steps can be called."""
    with suppress(MeasurementDone):
        while True:
            pairs.between()
            step()


def model_and_optimizer() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """The model with random weights, and the optimizer that all arms use."""
    from transformers.models.llama.configuration_llama import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaForCausalLM

    torch.manual_seed(0)
    shape = dict(SHAPE, max_position_embeddings=SEQUENCE, use_cache=False)
    model: torch.nn.Module = LlamaForCausalLM(LlamaConfig(**shape, attn_implementation="sdpa"))
    model.train()
    groups = [
        {"params": [p for p in model.parameters() if p.ndim >= 2], "weight_decay": 0.1},
        {"params": [p for p in model.parameters() if p.ndim < 2], "weight_decay": 0.0},
    ]
    return model, torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), fused=True)


def mean_loss(model: torch.nn.Module, tokens_BS1: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy of the next token, nats."""
    logits_BSV = model(input_ids=tokens_BS1[:, :-1], use_cache=False).logits
    flat = logits_BSV.flatten(0, 1).float()
    return torch.nn.functional.cross_entropy(flat, tokens_BS1[:, 1:].flatten())


def token_batches(folder: Path) -> Iterator[Any]:
    """Batches [SAMPLES, SEQUENCE + 1], over and over."""
    (shard,) = sorted((folder / "tokens").glob("*.bin"))
    tokens = np.fromfile(shard, dtype=np.uint16).astype(np.int64)
    size = SAMPLES * (SEQUENCE + 1)
    for number in count():
        first = number * size % (len(tokens) - size)
        yield tokens[first : first + size].reshape(SAMPLES, SEQUENCE + 1)


def baseline_step(folder: Path) -> Step:
    """The arithmetic, and nothing around it."""
    model, optimizer = model_and_optimizer()
    batches = token_batches(folder)

    def step() -> None:
        loss = mean_loss(model, torch.from_numpy(next(batches)))
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()

    return step


def control(folder: Path, _: ExitStack, pairs: PairedSteps) -> None:
    """A second bare loop: what the measurement itself finds where there is nothing to find."""
    run_alternating(baseline_step(folder), pairs)


def trainyard(folder: Path, stack: ExitStack, pairs: PairedSteps, *settings: str) -> None:
    """The trainer as it is by default."""
    from training.trainer import assembly, loop
    from training.trainer.metrics import reporting
    from training.trainer.parallel.world import fix_numerics, join_world
    from training.trainer.preflight import check_request
    from trainyard.notice import Notice

    run_dir = folder / f"run-{os.getpid()}"
    request = check_request(folder / "config.yaml", list(settings), run_dir, None)
    notice = Notice(run_dir)
    fix_numerics(request.config)
    world = stack.enter_context(join_world(request.config))
    notice.listen(leave=lambda: None)
    run = assembly.assemble(request, world, notice)
    reports = reporting.Reports(run, request)
    stack.callback(lambda: reports.close(patient=False))
    stack.enter_context(run.display)

    def step() -> None:
        result = loop.train_step(run)
        loop.save_if_due(run, result.time_due)

    run_alternating(step, pairs)


def trainyard_with_reports(folder: Path, stack: ExitStack, pairs: PairedSteps) -> None:
    """With an endpoint for Prometheus and with MLflow besides."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mlflow = f"report.mlflow=sqlite:///{folder}/mlflow-{os.getpid()}.db"
    trainyard(folder, stack, pairs, f"report.prometheus_port={port}", mlflow)


def accelerate(folder: Path, _: ExitStack, pairs: PairedSteps) -> None:
    """Accelerate's own loop: prepared model, optimizer, loader and schedule; nothing is logged."""
    library = importlib.import_module("accelerate")
    accelerator = library.Accelerator(cpu=True)
    model, optimizer = model_and_optimizer()
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)
    prepared = accelerator.prepare(model, optimizer, _loader(folder), schedule)
    model, optimizer, loader, schedule = prepared
    batches = iter(loader)

    def step() -> None:
        with accelerator.accumulate(model):
            loss = mean_loss(model, next(batches))
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        loss.item()

    run_alternating(step, pairs)


def trainer(folder: Path, _: ExitStack, pairs: PairedSteps) -> None:
    """transformers' Trainer; its callback at a step's begin is where the bare step goes."""
    transformers = importlib.import_module("transformers")
    model, optimizer = model_and_optimizer()
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)

    class Between(transformers.TrainerCallback):  # type: ignore[name-defined,misc]
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            pairs.between()

    arguments = transformers.TrainingArguments(
        output_dir=str(folder / "hf"),
        per_device_train_batch_size=SAMPLES,
        max_steps=10**9,
        max_grad_norm=1.0,
        use_cpu=True,
        report_to="none",
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
    )
    loop = transformers.Trainer(
        model=model,
        args=arguments,
        train_dataset=_Samples(folder),
        data_collator=_with_labels,
        optimizers=(optimizer, schedule),
        callbacks=[Between()],
    )
    with suppress(MeasurementDone):
        loop.train()


class _Samples(torch.utils.data.Dataset[torch.Tensor]):
    def __init__(self, folder: Path) -> None:
        source = token_batches(folder)
        self._rows = torch.from_numpy(np.concatenate([next(source) for _ in range(50)]))

    def __len__(self) -> int:
        return 10**7

    def __getitem__(self, number: int) -> torch.Tensor:
        return self._rows[number % len(self._rows)]


def _loader(folder: Path) -> Any:
    return torch.utils.data.DataLoader(_Samples(folder), batch_size=SAMPLES)


def _with_labels(samples: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    tokens_BS1 = torch.stack(samples)
    return {"input_ids": tokens_BS1[:, :-1], "labels": tokens_BS1[:, :-1]}


ARMS: Final[dict[str, Callable[[Path, ExitStack, PairedSteps], None]]] = {
    "control": control,
    "ours": trainyard,
    "ours_with_all": trainyard_with_reports,
    "accelerate": accelerate,
    "trainer": trainer,
}


def trainer_config(dataset: str) -> str:
    """The trainer's settings for this model, as YAML (which JSON is)."""
    return json.dumps(
        {
            "steps": 10**7,
            "deterministic": False,
            "model": {
                "vocab_size": SHAPE["vocab_size"],
                "hidden_size": SHAPE["hidden_size"],
                "intermediate_size": SHAPE["intermediate_size"],
                "layers": LAYERS,
                "heads": SHAPE["num_attention_heads"],
                "kv_heads": SHAPE["num_key_value_heads"],
                "tie_embeddings": True,
            },
            "data": {"path": dataset, "sequence_length": SEQUENCE},
            "batch": {"global_samples": SAMPLES, "micro_samples": SAMPLES},
            "schedule": {"warmup_steps": 10},
            "evaluation": {"every_steps": None, "samples": 1},
            "checkpoint": {"every_steps": 10**6},
        }
    )


if __name__ == "__main__":
    main()
