"""docs/operate.md, "Lost cluster": a stack comes back on an empty control plane, and its run goes on."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from bench.embedded import Embedded, running_cluster
from sandbox import paths
from tests.sandbox.node_kit import until
from tests.sandbox.region_kit import Region, lines, output_of, run_file, steps

pytestmark = [pytest.mark.sandbox, pytest.mark.full_only, pytest.mark.timeout(3600)]


def sandbox(cluster: Embedded, *words: str) -> None:
    """Run a command of the sandbox."""
    env = os.environ | {"SANDBOX_HOME": str(cluster.home), "SANDBOX_MONITORING": "off"}
    output_of([sys.executable, "-m", "sandbox", *words], paths.PROJECT, env)


def lose(cluster: Embedded) -> None:
    """Replace the control plane by an empty one; volumes and Pulumi's state stay."""
    sandbox(cluster, "down")
    shutil.rmtree(cluster.home / "etcd")
    (cluster.home / "objects.json").unlink()
    sandbox(cluster, "up", "--cluster-only")


def objects(stack: Region) -> set[str]:
    """URNs of the objects of the cluster in the stack's state."""
    exported = json.loads(stack.pulumi("stack", "export", "--stack", stack.stack))
    urns = {one["urn"] for one in exported["deployment"].get("resources", [])}
    return {urn for urn in urns if urn.split("::")[2].rpartition("$")[2].startswith("kubernetes:")}


def test_a_stack_and_its_run_come_back_on_an_empty_cluster(tmp_path: Path) -> None:
    run = run_file(tmp_path)
    with running_cluster(print, tuned=False) as cluster:
        stack = Region(cluster, "lost", tmp_path)
        stack.up(run)
        until(lambda: bool(list(stack.runs().glob("moved-v1-*/metrics.jsonl"))), "it trains", 900)
        (mine,) = stack.runs().glob("moved-v1-*")
        until(lambda: max(steps(mine), default=0) >= 15, "step 15", 900)
        made = objects(stack)
        lose(cluster)
        stack.env |= cluster.variables()
        assert "team-research" not in stack.kubectl("get", "namespaces")
        reached = max(steps(mine))
        stack.pulumi("refresh", "--yes", "--skip-preview", "--stack", stack.stack)
        assert objects(stack) == set()
        stack.up(run)
        assert objects(stack) == made and "team-research" in stack.kubectl("get", "namespaces")
        assert list(stack.runs().glob("moved-v1-*")) == [mine]
        until(lambda: max(steps(mine)) > reached, "the run goes on", 900)
        resumed = [one for one in lines(mine, "events.jsonl") if one.get("event") == "resumed"]
        assert 0 < resumed[-1]["from_step"] <= reached, resumed
        print(f"{len(made)} objects came back; the run went on from {resumed[-1]['from_step']}")
