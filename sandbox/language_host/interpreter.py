"""Which Python runs a program, and what is installed in it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_LIST_PACKAGES = """
import json
from importlib import metadata

found = []
for distribution in metadata.distributions():
    plugins = [
        json.loads(file.locate().read_text())
        for file in distribution.files or ()
        if file.name == "pulumi-plugin.json"
    ]
    found.append({
        "name": distribution.metadata["Name"],
        "version": distribution.version,
        "plugin": plugins[0] if plugins else None,
    })
print(json.dumps(found))
"""


class InterpreterError(Exception):
    """The Python environment of a program cannot be used; the text is one line for the user."""


@dataclass(frozen=True)
class Plugin:
    """A resource plugin that an installed package asks for."""

    name: str
    version: str
    server: str


def python_of(root: str, options: Mapping[str, Any]) -> Path:
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
    """The environment of a child that runs on `python`: its own `bin` first on PATH."""
    env = {**os.environ, **extra}
    env["PATH"] = f"{python.parent}{os.pathsep}{env.get('PATH', os.defpath)}"
    env["VIRTUAL_ENV"] = str(python.parent.parent)
    env.pop("PYTHONHOME", None)
    return env


def packages(python: Path) -> list[dict[str, Any]]:
    """What is installed: `name`, `version`, and `plugin` (a pulumi-plugin.json, or null)."""
    listed = subprocess.run(
        [str(python), "-c", _LIST_PACKAGES], capture_output=True, text=True, check=False
    )
    if listed.returncode != 0:
        last = listed.stderr.strip().splitlines()[-1:] or ["no output"]
        raise InterpreterError(f"cannot list the packages of {python}: {last[0]}")
    found: list[dict[str, Any]] = json.loads(listed.stdout)
    return sorted(found, key=lambda package: str(package["name"]).lower())


def required_plugins(python: Path) -> list[Plugin]:
    """The resource plugins of the installed packages that are already on this machine.

    A plugin that is nowhere is left out: the engine would try to download every package's plugin
    before the program runs, although a program uses few of those installed. It still asks for a
    missing one when the first resource of that package is registered.
    """
    plugins = []
    for package in packages(python):
        declared = package["plugin"] or {}
        if not declared.get("resource"):
            continue
        name = declared.get("name") or str(package["name"]).removeprefix("pulumi_")
        version = str(declared.get("version") or package["version"]).removeprefix("v")
        if _present(name, version):
            plugins.append(Plugin(name, version, declared.get("server") or ""))
    return plugins


def _present(name: str, version: str) -> bool:
    if shutil.which(f"pulumi-resource-{name}"):
        return True
    home = Path(os.environ.get("PULUMI_HOME") or Path.home() / ".pulumi")
    return (home / "plugins" / f"resource-{name}-v{version}").is_dir()
