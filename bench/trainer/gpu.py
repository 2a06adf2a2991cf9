"""Compare the trainer on this machine's GPUs with a bare loop; without a GPU, return a note."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from bench.statistics import median_and_bound
from bench.trainer import Progress
from bench.trainer.live_runs import ROOT, prepare_dataset

SIZES: dict[str, dict[str, int]] = {
    "small": {
        "layers": 8,
        "hidden": 512,
        "heads": 8,
        "sequence": 512,
        "samples": 4,
        "steps": 30,
        "pairs": 1,
    },
    "full": {
        "layers": 24,
        "hidden": 2048,
        "heads": 16,
        "sequence": 2048,
        "samples": 4,
        "steps": 60,
        "pairs": 2,
    },
}
"""`samples` per rank and step; `pairs`: rounds in which every loop runs once."""
WARMUP_STEPS: Final = 10
"""Not counted: compilation, the allocator's growth, the first collectives."""
_TIMEOUT_S: Final = 1200.0
_VOCABULARY: Final = 264
_HEADS_WIDE: Final = 128

UNTESTED: Final = (
    "Not run: this machine has no GPU. NCCL, bf16 on tensor cores, pinned staging and compilation are selected"
    " by configuration and were not measured; `python -m bench gpu --scale full` measures them on machines"
    " with one to eight GPUs."
)

ARMS: Final[Mapping[str, dict[str, Any]]] = {
    "trainer, DDP": {},
    "trainer, FSDP2": {"parallel": {"shard": 0}},
    "trainer, FSDP2, compiled": {"parallel": {"shard": 0}, "blocks": {"compile": True}},
}
"""Settings that differ from the trainer's defaults; `shard: 0` means all ranks."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What every loop computes."""

    layers: int
    hidden: int
    heads: int
    sequence: int
    samples: int
    steps: int
    vocabulary: int = _VOCABULARY
    wide: int = 0


@dataclass(frozen=True, kw_only=True)
class Result:
    """One loop, after warming up."""

    step_s: float
    """Median."""
    mfu: float | None = None
    host_s: float | None = None
    """Of the step: samples and the exchange between the ranks, median."""
    stall_s: float | None = None
    """Longest that training stood still for a checkpoint."""


def run(sizes: Mapping[str, int], seed: int, notify: Progress) -> tuple[str, bool]:
    """All loops in turns, once per pair."""
    import torch

    ranks = torch.cuda.device_count()
    return measure_loops(sizes, seed, notify, ranks=ranks) if ranks else (UNTESTED, True)


def measure_loops(
    sizes: Mapping[str, int], seed: int, notify: Progress, *, ranks: int, device: str = "cuda"
) -> tuple[str, bool]:
    """The section, for so many ranks. Raises RuntimeError with the end of a failed loop's output."""
    shape = Shape(
        **{k: v for k, v in sizes.items() if k != "pairs"}, wide=_intermediate_size(sizes["hidden"])
    )
    found: dict[str, list[Result]] = {name: [] for name in ("bare", *ARMS)}
    with tempfile.TemporaryDirectory() as place:
        data = prepare_dataset(Path(place))
        for pair in range(sizes["pairs"]):
            names = list(found) if pair % 2 == 0 else list(found)[::-1]
            for number, name in enumerate(names):
                notify(f"round {pair + 1}: {name}", len(names), number)
                folder = Path(place) / f"{pair}-{number}"
                folder.mkdir()
                if name == "bare":
                    found[name].append(_run_baseline(shape, folder, ranks))
                else:
                    settings = _settings(shape, data, seed, ranks, device, ARMS[name])
                    found[name].append(_run_trainer(settings, folder, ranks))
    return table(found, shape, ranks), True


def _intermediate_size(hidden: int) -> int:
    """Of the gated layer: 8/3 of the width, as Llama has it, in whole multiples of 128."""
    return -(-8 * hidden // 3 // _HEADS_WIDE) * _HEADS_WIDE


def _settings(
    shape: Shape, data: Path, seed: int, ranks: int, device: str, more: Mapping[str, Any]
) -> dict[str, Any]:
    """The trainer's configuration: one checkpoint in the middle, all else as any run."""
    parallel = {key: value or ranks for key, value in more.get("parallel", {}).items()}
    return {
        "steps": shape.steps,
        "seed": seed,
        "device": device,
        "deterministic": False,
        "precision": {"compute": "bfloat16"},
        "model": {
            "hidden_size": shape.hidden,
            "intermediate_size": shape.wide,
            "layers": shape.layers,
            "heads": shape.heads,
            "kv_heads": shape.heads,
        },
        "data": {"path": str(data), "sequence_length": shape.sequence},
        "batch": {"global_samples": shape.samples * ranks, "micro_samples": shape.samples},
        "schedule": {"kind": "constant", "warmup_steps": 1},
        "evaluation": {"every_steps": None, "samples": shape.samples},
        "checkpoint": {"every_steps": shape.steps // 2},
        **{key: value for key, value in more.items() if key != "parallel"},
        **({"parallel": parallel} if parallel else {}),
    }


def _run_baseline(shape: Shape, folder: Path, ranks: int) -> Result:
    script = Path(__file__).with_name("gpu_baseline.py")
    program = [str(script), json.dumps(asdict(shape)), str(folder)]
    _launch(["-m", "torch.distributed.run"], ranks, program)
    seconds = json.loads((folder / "bare.json").read_text())
    return Result(step_s=statistics.median(seconds[WARMUP_STEPS:]))


def _run_trainer(settings: Mapping[str, Any], folder: Path, ranks: int) -> Result:
    config, run_dir = folder / "config.yaml", folder / "run"
    config.write_text(yaml.safe_dump(dict(settings)))
    program = ["-m", "training.trainer", "--config", str(config), "--run-dir", str(run_dir)]
    _launch(["-m", "training.trainer.launch"], ranks, program)
    return parse_metrics((run_dir / "metrics.jsonl").read_text())


def parse_metrics(text: str) -> Result:
    """Return the results in metrics.jsonl, without the warm-up steps."""
    steps = [json.loads(line) for line in text.splitlines()]
    counted = steps[WARMUP_STEPS:]
    shares = [step["mfu"] for step in counted if step["mfu"] is not None]
    return Result(
        step_s=statistics.median(step["step_time_s"] for step in counted),
        mfu=statistics.median(shares) if shares else None,
        host_s=statistics.median(s["loader_time_s"] + s["collective_time_s"] for s in counted),
        stall_s=max(step["checkpoint_stall_s"] for step in steps),
    )


def _launch(launcher: list[str], ranks: int, program: list[str]) -> None:
    command = [sys.executable, *launcher, "--standalone", f"--nproc-per-node={ranks}", *program]
    done = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {' '.join(done.stderr.split())[-500:]}")


def table(found: Mapping[str, list[Result]], shape: Shape, ranks: int) -> str:
    """The section for RESULTS.md."""
    tokens = shape.samples * ranks * shape.sequence
    lines = [
        f"{ranks} ranks on {_device()}; a Llama of {shape.layers} blocks, {shape.hidden} wide, sequences of"
        f" {shape.sequence} tokens, {shape.samples} per rank and step, bf16; {len(found['bare'])} rounds in"
        f" turns of {shape.steps} steps, the first {WARMUP_STEPS} not counted.",
        "",
        "| loop | tokens/s | step, against the bare loop (bound) | MFU | samples and exchange, ms"
        " | longest checkpoint stall, ms |",
        "|---|---|---|---|---|---|",
    ]
    for name, results in found.items():
        pairs = zip(results, found["bare"], strict=True)
        ratios = [one.step_s / bare.step_s for one, bare in pairs]
        middle, low, high = median_and_bound(ratios)
        speed = tokens / statistics.median(one.step_s for one in results)
        lines.append(
            f"| {name} | {speed:,.0f} | {middle:.3f} ({low:.3f} to {high:.3f})"
            f" | {_scaled_median([one.mfu for one in results], 1, '.3f')}"
            f" | {_scaled_median([one.host_s for one in results], 1000, '.2f')}"
            f" | {_scaled_median([one.stall_s for one in results], 1000, '.1f')} |"
        )
    return "\n".join(lines)


def _scaled_median(values: list[float | None], scale: float, form: str) -> str:
    known = [value for value in values if value is not None]
    return format(scale * statistics.median(known), form) if known else ""


def _device() -> str:
    import torch

    return torch.cuda.get_device_name(0) if torch.cuda.is_available() else "the CPU"
