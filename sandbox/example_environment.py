"""The examples' Python environment: the packages of examples/requirements.txt on top of the project's.

It lies in the cache of this user and holds only what `.venv` lacks or has in another version; a `.pth` file
adds the packages of `.venv` behind its own, so there is one copy of PyTorch. It is installed before a deployment
whose runs use the image `examples`, by a test, or when a process node starts a container of that image. The last
works only where the package index needs none of the user's variables, which services of the sandbox do not have.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import site
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from sandbox import bootstrap, paths
from sandbox.lock import held
from sandbox.reporting import Report, SandboxError

REQUIREMENTS = "examples/requirements.txt"
_STAMP = "installed"
_LAYER = "layer.txt"
_USES = re.compile(r"^image:\s*['\"]?examples\b", re.MULTILINE)


def folder(project: Path = paths.PROJECT) -> Path:
    """Return the environment's folder, named by the pins, the Python version and the project's environment."""
    digest = hashlib.sha256()
    for part in (
        (project / REQUIREMENTS).read_bytes(),
        (project / "requirements.txt").read_bytes(),
        sys.version.encode(),
        str(Path(sys.prefix).resolve()).encode(),
    ):
        digest.update(hashlib.sha256(part).digest())
    return paths.cache() / f"examples-{digest.hexdigest()[:16]}"


def ensure(report: Report, project: Path = paths.PROJECT) -> Path:
    """Return the environment's folder; install it if it is missing. Safe against kills and other callers.

    Raises SandboxError: an installer failed; its last line is in the text.
    """
    venv = folder(project)
    if (venv / _STAMP).exists():
        return venv
    with held(venv.with_suffix(".lock"), lambda _: None):
        if not (venv / _STAMP).exists():
            report(f"installing {REQUIREMENTS} (once, about a minute without cached packages)")
            _install(venv, project)
            report(f"installed {REQUIREMENTS} in {venv}")
    return venv


def is_used(runs: Iterable[str], project: Path = paths.PROJECT) -> bool:
    """Return whether one of the listed runs (stems of training/runs, or paths) uses the image `examples`."""
    names = (n if n.endswith(".yaml") else f"training/runs/{n}.yaml" for n in map(str, runs))
    files = (project / name for name in names)
    return any(_USES.search(file.read_text()) for file in files if file.is_file())


def layer(requirements: str, base: str) -> str:
    """Return the pins of `requirements` that `base` does not have in the same version, with hashes."""
    present = set(_pins(base))
    return "".join(text for pin, text in _pins(requirements).items() if pin not in present)


def _pins(text: str) -> dict[str, str]:
    """Return the lines of each `NAME==VERSION`; alternatives by marker are separate pins."""
    found: dict[str, str] = {}
    name = ""
    for line in text.splitlines(keepends=True):
        if re.match(r"[A-Za-z0-9]", line):
            name = line.split(" ")[0]
        if name and not line.lstrip().startswith("#"):
            found[name] = found.get(name, "") + line
    return found


def _install(venv: Path, project: Path) -> None:
    shutil.rmtree(venv, ignore_errors=True)
    _run([sys.executable, "-m", "venv", "--without-pip", str(venv)])
    pins = venv / _LAYER
    base = (project / "requirements.txt").read_text()
    pins.write_text(layer((project / REQUIREMENTS).read_text(), base))
    python = venv / "bin" / "python"
    # Compiled now: containers mount it read-only. The lock file is complete, so nothing is resolved.
    options = ["--compile-bytecode", "--no-deps", "--require-hashes", "--quiet"]
    index = bootstrap.index_options(Path(sys.executable))
    uv = str(Path(sys.prefix) / "bin" / "uv")
    _run([uv, "pip", "install", *options, *index, "--python", str(python), "-r", str(pins)])
    own = Path(site.getsitepackages()[0]).resolve()
    packages = venv / own.relative_to(Path(sys.prefix).resolve())
    (packages / "project.pth").write_text(f"import site; site.addsitedir({str(own)!r})\n")
    (venv / _STAMP).touch()


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        told = [line for line in lines if not line.lstrip().startswith("hint:")]
        last = (told or ["no reason given"])[-1]
        raise SandboxError(
            f"{REQUIREMENTS}: not installed: {last.strip()}; check the package index, run it again"
        )
