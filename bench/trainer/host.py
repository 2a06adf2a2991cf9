"""P7: the trainer's overhead per step: its steps and those of a bare loop with the same model, by turns.

Each arm runs in a process of its own, `python -m bench.trainer.host ARM FOLDER PAIRS`, on one thread.
"""

from __future__ import annotations

import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from bench.request import ROOT, Request, Result
from bench.statistics import Bound, median_and_bound
from trainyard.contract import METRICS_ADDRESS_ENV, METRICS_PORT_ENV

SIZES: dict[str, dict[str, Any]] = {"small": {"pairs": 100}, "full": {"pairs": 1000}}
GOAL_MS: Final = 0.1
"""Maximum cost of the trainer above the bare loop, milliseconds (P7)."""
TITLES: Final = {
    "control": "a second bare loop",
    "trainer": "trainer, default settings",
    "reporting": "trainer, with Prometheus and MLflow",
}
_TIMEOUT_S: Final = 900.0
_WARM_UP: Final = 20
_SEQUENCE: Final = 32
_SAMPLES: Final = 4
_SHAPE: Final[dict[str, Any]] = {
    "vocab_size": 264,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 16,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "tie_word_embeddings": True,
    "max_position_embeddings": _SEQUENCE,
    "initializer_range": 0.02,
}
"""146 tensors: nine in each block, the final norm, and the tied embedding."""
_CONFIG: Final = {
    "steps": 10**7,
    "deterministic": False,
    "model": {
        "vocab_size": 264,
        "hidden_size": 32,
        "intermediate_size": 64,
        "layers": 16,
        "heads": 2,
        "kv_heads": 2,
        "tie_embeddings": True,
    },
    "batch": {"global_samples": _SAMPLES, "micro_samples": _SAMPLES},
    "schedule": {"warmup_steps": 10},
    "evaluation": {"every_steps": None, "samples": 1},
    "checkpoint": {"every_steps": 10**6},
}

Step = Callable[[], None]
Taken = Mapping[str, Sequence[tuple[float, float]]]
"""Seconds of each step of `arm` and of `bare`, which has one more: by the clock, and of the thread's processor."""


def run(request: Request) -> Result:
    """Measure one arm after the other."""
    found: dict[str, Taken] = {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        prepare(folder, request.seed)
        for number, name in enumerate(TITLES):
            request.notify(TITLES[name], len(TITLES), number)
            done = subprocess.run(
                [sys.executable, "-m", __name__, name, place, str(request.sizes["pairs"])],
                cwd=ROOT,
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_S,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                check=False,
            )
            if done.returncode:
                raise RuntimeError(f"{name}: {' '.join(done.stderr.split())[-300:]}")
            found[name] = json.loads(done.stdout)
    return Result(text=section(found), versions="libraries")


def prepare(folder: Path, seed: int) -> None:
    """Write texts, the trainer's dataset of them, and its configuration."""
    generator, texts, data = random.Random(seed), folder / "texts", folder / "data"
    texts.mkdir()
    for number in range(24):
        (texts / f"{number}.txt").write_text("".join(generator.choices("abcdefgh \n", k=4000)))
    command = [sys.executable, "-m", "trainer.prepare", "--source", str(texts), "--out", str(data)]
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
    config = {**_CONFIG, "data": {"path": str(data), "sequence_length": _SEQUENCE}}
    (folder / "config.yaml").write_text(json.dumps(config))


def above_ms(taken: Taken, clock: int) -> Bound:
    """Return milliseconds of each step above the mean of the bare steps before and after it."""
    neighbours = [(a[clock] + b[clock]) / 2 for a, b in pairwise(taken["bare"])]
    return median_and_bound(
        [1000 * (step[clock] - bare) for step, bare in zip(taken["arm"], neighbours, strict=True)]
    )


def section(found: Mapping[str, Taken]) -> str:
    """Return the section of RESULTS.md."""
    bare = 1000 * statistics.median(clock for clock, _ in found["control"]["bare"])
    lines = [
        f"P7: the trainer's Llama with 146 tensors, float32, one thread: a bare loop's step takes {bare:.1f} ms. A"
        f" step of the bare loop precedes and follows each of {len(found['control']['arm'])} steps; the table has"
        " the time above the mean of these two. The trainer logs every step; MLflow runs in a separate process.",
        "",
        "| loop | wall time above bare, ms (bound) | processor time of its thread above bare, ms (bound) |",
        "|---|---|---|",
    ]
    for name, title in TITLES.items():
        lines.append(f"| {title} | {above_ms(found[name], 0)} | {above_ms(found[name], 1)} |")
    worst = max(above_ms(found["reporting"], clock) for clock in (0, 1))
    return "\n".join([*lines, "", f"With all reporters: {worst.goal(GOAL_MS)} (ms)."])


def bare_step(folder: Path) -> Step:
    """Return a step that is the arithmetic, and nothing around it."""
    from trainer.parallel.llama import Llama, LlamaSettings
    from trainer.parallel.passes import mean_loss

    torch.manual_seed(0)
    model = Llama(LlamaSettings(**_SHAPE))
    groups = [
        {"params": [p for p in model.parameters() if p.ndim >= 2], "weight_decay": 0.1},
        {"params": [p for p in model.parameters() if p.ndim < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), fused=True)
    batches = token_batches(folder)

    def step() -> None:
        loss = mean_loss(model, torch.from_numpy(next(batches)))
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()

    return step


def token_batches(folder: Path) -> Iterator[Any]:
    """Yield batches [samples, sequence + 1] of bytes, over and over."""
    text = b"".join(path.read_bytes() for path in sorted((folder / "texts").iterdir()))
    tokens, size = np.frombuffer(text, dtype=np.uint8).astype(np.int64), _SAMPLES * (_SEQUENCE + 1)
    while True:
        for first in range(0, len(tokens) - size, size):
            yield tokens[first : first + size].reshape(_SAMPLES, _SEQUENCE + 1)


@contextmanager
def trainer_step(folder: Path, *settings: str) -> Iterator[Step]:
    """Yield a step of the trainer."""
    from trainer import assembly, loop
    from trainer.parallel.world import fix_numerics, join_world
    from trainer.preflight import check_request
    from trainer.startup import sent_to_mlflow
    from trainyard import reporting
    from trainyard.notice import Notice
    from trainyard.run_info import run as paths

    run_dir = folder / f"run-{os.getpid()}"
    request = check_request(folder / "config.yaml", list(settings), run_dir, None)
    paths.use(run_dir)
    notice = Notice(run_dir)
    fix_numerics(request.config)
    with ExitStack() as stack:
        world = stack.enter_context(join_world(request.config))
        notice.listen(leave=lambda: None)
        run = assembly.assemble(request, world, notice)
        stack.callback(reporting.close)
        stack.enter_context(sent_to_mlflow(request, lambda: False))

        def step() -> None:
            result = loop.train_step(run)
            loop.save_if_due(run, result.time_due)

        yield step


def alternate(bare: Step, arm: Step, pairs: int) -> dict[str, list[tuple[float, float]]]:
    """Return what the steps took, without those to warm up."""
    taken: dict[str, list[tuple[float, float]]] = {"bare": [], "arm": []}

    def timed(name: str, step: Step) -> None:
        clock, cpu = time.perf_counter(), time.thread_time()
        step()
        taken[name].append((time.perf_counter() - clock, time.thread_time() - cpu))

    for _ in range(_WARM_UP + pairs):
        timed("bare", bare)
        timed("arm", arm)
    timed("bare", bare)
    return {name: steps[_WARM_UP:] for name, steps in taken.items()}


def main(name: str, folder: Path, pairs: int) -> None:
    """Measure one arm in this process, and print the times of its steps."""
    torch.set_num_threads(1)
    answers = os.dup(1)
    os.dup2(2, 1)  # keep what libraries print out of the results
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    reports = f"report.mlflow=sqlite:///{folder}/mlflow.db"
    if name == "reporting":
        os.environ |= {METRICS_PORT_ENV: str(port), METRICS_ADDRESS_ENV: "127.0.0.1"}
    bare = bare_step(folder)
    with ExitStack() as stack:
        arm = (
            bare_step(folder)
            if name == "control"
            else stack.enter_context(
                trainer_step(folder, *([reports] if name == "reporting" else []))
            )
        )
        os.write(answers, json.dumps(alternate(bare, arm, pairs)).encode())


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
