"""One rank of a check: `python -m trainer.validation.ranks`, started by the launcher of runs.

The first rank of each node writes the result to the folder that RESULTS_ENV names; a failing rank writes its
error. Ranks of a check that found a problem still exit with 0.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist

from trainer import config as trainer_config
from trainer.cli import Parser
from trainer.config.settings import TrainerConfig
from trainer.parallel.world import World, join_world
from trainer.validation import consistency, host, transport
from trainer.validation.consistency import Expected, Finding
from trainer.validation.gang import FAILED, OUTCOME, RESULTS_ENV
from trainyard.exit_codes import report_exit_code

Found = tuple[Finding | None, dict[str, Any]]


def main() -> int:
    """Run one rank; returns its exit code."""
    asked = _parse()
    results = Path(os.environ[RESULTS_ENV])
    try:
        with join_world(_config(asked)) as world:
            finding, facts = CHECKS[asked.check](world, _config(asked), asked.expect)
    except Exception as error:
        rank = os.environ.get("RANK", "0")
        text = " ".join(str(error).split()) or type(error).__name__
        (results / f"{FAILED}{rank}").write_text(f"{type(error).__name__}: {text}")
        print(f"rank {rank}: {text}", file=sys.stderr, flush=True)
        return 1
    if os.environ.get("LOCAL_RANK", "0") == "0":
        outcome = {"finding": asdict(finding) if finding else None, "facts": facts}
        (results / OUTCOME).write_text(json.dumps(outcome))
    return 0


def _config(asked: argparse.Namespace) -> TrainerConfig:
    size = int(os.environ.get("WORLD_SIZE", "1"))
    limits = dict.fromkeys(("start_timeout_s", "collective_timeout_s"), asked.timeout)
    more = {"device": asked.device, **limits}
    return trainer_config.parse({**trainer_settings(size), **more})


def _collective(world: World, _: TrainerConfig, expected: Expected) -> Found:
    ranks, own = _facts(world)
    wrong = consistency.first_finding(ranks, expected)
    measured = measure_all_reduce(world)
    best = max(one.gbps for one in measured)
    used = world.gather({"node": own["node"], "transport": transport.used_here()})
    wrong = wrong or consistency.transport_finding(used, expected.transport)
    facts = own | {
        "transport": used[0]["transport"] or "not known",
        "bandwidth_gbps": round(best, 3),
        "sizes_gbps": {f"{one.mib}Mi": round(one.gbps, 3) for one in measured},
    }
    errors = sum(one.wrong for one in measured)
    if errors:
        wrong = Finding(
            cause=f"an all-reduce gave {errors} wrong sums",
            remedy="take the nodes out one by one until it is right, and replace the one that was wrong",
        )
    elif wrong is None and expected.gbps is not None and best < expected.gbps:
        wrong = Finding(
            cause=f"bus bandwidth is {best:.2f} GB/s over {own['interface'] or 'its network'}; "
            f"{expected.gbps:g} is wanted",
            remedy="see with NCCL_DEBUG=INFO which transport is used, and where the nodes are: rack, zone, "
            "placement group",
        )
    return wrong, facts


def _training(world: World, config: TrainerConfig, expected: Expected) -> Found:
    ranks, own = _facts(world)
    trained = train(config, world)
    facts = own | {
        "first_loss": round(trained.first_loss, 4),
        "last_loss": round(trained.last_loss, 4),
        "tokens_per_s": round(trained.tokens_per_s),
    }
    if not trained.ranks_agree:
        cause = "ranks hold different parameters after training together"
        return Finding(cause=cause, remedy="run the collective check, then replace the node"), facts
    if not trained.learned:
        cause = f"the loss went from {trained.first_loss:.3f} to {trained.last_loss:.3f} only"
        return Finding(cause=cause, remedy="run the smoke check: a GPU computes wrong"), facts
    return consistency.first_finding(ranks, expected), facts


CHECKS: Final[Mapping[str, Callable[[World, TrainerConfig, Expected], Found]]] = {
    "collective": _collective,
    "train": _training,
}


def _facts(world: World) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the facts of every rank in order, and those of this node's result line."""
    mine = host.host_facts() | host.device_facts(world.device)
    gathered = world.gather(mine)
    nodes = sorted({str(one["node"]) for one in gathered})
    about = {
        "world_size": world.size,
        "nodes": nodes,
        "notes": consistency.cross_zone_notes(gathered),
    }
    return gathered, mine | about


def _parse() -> argparse.Namespace:
    parser = Parser(prog="python -m trainer.validation.ranks", description=__doc__)
    parser.add_argument("check", choices=sorted(CHECKS))
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--timeout", type=float, required=True, metavar="SECONDS")
    parser.add_argument("--expect", type=Expected.from_json, default=Expected(), metavar="JSON")
    return parser.parse_args()


MIB: Final = 1 << 20
SIZES_MIB: Final = {"cuda": (1, 16, 64, 256), "cpu": (1, 4, 16)}
"""Message sizes per rank: small ones show latency, large ones bandwidth."""
_WARM_UP: Final = 2
_TIMED: Final = 8
_PERIOD: Final = 251
"""Period of the values: a prime, so that chunks of a ring differ."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    mib: int
    gbps: float
    """Bus bandwidth by the slowest rank's clock, in 10^9 bytes per second, as nccl-tests report it: bytes x
    2 (n - 1) / n / seconds, which compares with the speed of the slowest link whatever the number of ranks n is.
    Source: https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md"""
    wrong: int
    """Elements with a wrong sum, over all ranks."""


def measure_all_reduce(world: World) -> list[Measurement]:
    """Measure every size; all ranks call it and get the same result."""
    return [_one(world, mib) for mib in SIZES_MIB[world.device.type]]


def _one(world: World, mib: int) -> Measurement:
    elements = mib * MIB // 4
    wrong = _wrong(world, elements)
    work_E = torch.zeros(elements, device=world.device)
    for _ in range(_WARM_UP):
        dist.all_reduce(work_E)
    _finish(world)
    world.sum([0.0])  # all begin together
    begun = time.perf_counter()
    for _ in range(_TIMED):
        dist.all_reduce(work_E)
    _finish(world)
    longest = torch.tensor([time.perf_counter() - begun], dtype=torch.float64)
    dist.all_reduce(longest, op=dist.ReduceOp.MAX)
    seconds = float(longest.item()) / _TIMED
    return Measurement(
        mib=mib, gbps=bus_gbps(mib * MIB, world.size, seconds), wrong=int(world.sum([wrong])[0])
    )


def bus_gbps(size: int, ranks: int, seconds: float) -> float:
    """Return the bus bandwidth in GB/s of an all-reduce of `size` bytes."""
    return size * 2 * (ranks - 1) / ranks / seconds / 1e9


def _wrong(world: World, elements: int) -> float:
    """Return this rank's elements with a wrong sum; integers add up exactly."""
    pattern_E = torch.arange(elements, device=world.device).remainder_(_PERIOD).float()
    work_E = pattern_E * (world.rank + 1)
    dist.all_reduce(work_E)
    total = world.size * (world.size + 1) // 2
    return float((work_E != pattern_E * total).sum().item())


def _finish(world: World) -> None:
    if world.device.type == "cuda":
        torch.cuda.synchronize(world.device)


STEPS: Final = 40
_SAMPLES: Final = 16
"""Samples per rank and step."""
_SEQUENCE: Final = 32
_VOCABULARY: Final = 257
_LEARNED: Final = 0.8
"""Maximum ratio of the last loss to the first."""

SETTINGS: Final[dict[str, Any]] = {
    "steps": STEPS,
    "model": {"hidden_size": 64, "intermediate_size": 128, "layers": 2, "heads": 2, "kv_heads": 2},
    "data": {"path": "none", "sequence_length": _SEQUENCE},
    "optimizer": {"learning_rate": 0.01},
    "schedule": {"warmup_steps": 0},
}
"""Trainer settings; the batch follows from the number of ranks."""


@dataclass(frozen=True, kw_only=True)
class TrainingResult:
    """Result of the training; equal on all ranks."""

    first_loss: float
    last_loss: float
    """Means over all ranks, in nats per token."""
    tokens_per_s: float
    ranks_agree: bool
    """Whether all ranks hold the same parameters at the end."""

    @property
    def learned(self) -> bool:
        return math.isfinite(self.last_loss) and self.last_loss < _LEARNED * self.first_loss


def trainer_settings(world_size: int) -> dict[str, Any]:
    batch = {"global_samples": _SAMPLES * world_size, "micro_samples": _SAMPLES}
    return {**SETTINGS, "batch": batch}


def train(config: TrainerConfig, world: World) -> TrainingResult:
    """Train STEPS steps with the trainer's own network and parallel code; all ranks call it.

    It needs no dataset and writes no checkpoint. Every sample is a sequence of consecutive numbers, which a
    working network learns in a few steps.
    """
    # Late import: other checks do not load transformers.
    from trainer.optimizer import make_optimizer
    from trainer.parallel import build

    torch.manual_seed(config.seed)
    network = build.build_network(config, world, _VOCABULARY)
    optimizer = make_optimizer(network.unwrapped, config.optimizer)
    network.init_weights()
    losses: list[float] = []
    begun = time.perf_counter()
    for step in range(STEPS):
        parts_M = network.passes.forward_backward(_samples(world, step))
        network.clip(config.optimizer.clip_norm)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(world.sum([float(parts_M.sum().item())])[0] / world.size)
    seconds = time.perf_counter() - begun
    return TrainingResult(
        first_loss=losses[0],
        last_loss=losses[-1],
        tokens_per_s=STEPS * _SAMPLES * _SEQUENCE * world.size / seconds,
        ranks_agree=len(set(_fingerprints(network.unwrapped, world))) == 1,
    )


def _samples(world: World, step: int) -> torch.Tensor:
    """Return this rank's samples, shape [B, S + 1]."""
    first = (step * world.size + world.rank) * _SAMPLES
    starts_B1 = torch.arange(first, first + _SAMPLES).unsqueeze(1) * 7
    rows_BS1 = (starts_B1 + torch.arange(_SEQUENCE + 1)) % _VOCABULARY
    return rows_BS1.to(world.device)


def _fingerprints(model: torch.nn.Module, world: World) -> list[str]:
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().cpu().numpy().tobytes())
    return world.gather(digest.hexdigest())


if __name__ == "__main__":
    code = main()
    report_exit_code(code)
    sys.stdout.flush()
    sys.stderr.flush()
    # torch's teardown can hang when other ranks are gone.
    os._exit(code)
