"""Create the Python environments with a bare Python: `python3 sandbox/bootstrap.py [REQUIREMENTS]`.

`.venv` holds requirements.txt, or REQUIREMENTS: infra/requirements.txt is enough for a job that only runs Pulumi
and `trainyard`, and has no torch. `policies/.venv` holds the policy pack's pins (pulumi-policy requires an older
protobuf). An environment is reinstalled when its pins change; an up-to-date one costs a few
milliseconds. `.venv/bin/trainyard` runs the project's commands from any folder. Standard library only:
this runs before anything is installed.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
PYTHON_MINIMUM = (3, 11)
UV = "uv==0.13.9"
COMMAND = """\
#!/bin/sh
# Runs `python -m ops` of this project, from any folder. Written by sandbox/bootstrap.py.
here=$0
while [ -L "$here" ]; do
  target=$(readlink "$here")
  case $target in /*) here=$target ;; *) here=$(dirname "$here")/$target ;; esac
done
bin=$(cd "$(dirname "$here")" && pwd)
code='import sys; sys.path.insert(0, sys.argv.pop(1)); from ops.__main__ import main; sys.exit(main())'
exec "$bin/python" -P -c "$code" "${bin%/.venv/bin}" "$@"
"""
"""The command `trainyard`. Links to it are followed, but not links of its folders: a checkout's `.venv` may be a
link to another's. No PYTHONPATH, which programs that it starts would inherit; -P: a folder named like one of the
project's packages must not take its place."""
REQUIREMENTS = "requirements.txt"
BYTES_NEEDED = {REQUIREMENTS: 8 * 1024**3, "infra/requirements.txt": 2 * 1024**3}
"""Free disk space for both environments and downloads, by what `.venv` holds (torch alone unpacks to 5 GB)."""

NOT_COMPILED = r"/(pulumi_aws|tests?|lib2to3)/"
"""Folders whose modules are compiled when they are first imported, by no pod: a quarter of all Python code, of
which a run on the sandbox needs nothing."""


class BootstrapError(Exception):
    """The environment cannot be created; the text is one line."""


def main(arguments: list[str]) -> int:
    """Create what is missing and print the steps; on failure print one line and return 1."""
    asked = arguments[0] if arguments else REQUIREMENTS
    try:
        if asked not in BYTES_NEEDED or len(arguments) > 1:
            raise BootstrapError(
                f"{' '.join(arguments)}: no such environment; valid: {', '.join(BYTES_NEEDED)};"
                " name one of them"
            )
        if sys.version_info < PYTHON_MINIMUM:
            raise BootstrapError(
                f"Python {sys.version.split()[0]} is too old; 3.11 or newer is required;"
                " select one with `make PYTHON=python3.12 ...`"
            )
        _bubblewrap()
        with (PROJECT / ".bootstrap.lock").open("w") as lock:
            _wait_for(lock)
            _environment(PROJECT / ".venv", PROJECT / asked, BYTES_NEEDED[asked])
            write_command(PROJECT / ".venv")
            pins = PROJECT / "policies" / "requirements.txt"
            _environment(PROJECT / "policies" / ".venv", pins, BYTES_NEEDED[asked])
    except BootstrapError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; run the same command again to continue", file=sys.stderr)
        return 130
    return 0


def _wait_for(lock: object) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # type: ignore[arg-type]
    except OSError:
        print("Another command is installing the Python environment; waiting for it.", flush=True)
        fcntl.flock(lock, fcntl.LOCK_EX)  # type: ignore[arg-type]


def _bubblewrap() -> None:
    """Install bubblewrap, which runs the sandbox's pods, or print a hint without root."""
    if shutil.which("bwrap"):
        return
    apt = shutil.which("apt-get")
    if os.geteuid() != 0 or apt is None:
        print(
            "bubblewrap is missing; install the package `bubblewrap` before `make up`", flush=True
        )
        return
    print("Installing bubblewrap with apt-get", flush=True)
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update", "-qq"], ["install", "-y", "-qq", "bubblewrap"]):
        done = subprocess.run([apt, *command], env=env, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise BootstrapError(
                f"apt-get {command[0]} failed: {last}; install bubblewrap manually"
            )


def _environment(venv: Path, requirements: Path, bytes_needed: int) -> None:
    stamp = venv / "installed"
    wanted = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return
    free = shutil.disk_usage(venv.parent).free
    if free < bytes_needed:
        raise BootstrapError(
            f"disk of {venv.parent}: {free / 1024**3:.1f} GiB free; the Python environments need"
            f" {bytes_needed / 1024**3:.0f} GiB; make room"
        )
    name = venv.relative_to(PROJECT)
    print(f"Installing {requirements.relative_to(PROJECT)} into {name} (minutes, once)", flush=True)
    stamp.unlink(missing_ok=True)
    python = venv / "bin" / "python"
    if not _works(python):
        shutil.rmtree(venv, ignore_errors=True)
        _run([sys.executable, "-m", "venv", str(venv)], "creating it requires Python's venv module")
    _run([str(python), "-m", "pip", "install", "--quiet", UV], "installing uv failed")
    uv = [str(venv / "bin" / "uv"), "pip", "install", "--python", str(python)]
    if not sys.stderr.isatty():
        uv.append("--quiet")
    _run(
        [*uv, *index_options(python), "-r", str(requirements)],
        f"installing {requirements.name} failed",
    )
    # Compiled now: pods mount the environment read-only and would recompile torch at each start.
    packages = next((venv / "lib").glob("python*/site-packages"))
    compileall = [str(python), "-m", "compileall", "-qq", "-j", "0", "-x", NOT_COMPILED]
    subprocess.run([*compileall, str(packages)], stderr=subprocess.DEVNULL, check=False)
    stamp.write_text(wanted)


def write_command(venv: Path) -> None:
    """Write the command `trainyard` into an environment, unless it is there."""
    path = venv / "bin" / "trainyard"
    if path.exists() and path.read_text() == COMMAND:
        return
    fresh = path.with_name(".trainyard.new")
    fresh.write_text(COMMAND)
    fresh.chmod(0o755)
    fresh.replace(path)


def _works(python: Path) -> bool:
    """Whether the environment's Python starts, has pip, and has the version of this one."""
    code = "import sys, pip; print(sys.version)"
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    except OSError:
        return False
    return done.returncode == 0 and done.stdout.strip() == sys.version.strip()


def index_options(python: Path) -> list[str]:
    """Return uv's option for the package index that pip's configuration names; uv does not read it."""
    asked = [str(python), "-m", "pip", "config", "get", "global.index-url"]
    mirror = os.environ.get("PIP_INDEX_URL", "")
    if not mirror:
        mirror = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    return ["--index-url", mirror] if mirror else []


def _run(command: list[str], failed: str) -> None:
    done = subprocess.run(command, check=False)
    if done.returncode != 0:
        raise BootstrapError(
            f"{failed} (see above); progress is kept, run the same command again to continue"
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
