"""Imports between the project's modules, read from their syntax trees.

The import rules (tests/unit/test_import_rules.py) and the selection of tests (tools/selection.py) use it.
"""

from __future__ import annotations

import ast
import functools
import gc
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]


@functools.cache
def syntax_tree(text: str) -> ast.Module:
    """The syntax tree of a file's text, parsed once per process."""
    # A finalizer that runs meanwhile confuses Python 3.11, which then reports a mismatch of recursion depths.
    gc.disable()
    try:
        return ast.parse(text)
    finally:
        gc.enable()


@functools.cache
def import_statements(text: str) -> list[ast.Import | ast.ImportFrom]:
    """All import statements of a file's text, including those in functions and under TYPE_CHECKING."""
    nodes = ast.walk(syntax_tree(text))
    return [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]


def imports(path: Path, root: Path = ROOT) -> Iterator[tuple[str, list[str]]]:
    """(module, imported names) of every import."""
    for node in import_statements(path.read_text(encoding="utf-8")):
        if isinstance(node, ast.Import):
            yield from ((alias.name, []) for alias in node.names)
        else:
            base = node.module or ""
            if node.level:
                package = path.relative_to(root).parts[: -node.level]
                base = ".".join([*package, *([base] if base else [])])
            yield base, [alias.name for alias in node.names]


def imported(path: Path, root: Path = ROOT) -> set[str]:
    """Every module that a file imports, in dotted form; names imported from a package included."""
    return {f"{base}.{name}" for base, names in imports(path, root) for name in names} | {
        base for base, _ in imports(path, root)
    }


def files(*folders: str, root: Path = ROOT) -> Iterator[Path]:
    """Python files of folders (or files), except virtual environments."""
    for folder in folders:
        top = root / folder
        for path in [top] if top.is_file() else sorted(top.rglob("*.py")):
            if ".venv" not in path.parts:
                yield path


def module_paths(root: Path, *folders: str) -> dict[str, Path]:
    """The Python files of folders by the dotted names under which `root` on the path imports them."""
    paths = {}
    for path in files(*folders, root=root):
        parts = path.relative_to(root).with_suffix("").parts
        paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return paths


def module_imports(module: str, paths: Mapping[str, Path], root: Path = ROOT) -> set[str]:
    """Return the modules among `paths` that one of them imports.

    `from PACKAGE import MODULE` is an import of the module, not of the package's `__init__.py`.
    """
    return {
        name
        for base, names in imports(paths[module], root)
        for name in ([f"{base}.{n}" if f"{base}.{n}" in paths else base for n in names] or [base])
        if name in paths and name != module
    }
