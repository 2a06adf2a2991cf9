"""Check the command of a program: no launcher within the launcher, and nothing that is not packed."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Final

from infra.sections.errors import ConfigIssue, issue, shown
from training import source_archive
from training.program import Source
from training.run_schema import ProgramSection

_LAUNCHERS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("torchrun",), "torchrun"),
    **dict.fromkeys(("accelerate", "accelerate-launch"), "accelerate"),
    **dict.fromkeys(("deepspeed", "deepspeed.pt", "ds"), "deepspeed"),
    **dict.fromkeys(("mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun"), "mpirun"),
    **dict.fromkeys(("srun", "horovodrun", "composer", "colossalai", "fabric"), ""),
}
"""Programs that start ranks, and the `program.launcher` that takes their place; empty: none does."""
_MODULES: Final[Mapping[str, str]] = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "torch.distributed.elastic": "torchrun",
    "accelerate.commands": "accelerate",
    "deepspeed.launcher": "deepspeed",
    "horovod.runner": "",
    "composer.cli": "",
    "colossalai.cli": "",
    "lightning.fabric.cli": "",
    "trainyard.launch": "",
}
"""The same as modules, with those inside them."""
_SHELLS: Final = frozenset({"sh", "bash", "dash", "zsh"})
_WRAPPERS: Final = frozenset(
    {
        *("env", "exec", "nohup", "nice", "ionice", "time", "timeout", "stdbuf", "setsid", "sudo"),
        *("numactl", "taskset", "tini", "dumb-init", "nsys", "ncu", "py-spy"),
        *("uv", "poetry", "pipenv", "pdm", "hatch", "conda"),
    }
)
"""Programs that start the one that is named after their options."""
_OF_WRAPPER: Final = re.compile(r"-.*|[A-Za-z_]\w*=.*|[\d.,:-]+[smhd]?|run|exec|profile|record")
"""Options, variables, numbers and subcommands of wrappers."""
_PYTHON: Final = re.compile(r"python[\d.]*")
_WITH_VALUE: Final = ("-X", "-W")
"""Python's options that are followed by a value."""
_COMMANDS: Final = re.compile(r"&&|\|\||[;|&\n]")
"""What separates commands of a shell."""

_REQUIREMENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "trainer": ("training/image/requirements.txt",),
    "examples": ("training/image/requirements.txt", "examples/requirements.txt"),
}
"""Files with the packages of the images that this repository builds, by the last part of their repository."""
_OWN: Final = ("training", "trainyard")
"""Packages of this repository in those images."""


def check(
    section: ProgramSection, root: Path, source: Source | None, image: str
) -> Iterator[ConfigIssue]:
    """Check the words of the command. `source`: None if there is none; `image`: the run's, by reference."""
    words = section.command
    if (found := _launcher_in(words)) is not None:
        yield _nested(section, *found)
    elif words[0].startswith("-") and words[0] != "-m":
        yield _option(section)
    elif source is not None:
        target = _python_target(words)
        if len(target) > 1 and target[0] == "-m":
            yield from _module(target[1], root, source, image)
        elif target and target[0].endswith(".py"):
            yield from _script(target[0], root, source)


def _launcher_in(words: Sequence[str]) -> tuple[str, str] | None:
    """Return a launcher that these words start, and the `program.launcher` of its kind; None without one."""
    first = PurePosixPath(words[0]).name if words else ""
    if first in _LAUNCHERS:
        return words[0], _LAUNCHERS[first]
    if first in _SHELLS:
        return next(filter(None, map(_launcher_in, _shell_commands(words))), None)
    if first in _WRAPPERS:
        return next((found for at in _wrapped(words) if (found := _started(words[at:]))), None)
    return _started(words)


def _wrapped(words: Sequence[str]) -> Iterator[int]:
    """Yield where the command of a wrapper may begin: after its options, which may have values."""
    for at in range(1, len(words)):
        if _OF_WRAPPER.fullmatch(words[at]):
            continue
        yield at
        if not words[at - 1].startswith("-") or "=" in words[at - 1]:
            return


def _started(words: Sequence[str]) -> tuple[str, str] | None:
    """Return the same for words that follow a wrapper: without further wrappers in front."""
    first = PurePosixPath(words[0]).name
    if first in _LAUNCHERS or first in _SHELLS:
        return _launcher_in(words)
    target = _python_target(words)
    if len(target) > 1 and target[0] == "-m":
        for module, kind in _MODULES.items():
            if target[1] == module or target[1].startswith(f"{module}."):
                return f"-m {target[1]}", kind
    return None


def _shell_commands(words: Sequence[str]) -> Iterator[list[str]]:
    """Yield the commands of a shell's option `-c`, also `-lc`."""
    for option, text in pairwise(words):
        if re.fullmatch(r"-[a-z]*c", option):
            for command in _COMMANDS.split(text):
                try:
                    found = shlex.split(command)
                except ValueError:
                    found = command.split()
                while found and re.match(r"[A-Za-z_]\w*=", found[0]):
                    del found[0]
                if found:
                    yield found
            return


def _python_target(words: Sequence[str]) -> Sequence[str]:
    """Return the words from the script or `-m` on; the interpreter and its options may precede them."""
    if not _PYTHON.fullmatch(PurePosixPath(words[0]).name):
        return words
    at = 1
    while at < len(words) and words[at].startswith("-") and not words[at].startswith("-m"):
        at += 2 if words[at] in _WITH_VALUE else 1
    rest = words[at:]
    if rest and rest[0].startswith("-m") and rest[0] != "-m":
        return ["-m", rest[0][2:], *rest[1:]]
    return rest


def _nested(section: ProgramSection, found: str, kind: str) -> ConfigIssue:
    other = kind and kind != section.launcher
    return issue(
        "nested-launcher",
        "program.command[0]",
        f"{shown(found)} starts ranks, which program.launcher: {section.launcher} does already",
        "must be the script, -m MODULE, or another program",
        "remove it and its options, which are derived from the run"
        + (f"; set launcher: {kind}" if other else ""),
    )


def _option(section: ProgramSection) -> ConfigIssue:
    return issue(
        "option-first",
        "program.command[0]",
        f"{shown(section.command[0])} is an option",
        "must be the script, -m MODULE, or another program",
        f"remove it: the options of {section.launcher} are derived from the run"
        " (Python's own follow python: [python, -O, train.py])",
    )


def _script(script: str, root: Path, source: Source) -> Iterator[ConfigIssue]:
    if script.startswith(("/", "{")):
        return
    folder = root / source.folder
    if PurePosixPath(script).as_posix() not in source_archive.listed(folder):
        near = " (git ignores it)" if (folder / script).is_file() else ""
        yield issue(
            "missing-script",
            "program.command[0]",
            f"{shown(script)} is not in {source.folder}{near}",
            "must be a file of program.source, by its path in that folder",
            "correct it, or add the file",
        )


def _module(module: str, root: Path, source: Source, image: str) -> Iterator[ConfigIssue]:
    """A module that is neither packed nor, as far as that is known, in the image."""
    if "{" in module:
        return
    folder, top = root / source.folder, module.partition(".")[0]
    packed = source_archive.listed(folder)
    if any(_is_module(module, name) for name in packed):
        return
    own = {f"{top}.py", f"{top}/__init__.py"}.intersection(packed)
    known = _modules_of(image, root)
    if not own and (
        _normalized(top) in known if known else not _in_repository(module, folder, root)
    ):
        return
    ignored = any(one.is_file() for one in _files(module, folder))
    near = " (git ignores it)" if ignored else "" if own or not known else " and not in the image"
    yield issue(
        "missing-module",
        "program.command",
        f"-m {module} is not in {source.folder}{near}",
        "must be a module of program.source, by its path in that folder, or of the image",
        "correct it, add the file, or name the folder that contains the package as source",
    )


def _files(module: str, folder: Path) -> Iterator[Path]:
    path = folder.joinpath(*module.split("."))
    yield from (path.with_name(f"{path.name}.py"), path / "__main__.py")


def _is_module(module: str, name: str) -> bool:
    """Whether the packed file `name` is this module: a file, a package that can be run, or part of a link."""
    path = module.replace(".", "/")
    file = name.startswith(f"{path}.") and "/" not in name[len(path) :]
    return file or name == f"{path}/__main__.py" or path.startswith(f"{name}/") or path == name


def _in_repository(module: str, folder: Path, root: Path) -> bool:
    """Whether the module is in the folder or in one above it, and so meant to be packed."""
    if module.partition(".")[0] in _OWN:
        return False
    above = [one for one in (folder, *folder.parents) if one.is_relative_to(root)]
    return any(file.is_file() for one in above for file in _files(module, one))


def _modules_of(image: str, root: Path) -> set[str]:
    """Return the top-level modules of an image that this repository builds; none if they are not known."""
    name = image.partition("@")[0].rpartition("/")[2].partition(":")[0]
    files = [root / one for one in _REQUIREMENTS.get(name, ())]
    if not files or not all(one.is_file() for one in files):
        return set()
    packages = {name for one in files for name in _packages(one.read_text(encoding="utf-8"))}
    return {*packages, *_OWN, *sys.stdlib_module_names}


def _packages(requirements: str) -> Iterable[str]:
    names = re.findall(r"^([A-Za-z0-9][\w.-]*)==", requirements, re.MULTILINE)
    return map(_normalized, names)


def _normalized(name: str) -> str:
    return re.sub(r"[-.]", "_", name).lower()
