"""The environment of what the trainer is measured against, and how a measurement runs in it.

The peers' own releases (bench/peers/requirements.txt) lie in the user's cache, made again when they
change; torch, transformers and all else that the project's environment has is lent to them, so both
sides of a ratio run on the same libraries. A measurement is a module that reads one JSON object from
standard input and prints its answer as the last line of its output, as JSON:

    answer = peers.measure("bench.trainer.host_arms", {"steps": 10}, timeout_s=60)
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
REQUIREMENTS: Final = ROOT / "bench" / "peers" / "requirements.txt"
BYTES_NEEDED: Final = 2 * 1024**3
"""Free disk for the environment and its downloads."""
INSTALL_S: Final = 900.0


class PeersError(Exception):
    """The environment cannot be created, or a measurement in it failed; one line."""


def python() -> Path:
    """Return the peers' interpreter; create its environment if missing (a minute, once).

    Raises PeersError.
    """
    wanted = hashlib.sha256(REQUIREMENTS.read_bytes() + sys.version.encode()).hexdigest()
    folder = _cache() / f"peers-{wanted[:16]}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        venv = folder / "venv"
        stamp = folder / "installed"
        if not stamp.exists():
            _install(venv)
            stamp.touch()
        # Every time: the environment is shared by the user's checkouts, and each lends its own.
        _link_site_packages(venv)
    return venv / "bin" / "python"


def measure(
    module: str,
    request: Mapping[str, Any],
    timeout_s: float,
    *,
    environment: Mapping[str, str] | None = None,
    before: tuple[str, ...] = (),
) -> Any:
    """Run `module` with the peers' interpreter and `request` on standard input; return its result.

    `before` precedes `-m module`, for a launcher: ("-m", "torch.distributed.run", ...).
    Raises PeersError with the last line of its standard error, and after `timeout_s`.
    """
    command = [str(python()), *before, "-m", module]
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            input=json.dumps(request),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            env=dict(os.environ) | dict(environment or {}),
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise PeersError(f"{module}: still running after {timeout_s:.0f} s") from None
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        cause = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise PeersError(f"{module}: exit code {done.returncode}: {cause}")
    try:
        return json.loads(lines[-1])
    except json.JSONDecodeError:
        raise PeersError(f"{module}: answered {lines[-1][:100]!r}, which is not JSON") from None


def versions(*names: str) -> str:
    """`torchdata 0.11.0, litdata 0.2.76`, as pinned."""
    pins = dict(
        line.split(" ")[0].split("==")
        for line in REQUIREMENTS.read_text(encoding="utf-8").splitlines()
        if "==" in line
    )
    return ", ".join(f"{name} {pins[name]}" for name in names)


def _install(venv: Path) -> None:
    free = shutil.disk_usage(venv.parent).free
    if free < BYTES_NEEDED:
        raise PeersError(
            f"disk of {venv.parent}: {free / 1024**3:.1f} GiB free, the peers' environment requires"
            f" {BYTES_NEEDED / 1024**3:.0f} GiB; free disk space"
        )
    print("installing the peers to compare with (once, about a minute)", file=sys.stderr)
    shutil.rmtree(venv, ignore_errors=True)
    _run([sys.executable, "-m", "venv", "--without-pip", str(venv)])
    uv = Path(sys.prefix) / "bin" / "uv"
    install = [str(uv), "pip", "install", "--quiet", "--python", str(venv / "bin" / "python")]
    # Without dependencies: the file is the closure, and what it lacks is lent.
    install += ["--no-deps", "--require-hashes", *_index_options(), "-r", str(REQUIREMENTS)]
    _run(install)


def _link_site_packages(venv: Path) -> None:
    """Let the peers see this project's packages, after their own."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    path = venv / "lib" / version / "site-packages" / "lent.pth"
    line = sysconfig.get_path("purelib") + "\n"
    if not path.exists() or path.read_text() != line:
        path.write_text(line)


def _index_options() -> list[str]:
    """uv does not read pip's configuration: hand a mirror that is set there on to it."""
    command = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    mirror = os.environ.get("PIP_INDEX_URL", "")
    if not mirror:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        mirror = done.stdout.strip()
    return ["--index-url", mirror] if mirror else []


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S, check=False)
    if done.returncode != 0:
        cause = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise PeersError(f"{Path(command[0]).name}: exit code {done.returncode}: {cause}")


def _cache() -> Path:
    """Return the cache folder, shared with the sandbox."""
    if named := os.environ.get("TRAINYARD_CACHE"):
        return Path(named).resolve()
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "trainyard"
