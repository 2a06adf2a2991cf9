"""docs/recover.md, "Lost cluster": a stack and its releases when their cluster moves, or is lost under a run."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.embedded import Embedded, running_cluster
from sandbox import paths, ports
from tests.sandbox.node_kit import until
from tests.sandbox.region_kit import Region, lines, output_of, run_file, steps

pytestmark = [pytest.mark.sandbox, pytest.mark.full_only, pytest.mark.timeout(3600)]

RELEASES = 2
"""Kueue's and JobSet's."""


@pytest.fixture
def cluster() -> Iterator[Embedded]:
    with running_cluster(print, tuned=False) as made:
        yield made


@pytest.fixture
def stack(cluster: Embedded, tmp_path: Path) -> Region:
    return Region(cluster, "lost", tmp_path)


def move(cluster: Embedded, stack: Region, *, empty: bool = False) -> None:
    """Start the control plane at another port, with certificates of another CA. `empty`: without its objects."""
    env = os.environ | {"SANDBOX_HOME": str(cluster.home), "SANDBOX_MONITORING": "off"}
    before = (cluster.home / "kubeconfig").read_text()
    file = cluster.home / "ports.json"
    output_of([sys.executable, "-m", "sandbox", "down"], paths.PROJECT, env)
    known = json.loads(file.read_text())
    file.write_text(json.dumps(known | {"apiserver": ports.free_port(taken=known.values())}))
    (cluster.home / "pki/ca.crt").unlink()
    if empty:
        shutil.rmtree(cluster.home / "etcd")
        (cluster.home / "objects.json").unlink()
    output_of([sys.executable, "-m", "sandbox", "up", "--cluster-only"], paths.PROJECT, env)
    after = (cluster.home / "kubeconfig").read_text()
    for field in ("server:", "certificate-authority-data:"):
        assert _line(before, field) != _line(after, field)
    stack.env |= cluster.variables()


def _line(text: str, field: str) -> str:
    (found,) = [one for one in text.splitlines() if one.strip().startswith(field)]
    return found


def objects(stack: Region) -> set[str]:
    exported = json.loads(stack.pulumi("stack", "export", "--stack", stack.stack))
    urns = [one["urn"].split("::") for one in exported["deployment"].get("resources", [])]
    named = {f"{kind.rpartition('$')[2]}::{name}" for _, _, kind, name in urns}
    return {one for one in named if one.startswith("kubernetes:")}


def identities(stack: Region) -> str:
    """What changes if an object is created again, or a release upgraded: Helm keeps a Secret of each revision."""
    kinds = "namespaces,deployments,clusterqueues,customresourcedefinitions"
    where = ("-A", "-o", "jsonpath={range .items[*]}{.metadata.name} {.metadata.uid}{'\\n'}{end}")
    revisions = stack.kubectl("get", "secrets", "-l", "owner=helm", *where)
    assert len(revisions.splitlines()) == RELEASES
    return stack.kubectl("get", kinds, *where) + revisions


def test_no_object_and_no_release_changes_when_the_api_server_has_another_address_and_ca(
    cluster: Embedded, stack: Region
) -> None:
    stack.up()
    made = identities(stack)
    move(cluster, stack)
    changed = stack.up()
    assert "unchanged" in changed
    assert not any(word in changed for word in ("created", "updated", "replaced", "deleted")), (
        changed
    )
    assert identities(stack) == made
    stack.pulumi("preview", "--expect-no-changes", "--stack", stack.stack)
    stack.pulumi("destroy", "--yes", "--skip-preview", "--stack", stack.stack)
    assert "kueue-system" not in stack.kubectl("get", "namespaces")


def test_a_stack_its_releases_and_its_run_come_back_on_an_empty_cluster(
    cluster: Embedded, stack: Region, tmp_path: Path
) -> None:
    run = run_file(tmp_path)
    stack.up(run)
    until(lambda: bool(list(stack.runs().glob("moved-v1-*/metrics.jsonl"))), "it trains", 900)
    (mine,) = stack.runs().glob("moved-v1-*")
    until(lambda: max(steps(mine), default=0) >= 15, "step 15", 900)
    made = objects(stack)
    assert (
        len([one for one in made if one.startswith("kubernetes:helm.sh/v3:Release::")]) == RELEASES
    )
    move(cluster, stack, empty=True)
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
