"""Find existing tools: binaries on PATH in a suitable version, entries of the cache."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from sandbox import paths
from sandbox.toolchain.tools import Tool

VERSION_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class ToolLocation:
    """Where a tool was found. `assets`: parent of the tool's asset folders."""

    source: str
    binaries: dict[str, Path]
    assets: Path


def cache_entry(tool: Tool) -> Path:
    """Return the tool's folder in the cache, existing or not."""
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

    The sandbox's `bin` folder is skipped: its entries point into the cache.
    """
    own = paths.state().bin
    folders = [f for f in os.environ.get("PATH", "").split(os.pathsep) if f and Path(f) != own]
    found: dict[str, Path] = {}
    for binary in tool.binaries:
        path = shutil.which(binary.name, path=os.pathsep.join(folders))
        if path is None or not binary.version_args:
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
