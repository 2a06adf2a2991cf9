"""The Python interpreter of a program and its installed packages."""

from __future__ import annotations

import json
import os
import shutil
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from sandbox.paths import PROJECT


class InterpreterError(Exception):
    """The Python environment of a program is not usable; the text is one line."""


@dataclass(frozen=True)
class Plugin:
    """A resource plugin that an installed package requires."""

    name: str
    version: str
    server: str


def find_python(root: str, options: Mapping[str, Any]) -> Path:
    """The interpreter that a project or a policy pack names.

    `root` is the folder that relative paths start from, `options` the `runtime.options` of its
    YAML file. Without `virtualenv` it is the interpreter that runs this host.
    Raises InterpreterError when the named environment does not exist.
    """
    named = options.get("virtualenv")
    if not named:
        return Path(sys.executable)
    python = virtualenv(root, options) / "bin" / "python"
    if not python.exists():
        raise InterpreterError(
            f"the virtual environment {named!r} of {root} has no bin/python; "
            "create it (pulumi install), or remove runtime.options.virtualenv"
        )
    return python


def virtualenv(root: str, options: Mapping[str, Any]) -> Path:
    """The folder of the environment that `runtime.options.virtualenv` names."""
    return Path(root, str(options["virtualenv"]))


def environment(python: Path, extra: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a child that runs on `python`: its `bin` is first on PATH."""
    env = {**os.environ, **extra}
    env["PATH"] = f"{python.parent}{os.pathsep}{env.get('PATH', os.defpath)}"
    env["VIRTUAL_ENV"] = str(python.parent.parent)
    env.pop("PYTHONHOME", None)
    # The program must not import from the host's checkout by accident.
    inherited = env.pop("PYTHONPATH", "").split(os.pathsep)
    kept = [entry for entry in inherited if entry and Path(entry).resolve() != PROJECT]
    if kept:
        env["PYTHONPATH"] = os.pathsep.join(kept)
    return env


def packages(python: Path) -> list[tuple[str, str]]:
    """Return name and version of every package of an interpreter."""
    found = metadata.distributions(path=[str(_site_packages(python))])
    return sorted({(item.metadata["Name"], item.version) for item in found if item.metadata})


def required_plugins(python: Path) -> list[Plugin]:
    """Return the resource plugins of installed packages that exist on this machine.

    Missing plugins are omitted: the engine would download all of them before the program runs, although
    a program uses few. It still requests a missing one when its first resource is registered.
    """
    plugins = []
    for file in sorted(_site_packages(python).glob("*/pulumi-plugin.json")):
        declared = json.loads(file.read_text())
        if not declared.get("resource"):
            continue
        name = declared.get("name") or file.parent.name.removeprefix("pulumi_")
        version = str(declared.get("version") or "").removeprefix("v")
        if _present(name, version):
            plugins.append(Plugin(name, version, declared.get("server") or ""))
    return plugins


def _site_packages(python: Path) -> Path:
    """Return an interpreter's site-packages without starting it."""
    if python == Path(sys.executable):
        return Path(sysconfig.get_path("purelib"))
    found = sorted(python.parent.parent.glob("lib/python3*/site-packages"))
    if not found:
        raise InterpreterError(f"{python.parent.parent} has no lib/python3*/site-packages")
    return found[-1]


def _present(name: str, version: str) -> bool:
    if shutil.which(f"pulumi-resource-{name}"):
        return True
    home = Path(os.environ.get("PULUMI_HOME") or Path.home() / ".pulumi")
    return (home / "plugins" / f"resource-{name}-v{version}").is_dir()
