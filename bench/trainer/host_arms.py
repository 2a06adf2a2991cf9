"""Training loops that do the same arithmetic: `python -m bench.trainer.host_arms ARM FOLDER`.

Each line on standard input is a number of steps to do; the answer is the seconds they took, by
the clock and of CPU. All arms train the same model on the same tokens in float32 on one thread; they
differ in what is around it.
"""

from __future__ import annotations

import importlib
import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
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

Steps = Callable[[int], None]
"""Does so many steps."""


def main() -> None:
    """Answer until standard input ends."""
    arm, folder = sys.argv[1], Path(sys.argv[2])
    torch.set_num_threads(1)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever libraries print is no answer
    with ExitStack() as stack:
        steps = ARMS[arm](folder, stack)
        steps(WARMUP_STEPS)
        print("ready", file=answers)
        for line in sys.stdin:
            begun, used = time.perf_counter(), time.process_time()
            steps(int(line))
            taken = (time.perf_counter() - begun, time.process_time() - used)
            print(json.dumps(taken), file=answers)
        os._exit(0)  # taking libraries apart is not measured


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


def rows(folder: Path) -> Iterator[Any]:
    """Batches [SAMPLES, SEQUENCE + 1], over and over."""
    (shard,) = sorted((folder / "tokens").glob("*.bin"))
    tokens = np.fromfile(shard, dtype=np.uint16).astype(np.int64)
    size = SAMPLES * (SEQUENCE + 1)
    for number in count():
        first = number * size % (len(tokens) - size)
        yield tokens[first : first + size].reshape(SAMPLES, SEQUENCE + 1)


def bare(folder: Path, _: ExitStack) -> Steps:
    """The arithmetic, and nothing around it."""
    model, optimizer = model_and_optimizer()
    batches = rows(folder)

    def steps(number: int) -> None:
        for _ in range(number):
            loss = mean_loss(model, torch.from_numpy(next(batches)))
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            loss.item()

    return steps


def _ours(folder: Path, stack: ExitStack, *settings: str) -> Steps:
    from training.trainer import assembly, loop, parallel, reporting
    from training.trainer.interruption import Notice
    from training.trainer.request import make_request

    run_dir = folder / f"run-{os.getpid()}"
    request = make_request(folder / "config.yaml", list(settings), run_dir, None)
    notice = Notice(run_dir)
    parallel.use_one_numerics(request.config)
    world = stack.enter_context(parallel.joined(request.config))
    notice.listen(leave=lambda: None)
    run = assembly.assemble(request, world, notice)
    reports = reporting.Reports(run, request)
    stack.callback(lambda: reports.close(patient=False))
    stack.enter_context(run.display)

    def steps(number: int) -> None:
        for _ in range(number):
            told = loop.one_step(run)
            loop.save_if_due(run, told.time_is_up)

    return steps


def ours(folder: Path, stack: ExitStack) -> Steps:
    """The trainer as it is by default."""
    return _ours(folder, stack)


def ours_with_all(folder: Path, stack: ExitStack) -> Steps:
    """With an endpoint for Prometheus and with MLflow besides."""
    port = 20_000 + os.getpid() % 20_000
    database = folder / f"mlflow-{os.getpid()}.db"
    prometheus = f"report.prometheus_port={port}"
    return _ours(folder, stack, prometheus, f"report.mlflow=sqlite:///{database}")


def accelerate(folder: Path, _: ExitStack) -> Steps:
    """Accelerate's own loop: prepared model, optimizer, loader and schedule; nothing is logged."""
    library = importlib.import_module("accelerate")
    accelerator = library.Accelerator(cpu=True)
    model, optimizer = model_and_optimizer()
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)
    prepared = accelerator.prepare(model, optimizer, _loader(folder), schedule)
    model, optimizer, loader, schedule = prepared
    batches = iter(loader)

    def steps(number: int) -> None:
        for _ in range(number):
            with accelerator.accumulate(model):
                loss = mean_loss(model, next(batches))
                accelerator.backward(loss)
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            loss.item()

    return steps


def trainer(folder: Path, _: ExitStack) -> Steps:
    """transformers' Trainer; it never returns between two steps, so it waits in a thread."""
    transformers = importlib.import_module("transformers")
    model, optimizer = model_and_optimizer()
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)
    asked: queue.Queue[int] = queue.Queue()
    done = threading.Semaphore(0)

    class Pace(transformers.TrainerCallback):  # type: ignore[name-defined,misc]
        left = 0

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self.left = self.left or asked.get()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            self.left -= 1
            if self.left == 0:
                done.release()

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
        data_collator=_labelled,
        optimizers=(optimizer, schedule),
        callbacks=[Pace()],
    )
    threading.Thread(target=loop.train, daemon=True).start()

    def steps(number: int) -> None:
        asked.put(number)
        done.acquire()

    return steps


class _Samples(torch.utils.data.Dataset[torch.Tensor]):
    def __init__(self, folder: Path) -> None:
        source = rows(folder)
        self._rows = torch.from_numpy(np.concatenate([next(source) for _ in range(50)]))

    def __len__(self) -> int:
        return 10**7

    def __getitem__(self, number: int) -> torch.Tensor:
        return self._rows[number % len(self._rows)]


def _loader(folder: Path) -> Any:
    return torch.utils.data.DataLoader(_Samples(folder), batch_size=SAMPLES)


def _labelled(samples: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    tokens_BS1 = torch.stack(samples)
    return {"input_ids": tokens_BS1[:, :-1], "labels": tokens_BS1[:, :-1]}


ARMS: Final[dict[str, Callable[[Path, ExitStack], Steps]]] = {
    "bare": bare,
    "ours": ours,
    "ours_with_all": ours_with_all,
    "accelerate": accelerate,
    "trainer": trainer,
}


def config(dataset: str) -> str:
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
