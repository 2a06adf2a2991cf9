"""Which programs cordon nodes: a second one would change what pages and the provider's notes say."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from infra.cli.render import ROOT

FOLDERS = ("ops", "trainyard", "training", "sandbox", "infra")
WRITERS = {"ops/steer/cordons.py", "sandbox/node/reclaim.py"}
"""`spot steer`, where the stack says so, and a simulated reclaim with notice."""


def writes(tree: ast.AST) -> Iterator[int]:
    """Lines that make an object with `unschedulable`, or run a command that cordons."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            keys = [key.value for key in node.keys if isinstance(key, ast.Constant)]
            if "unschedulable" in keys:
                yield node.lineno
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            if isinstance(node.slice, ast.Constant) and node.slice.value == "unschedulable":
                yield node.lineno
        elif isinstance(node, ast.Constant) and node.value in ("cordon", "uncordon"):
            yield node.lineno


def commands(file: Path) -> list[str]:
    found = file.relative_to(ROOT).as_posix()
    return [f"{found}:{line}" for line in writes(ast.parse(file.read_text(encoding="utf-8")))]


def test_only_steering_and_a_simulated_reclaim_cordon_nodes() -> None:
    files = [file for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*.py"))]
    found = [line for file in files for line in commands(file)]
    assert {line.partition(":")[0] for line in found} == WRITERS, found
