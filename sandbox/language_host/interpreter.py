"""The Python interpreter of a program."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sandbox.paths import PROJECT


class InterpreterError(Exception):
    """The Python environment of a program is not usable; the text is one line."""


def find_python(root: str, options: Mapping[str, Any]) -> Path:
    """The interpreter that a project or a policy pack names.

    `root` is the folder that relative paths start from, `options` the `runtime.options` of its
    YAML file. Without `virtualenv` it is the interpreter that runs this host.
    Raises InterpreterError when the named environment does not exist.
    """
    named = options.get("virtualenv")
    if not named:
        return Path(sys.executable)
    python = Path(root, str(named)) / "bin" / "python"
    if not python.exists():
        raise InterpreterError(
            f"the virtual environment {named!r} of {root} has no bin/python; "
            "create it (make env), or remove runtime.options.virtualenv"
        )
    return python


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
