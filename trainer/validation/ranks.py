"""One rank of a check: `python -m trainer.validation.ranks`, started by the launcher of runs.

The first rank of each node writes the result to the folder that RESULTS_ENV names; a failing rank writes its
error. Ranks of a check that found a problem still exit with 0.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from trainer import config as trainer_config
from trainer.cli import Parser
from trainer.config.settings import TrainerConfig
from trainer.parallel.world import World, join_world
from trainer.validation import bandwidth, consistency, host, short_training, transport
from trainer.validation.consistency import Expected
from trainer.validation.gang import FAILED, OUTCOME, RESULTS_ENV
from trainer.validation.verdict import Finding
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
    return trainer_config.parse({**short_training.trainer_settings(size), **more})


def _collective(world: World, _: TrainerConfig, expected: Expected) -> Found:
    ranks, own = _facts(world)
    wrong = consistency.first_finding(ranks, expected)
    measured = bandwidth.measure_all_reduce(world)
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
    trained = short_training.train(config, world)
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


if __name__ == "__main__":
    code = main()
    report_exit_code(code)
    sys.stdout.flush()
    sys.stderr.flush()
    # torch's teardown can hang when other ranks are gone.
    os._exit(code)
