"""Outputs that pages show are those that the commands print."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from infra.domain import naming
from ops.runs import why_command
from tests.unit.ops.run_fixtures import (
    at,
    cluster_queue,
    condition,
    pod_spec,
    run,
    snapshot,
    waits,
    workload,
)
from tests.unit.test_docs import blocks

DOCS = Path(__file__).resolve().parents[3] / "docs"


def block(page: str, begin: str) -> list[str]:
    """Lines of the page's block that begins so."""
    [found] = [one for one in blocks((DOCS / page).read_text()) if one.startswith(begin)]
    return found.splitlines()


def console() -> Console:
    return Console(file=io.StringIO(), width=400)


def printed(on: Console) -> list[str]:
    assert isinstance(on.file, io.StringIO)
    return [line.rstrip() for line in on.file.getvalue().splitlines()]


def test_why_a_run_waits() -> None:
    mine = run()
    labels = {naming.RUN: "big", naming.RUN_ID: "big-v1-41f0c2aa"}
    mine["metadata"] |= {"name": "big-v1-41f0c2aa", "labels": mine["metadata"]["labels"] | labels}
    preempted = condition(
        "Preempted",
        message="Preempted to accommodate a workload (UID: w, JobUID: j) due to reclamation within"
        " the cohort; preemptor path: /p",
    )
    preempted["lastTransitionTime"] = at(720)
    waiting = workload(
        waits(), preempted, run_id="big-v1-41f0c2aa", spec=pod_spec(("spot",)), priority=1000
    )
    ahead = workload(waits(), run_id="first-v1-aaaaaaaa", uid="f", priority=2000)
    behind = workload(waits(), run_id="last-v1-bbbbbbbb", uid="l", priority=10)
    holds = workload(
        condition("QuotaReserved"), run_id="llama-v3-9c11d0e2", uid="h", nodes=8, flavor="spot"
    )
    preemptor = workload(
        condition("QuotaReserved"),
        run_id="serve-v2-77ab01cd",
        uid="j",
        nodes=1,
        namespace="team-production",
        flavor="ondemand",
    )
    own = cluster_queue(spot=64, ondemand=0, used={"spot": 64})
    taken = snapshot(
        run=mine,
        workload=waiting,
        workloads=[waiting, ahead, behind, holds, preemptor],
        cluster_queue=own,
        cluster_queues=[own],
    )
    on = console()
    why_command.print_report(taken, on)
    assert printed(on) == block("why-a-run-waits.md", "big-v1-41f0c2aa")
