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


MANAGED_BLOCK = "prod-managed-block"
"""The production stack with its capacity block in a managed group without times."""


@cache
def rendered(stack: str) -> list[dict[str, Any]]:
    """Every resource of a committed stack or of `MANAGED_BLOCK`; copy them before changing one."""
    # Every test's process loads this file, and most have no use for Pulumi.
    from infra.cli.render import ROOT, render
    from infra.config import stack_values

    (folder,) = _FOLDERS
    folder.mkdir(exist_ok=True)
    file = folder / f"{stack}.json"
    with file.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            values = stack_values(ROOT / f"Pulumi.{stack.partition('-')[0]}.yaml")
            if stack == MANAGED_BLOCK:
                (block,) = [pool for pool in values["nodePools"] if pool["name"] == "block"]
                block["nodes"] = "managed"
                for times in ("start", "end"):
                    del block["reservation"][times]
            file.write_text(json.dumps(render(stack.partition("-")[0], values)))
    found: list[dict[str, Any]] = json.loads(file.read_text())
    return found
