"""A user's plain DDP script on the embedded cluster: packed, started by torchrun, reclaimed, finished.

On the notice it ends with 0, as many scripts do, and the rank that loses its peer with an error: both mean 75.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.domain import naming
from sandbox.node.reclaim import reclaim
from tests.sandbox.conftest import Cluster
from tests.sandbox.node_kit import trainer_image, until
from tests.sandbox.team_kit import TeamStage, process_pool
from training import job, run_files
from training.spec import RunSpec

pytestmark = [pytest.mark.sandbox, pytest.mark.timeout(600), pytest.mark.long(64)]

POOL = "programs-spot"
STAGE = TeamStage(
    team="programs",
    pools=[process_pool(POOL, "spot", 3, "programs-zone")],
    guaranteed={POOL: 3},
    more={"images": {"trainer": trainer_image()}},
)
START_S = 240.0
"""Two processes that load torch, on a machine that may be busy with other tests."""

SCRIPT = """
import argparse, os, signal, sys, time
from pathlib import Path
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--output", type=Path)
parser.add_argument("--steps", type=int)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
args = parser.parse_args()
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
file, step = args.output / "state.pt", 0
if file.exists():
    saved = torch.load(file, weights_only=True)
    model.load_state_dict(saved["model"])
    step = saved["step"]
    print("resumed", step, flush=True)
while step < args.steps:
    loss = model(torch.ones(2, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    if dist.get_rank() == 0:
        args.output.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(".part")
        torch.save({"model": model.state_dict(), "step": step}, part)
        os.replace(part, file)
        print("step", step, flush=True)
    time.sleep(0.05)
print("finished", step, "of", dist.get_world_size(), "ranks", flush=True)
dist.destroy_process_group()
"""
STEPS = 300


@pytest.fixture(scope="module")
def programs(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with a team, its volumes, its queue and three process nodes; deleted at the end."""
    with STAGE.deployed(cluster, "jobsets") as ready:
        yield ready


def _run(folder: Path) -> tuple[RunSpec, list[dict[str, Any]]]:
    """The run of a run file in a repository with the script, and its objects."""
    (folder / "code").mkdir()
    (folder / "code/train.py").write_text(SCRIPT)
    document = {
        "name": "ddp",
        "version": 1,
        "team": STAGE.team,
        "nodes": 2,
        "gpusPerNode": 1,
        "image": "trainer",
        "resources": {"cpu": "1", "memory": "2Gi", "shm": "256Mi"},
        "program": {
            "source": "code",
            "command": ["train.py", "--output", "{checkpoints}", "--steps", str(STEPS)],
        },
    }
    (folder / "ddp.yaml").write_text(yaml.safe_dump(document))
    platform = STAGE.platform()
    [run] = run_files.load(("ddp.yaml",), platform, STAGE.more["images"], folder)
    return run, [STAGE.own(one) for one in job.manifests(run, platform, "c" * 40)]


def test_a_plain_ddp_script_survives_a_reclaim_with_notice_and_ends_with_0(
    programs: Cluster, tmp_path: Path
) -> None:
    run, manifests = _run(tmp_path)

    def kubectl(*arguments: str, stdin: str | None = None) -> str:
        return programs.kubectl("-n", STAGE.namespace, *arguments, stdin=stdin)

    def logs() -> str:
        selector = f"{naming.RUN_ID}={run.run_id}"
        return kubectl("logs", "-l", selector, "--tail=-1", "--ignore-errors")

    def status() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(kubectl("get", "jobset", run.run_id, "-o", "json"))
        return dict(found.get("status", {}))

    programs.apply(*manifests)
    until(lambda: "step 5\n" in logs(), "the script trains", START_S, every_s=1.0)
    pods = json.loads(kubectl("get", "pods", "-l", f"{naming.RUN_ID}={run.run_id}", "-o", "json"))
    reclaim(pods["items"][0]["spec"]["nodeName"], 90, state=programs.state)
    ended = until(lambda: status().get("terminalState"), "the run has ended", START_S, every_s=1.0)
    assert ended == "Completed", logs()
    assert status()["restarts"] >= 1
    assert status().get("restartsCountTowardsMax", 0) == 0, "a reclaim does not count as a failure"
    text = logs()
    resumed = [int(line.split()[1]) for line in text.splitlines() if line.startswith("resumed")]
    assert len(resumed) == 2 and min(resumed) >= 5
    assert text.count(f"finished {STEPS} of 2 ranks") == 2
