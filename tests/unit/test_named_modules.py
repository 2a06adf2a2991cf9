"""Modules that tests name in strings exist: mypy reads neither these nor the programs in them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tools import run_tests

ROOT = Path(__file__).resolve().parents[2]
MODULE = r"(?:infra|trainer|training|trainyard|sandbox|ops|bench|policies|tests)(?:\.[A-Za-z_]\w*)+"
NAMED = re.compile(rf'"({MODULE})"(?:,\s*"([A-Za-z_][\w.]*)")?')
"""A module alone, or followed by a name in it."""
PROGRAM = re.compile(r'"""(.*?)"""|"([^"\n]*)"', re.DOTALL)
IMPORT = re.compile(rf"\bfrom ({MODULE}) import (\w+(?:, \w+)*)")
NO_MODULE = re.compile(
    r".*\.(?:dev|json|md|py|yaml)|trainyard\.(?:run_id|status|team)|trainer\.kubeflow\.org\..*"
)
"""Files, the sandbox's registry of images, tags of runs in MLflow, and an API group."""


@cache
def defined(*parts: str) -> frozenset[str] | None:
    """What a module defines or imports, members of a class as CLASS.NAME; None if there is none."""
    path = ROOT.joinpath(*parts)
    file = path.with_suffix(".py") if path.with_suffix(".py").is_file() else path / "__init__.py"
    if not file.is_file():
        return frozenset() if path.is_dir() else None
    return frozenset(_names(ast.parse(file.read_text(encoding="utf-8")).body))


def _names(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        match node:
            case ast.ClassDef(name=name):
                yield name
                yield from (f"{name}.{member}" for member in _names(node.body))
            case ast.FunctionDef(name=name):
                yield name
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                yield from (alias.asname or alias.name for alias in names)
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield name


def exists(dotted: str) -> bool:
    """Whether a module, or what follows it as a name in it, exists."""
    parts = dotted.split(".")
    for end in range(len(parts), 0, -1):
        if (names := defined(*parts[:end])) is not None:
            first, member = parts[end : end + 1], ".".join(parts[end : end + 2])
            of_class = first and any(name.startswith(f"{first[0]}.") for name in names)
            return not first or (member if of_class else first[0]) in names
    return False


def missing(text: str) -> list[str]:
    """Module names in strings of a file that do not exist."""
    asked = set()
    for module, name in NAMED.findall(text):
        asked.add(f"{module}.{name}" if name and not re.fullmatch(MODULE, name) else module)
    for long, short in PROGRAM.findall(text):
        for module, names in IMPORT.findall(long or short):
            asked |= {f"{module}.{name}" for name in names.split(", ")}
    return sorted(one for one in asked if not NO_MODULE.fullmatch(one) and not exists(one))


def test_modules_that_tests_name_in_strings_exist() -> None:
    files = [path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__)]
    found = {path.name: missing(path.read_text(encoding="utf-8")) for path in files}
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


def test_wrong_module_name_is_found_in_every_position() -> None:
    assert missing('run("-m", "training.checkpoints")') == ["training.checkpoints"]
    assert missing('"import sys; from training.spec import RunSpec, Nothing"') == [
        "training.spec.Nothing"
    ]
    assert missing('"""\nfrom ops.nowhere import why\n"""') == ["ops.nowhere.why"]
    hook = '("trainer.checkpointing", "Checkpointer.{}", 1)'
    assert missing(hook.format("load")) == []
    assert missing(hook.format("fetch")) == ["trainer.checkpointing.Checkpointer.fetch"]
    assert missing('patch("trainyard.disk.os.fsync")') == []


def test_files_of_tests_that_run_together_have_names_of_their_own() -> None:
    """Folders of tests are no packages: pytest imports a file by its name alone."""
    for suite in run_tests.SUITES.values():
        folders = [ROOT / name for name in suite]
        names = [path.name for folder in folders for path in folder.rglob("test_*.py")]
        assert len(folders) > 2 and {name for name in names if names.count(name) > 1} == set()
