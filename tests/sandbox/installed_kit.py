"""The command as a researcher installs it: a wheel, and beside it only what its extra `cli` asks for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from sandbox import paths

_SOURCES: Final = ("infra", "ops", "trainer", "training", "trainyard", "pyproject.toml", "setup.py")
COMMAND_S: Final = 300.0


def build_wheel(folder: Path) -> Path:
    """Return a wheel of this checkout, built from a copy and without the package index."""
    copy = folder / "sources"
    for name in _SOURCES:
        source, ignored = paths.PROJECT / name, shutil.ignore_patterns("__pycache__")
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=ignored)
        else:
            shutil.copy(source, copy / name)
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder)]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(copy)], check=True)
    [found] = folder.glob("*.whl")
    return found


def install(wheel: Path, folder: Path) -> Path:
    """Return the command in an environment with the wheel, and links to what the extra asks for."""
    venv.create(folder)
    python = str(folder / "bin/python")
    options = ["--quiet", "--no-deps", "--no-index", "--disable-pip-version-check"]
    pip = [sys.executable, "-m", "pip", "--python", python, "install", *options]
    subprocess.run([*pip, str(wheel)], check=True)
    [packages] = folder.glob("lib/python*/site-packages")
    [about] = packages.glob("trainyard-*.dist-info")
    for distribution in _closure(metadata.PathDistribution(about), "cli").values():
        for name in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
            (packages / name).symlink_to(Path(str(distribution.locate_file(name))))
    return folder / "bin/trainyard"


def _closure(top: metadata.Distribution, extra: str) -> dict[str, metadata.Distribution]:
    found: dict[str, metadata.Distribution] = {}
    todo = [(top, extra)]
    while todo:
        one, extra = todo.pop()
        for line in one.requires or ():
            wanted = Requirement(line)
            name = canonicalize_name(wanted.name)
            if name in found or (wanted.marker and not wanted.marker.evaluate({"extra": extra})):
                continue
            found[name] = metadata.distribution(name)
            todo.append((found[name], ""))
    return found


@dataclass(frozen=True)
class Researcher:
    command: Path
    kubeconfig: Path
    folder: Path

    def __call__(self, *arguments: str, code: int = 0) -> str:
        """Run the command in the folder; return what it prints. Fails unless it ends with `code`."""
        done: Any = subprocess.run(
            [str(self.command), *arguments],
            cwd=self.folder,
            env={
                "PATH": os.defpath,
                "HOME": str(self.folder),
                "KUBECONFIG": str(self.kubeconfig),
                "COLUMNS": "160",
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=COMMAND_S,
        )
        assert done.returncode == code, f"{arguments}: {done.returncode}: {done.stdout}"
        return str(done.stdout)
