"""Which tests a change can break: those whose file uses a changed file, directly or through others.

A file uses what it imports. Tests, the sandbox and benchmarks also use the modules and files that they name in
strings (`-m trainer`, `Pulumi.dev.yaml`); modules use the data in their folder; a test uses the
`conftest.py` of its folders, and on a cluster the program that is deployed there. What is only found at run
time is not seen.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from tools.imports import imports, module_imports, module_paths, syntax_tree

ROOMS: Final = (
    *(
        "__main__.py",
        "bench",
        "bootstrap",
        "components",
        "examples",
        "infra",
        "ops",
        "policies",
        "sandbox",
    ),
    *("tests", "tools", "trainer", "training", "trainyard"),
)
STARTERS: Final = ("tests", "sandbox", "bench")
"""Rooms that start programs and read files by name. In others, a name in a string is part of a message."""
IMPLIED: Final = {"tests/sandbox/conftest.py": "__main__.py"}
"""By file, a file that it uses without naming it: the tests' cluster gets what the program deploys."""
SWITCHES: Final = "tests/conftest.py"
"""What it imports serves single fixtures: a change of that is not one of all tests."""
SHORT_TEST_S: Final = 1.0
"""Seconds that an unmarked test function is counted with; the mark `long` has the seconds of longer ones."""

_WORD: Final = re.compile(r"[\w./-]+")
_MODULE_OPTION: Final = re.compile(r"-m (\w[\w.]*)")


def uses(root: Path, data: Iterable[str]) -> dict[str, set[str]]:
    """Return for each Python file under `root` the files that it uses; `data`: the other files of the project.

    All paths are relative to `root`.
    """
    paths = module_paths(root, *(room for room in ROOMS if (root / room).exists()))
    relative = {module: path.relative_to(root).as_posix() for module, path in paths.items()}
    result: dict[str, set[str]] = {}
    users_of_word = defaultdict(set)
    for module, path in paths.items():
        file = relative[module]
        named = _named(path) if PurePosixPath(file).parts[0] in STARTERS else _Named(set(), set())
        imported = {relative[name] for name in module_imports(module, paths, root)}
        started = {
            relative[m] for n in named.started for m in (n, f"{n}.__main__") if m in relative
        }
        here = {path.parent.relative_to(root), PurePosixPath("policies")}
        siblings = {f"{folder / name}.py" for folder in here for name in _as_paths(path)}
        modules = {relative[word] for word in named.words if "." in word and word in relative}
        others = siblings | named.words | set(_conftests(file)) | {IMPLIED.get(file, file)}
        result[file] = imported | started | modules | (others & set(relative.values())) - {file}
        for word in named.words:
            users_of_word[word].add(file)
    folders = defaultdict(set)
    for file in result:
        folders[PurePosixPath(file).parent].add(file)
    for name in data:
        for file in _users_of_data(PurePosixPath(name), users_of_word, folders):
            result[file].add(name)
    result[SWITCHES] = set()
    return result


def _as_paths(path: Path) -> Iterator[str]:
    """What a script imports, as paths: modules of its own folder or, in the policies, of the pack."""
    for base, names in imports(path, path.parent):
        yield from (f"{base}.{name}".replace(".", "/") for name in names)
        yield base.replace(".", "/")


def _conftests(file: str) -> list[str]:
    folders = list(PurePosixPath(file).parents)[:-1]
    return [f"{folder}/conftest.py" for folder in folders if file.startswith("tests/")]


@dataclass(frozen=True)
class _Named:
    """Words in the strings of a file except docstrings, paths joined; and modules after `-m`."""

    words: set[str]
    started: set[str]


def _named(path: Path) -> _Named:
    words, started = set[str](), set[str]()
    skipped = set[int]()
    for node in ast.walk(syntax_tree(path.read_text(encoding="utf-8"))):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            skipped.add(id(node.value))  # documentation
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            parts, inner = _joined(node)
            skipped |= inner
            words.add(parts)
        elif isinstance(node, ast.List | ast.Tuple | ast.Call):
            items = node.args if isinstance(node, ast.Call) else node.elts
            values = [item.value if isinstance(item, ast.Constant) else None for item in items]
            started |= {
                value
                for option, value in itertools.pairwise(values)
                if option == "-m" and isinstance(value, str)
            }
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            words.update(_WORD.findall(node.value))
            started.update(_MODULE_OPTION.findall(node.value))
    return _Named(words, started)


def _joined(node: ast.expr) -> tuple[str, set[int]]:
    """The constant end of a path joined with `/`, and the nodes that it consists of."""
    parts, inner = list[str](), set[int]()
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        inner.add(id(node))
        if not (isinstance(node.right, ast.Constant) and isinstance(node.right.value, str)):
            break
        parts.insert(0, node.right.value)
        inner.add(id(node.right))
        node = node.left
    return "/".join(parts), inner


def _users_of_data(
    name: PurePosixPath,
    users_of_word: Mapping[str, set[str]],
    folders: Mapping[PurePosixPath, set[str]],
) -> set[str]:
    """Files that name a data file or a folder around it, and the modules of the nearest folder with modules."""
    found = users_of_word.get(str(name), set()) | users_of_word.get(name.name, set())
    for folder in list(name.parents)[:-1]:
        if folder in folders:
            return found | folders[folder]
        found = found | users_of_word.get(str(folder), set())
    return found


def distances(used: Mapping[str, Collection[str]], changed: Iterable[str]) -> dict[str, int]:
    """Return by file the steps to the nearest changed file that it uses; 0 for a changed file."""
    users = defaultdict(set)
    for file, names in used.items():
        for name in names:
            users[name].add(file)
    found = dict.fromkeys(changed, 0)
    edge = list(found)
    while edge:
        edge = [file for name in edge for file in sorted(users[name])]
        steps = 1 + max(found.values(), default=0)
        edge = [file for file in dict.fromkeys(edge) if file not in found]
        found |= dict.fromkeys(edge, steps)
    return found


@dataclass(frozen=True)
class Unit:
    """Tests that are chosen together: one with the mark `long`, or the others of a file.

    Attributes:
        id: The file, or FILE::TEST.
        core: Always runs: it guards a wall, exact or elastic resume, interruptions, or `up` itself.
    """

    id: str
    seconds: float
    core: bool = False

    @property
    def file(self) -> str:
        return self.id.partition("::")[0]


def _marks(expressions: Iterable[ast.expr]) -> dict[str, float]:
    """Marks by name, with the seconds of `long`."""
    marks = {}
    for mark in expressions:
        called, arguments = (mark.func, mark.args) if isinstance(mark, ast.Call) else (mark, [])
        if isinstance(called, ast.Attribute):
            long = called.attr == "long"
            marks[called.attr] = float(ast.literal_eval(arguments[0])) if long else 0.0
    return marks


def units(path: Path, file: str) -> list[Unit]:
    """Return the units of a test file, without tests that only run with `--full`.

    A test with the mark `long` is part of the core only if it has that mark itself, not by its file.
    Raises IndexError for a mark `long` without seconds.
    """
    tree = syntax_tree(path.read_text(encoding="utf-8"))
    own: dict[str, float] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            own = _marks(node.value.elts if isinstance(node.value, ast.List) else [node.value])
    if "full_only" in own:
        return []
    tests = {
        node.name: _marks(node.decorator_list)
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }
    long = [
        Unit(f"{file}::{name}", marks["long"], core="core" in marks)
        for name, marks in tests.items()
        if "long" in marks and "full_only" not in marks
    ]
    rest = [marks for marks in tests.values() if not {"long", "full_only"} & marks.keys()]
    if not rest:
        return long
    return [Unit(file, own.get("long", SHORT_TEST_S * len(rest)), core="core" in own), *long]


@dataclass(frozen=True)
class Selection:
    """Units that run, those that use nothing changed, and those for which the time does not suffice."""

    chosen: list[Unit]
    unaffected: list[Unit]
    left_out: list[Unit]

    def arguments(self) -> list[str]:
        """Pytest's arguments for what was chosen, the longest file first."""
        chosen = {unit.id for unit in self.chosen}
        every = [*self.chosen, *self.unaffected, *self.left_out]
        seconds: dict[str, float] = defaultdict(float)
        for unit in self.chosen:
            seconds[unit.file] += unit.seconds
        arguments = []
        for file in sorted(seconds, key=lambda file: (-seconds[file], file)):
            if file in chosen:
                arguments.append(file)
                others = (u.id for u in every if u.file == file and u.id not in chosen)
                arguments += [f"--deselect={name}" for name in others]
            else:
                arguments += [unit.id for unit in self.chosen if unit.file == file]
        return arguments


def select(every: Iterable[Unit], near: Mapping[str, int], seconds: float) -> Selection:
    """Choose the core, then what the change can break, the nearest first, as long as it fits into `seconds`.

    `near`: steps from each affected file to a changed one.
    """
    chosen, unaffected, left_out = [], [], []
    left = seconds
    order = sorted(every, key=lambda u: (not u.core, near.get(u.file, 0), u.seconds, u.id))
    for unit in order:
        if unit.core or (unit.file in near and unit.seconds <= left):
            chosen.append(unit)
            left -= unit.seconds
        elif unit.file in near:
            left_out.append(unit)
        else:
            unaffected.append(unit)
    return Selection(chosen, unaffected, left_out)
