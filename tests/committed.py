"""What the committed stacks render to: once in a test session, by whichever worker asks first."""

from __future__ import annotations

import fcntl
import json
from functools import cache
from pathlib import Path
from typing import Any

_FOLDERS: list[Path] = []


def share(folder: Path) -> None:
    """Where all workers of the session keep what was rendered."""
    _FOLDERS[:] = [folder]


ROOT = Path(__file__).resolve().parents[1]
MANAGED_BLOCK = "prod-managed-block"
"""The production stack with its capacity block in a managed group without times."""
EVERY_PURCHASE = "prod-every-purchase"
"""The production stack with pools that are bought in every way, and what was paid for its reservations."""


def local_on_queueing_cluster() -> dict[str, Any]:
    """The values of the local stack for a cluster that has Kueue and JobSet."""
    from infra.config import stack_values

    values = stack_values(ROOT / "Pulumi.local.yaml")
    provided = {name: {"provided": True} for name in values["operators"]}
    installed = ("charts", "gangTimeouts")
    left = {key: value for key, value in values.items() if key not in installed}
    return {**left, "operators": provided}


def _reserved(kind: str, number: int, usd: float | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": kind, "id": f"cr-{number:017x}"}
    return found if usd is None else found | {"usdPerNodeHour": usd}


def _pool(name: str, instance_type: str, nodes: str, **more: Any) -> dict[str, Any]:
    """Two nodes: those of a managed group always, since nothing scales it."""
    return {
        "name": name,
        "capacity": "on-demand",
        "instanceTypes": [instance_type],
        "nodes": nodes,
        "min": 2 if nodes == "managed" else 0,
        "max": 2,
        "zone": "us-east-1a",
        **more,
    }


def _every_purchase() -> list[dict[str, Any]]:
    """Pools for production: the price of a reserved node is recorded by type, so each has another one."""
    block, on_demand = "capacity-block", "on-demand-capacity-reservation"
    spot = {"capacity": "spot", "fallback": "on-demand"}
    return [
        _pool("group-block", "p5e.48xlarge", "managed", reservation=_reserved(block, 1, 36.25)),
        _pool("group-held", "p4de.24xlarge", "managed", reservation=_reserved(on_demand, 2, 24.5)),
        _pool("group-spot", "g5.12xlarge", "managed", capacity="spot"),
        _pool("group-bought", "g5.12xlarge", "managed"),
        _pool("held", "g6.12xlarge", "karpenter", reservation=_reserved(on_demand, 3, 3.75)),
        _pool("held-unpriced", "g6e.12xlarge", "karpenter", reservation=_reserved(on_demand, 4)),
        _pool("spot-unpriced", "g5.48xlarge", "karpenter", capacity="spot"),
        _pool("falls-back", "p4d.24xlarge", "karpenter", **spot),
    ]


def values(stack: str) -> dict[str, Any]:
    """The stack file of a committed stack, of `MANAGED_BLOCK` or of `EVERY_PURCHASE`."""
    # Every test's process loads this file, and most have no use for Pulumi.
    from infra.config import stack_values

    found = stack_values(ROOT / f"Pulumi.{stack.partition('-')[0]}.yaml")
    if stack == MANAGED_BLOCK:
        (block,) = [pool for pool in found["nodePools"] if pool["name"] == "block"]
        block["nodes"] = "managed"
        for times in ("start", "end"):
            del block["reservation"][times]
    if stack == EVERY_PURCHASE:
        (block,) = [pool for pool in found["nodePools"] if pool["name"] == "block"]
        block["reservation"]["usdPerNodeHour"] = 31.5
        found["nodePools"] += _every_purchase()
    return found


@cache
def rendered(stack: str) -> list[dict[str, Any]]:
    """Every resource of one of the stacks of `values`; copy them before changing one."""
    from infra.cli.render import render

    (folder,) = _FOLDERS
    folder.mkdir(exist_ok=True)
    file = folder / f"{stack}.json"
    with file.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            file.write_text(json.dumps(render(stack.partition("-")[0], values(stack))))
    found: list[dict[str, Any]] = json.loads(file.read_text())
    return found
