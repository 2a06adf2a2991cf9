"""The agent's records on disk, from which a restarted agent recovers its state.

NODE/pods/NAMESPACE_NAME_UID/           mode 0700: volumes and environments hold secrets
    pod.json                            address, node, start time, termination
    etc/                                hosts, passwd, group, hostname, ...
    volumes/VOLUME/                     emptyDir, configMap, secret, projected, downwardAPI
    containers/NAME/ATTEMPT/            spec.json, run.json, exit.json, lock (see shim.py)
NODE/logs/NAMESPACE_NAME_UID/NAME/ATTEMPT.log
NODE/reclaimed/NODE.json                manifests of reclaimed nodes
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox import paths
from sandbox.node.api import Json
from sandbox.node.shim import save
from sandbox.process import Process

EXIT_KILLED = 128 + signal.SIGKILL

KEPT_LOG_FOLDERS = 100
"""Number of deleted pods whose logs are kept."""


@dataclass(frozen=True)
class PodFolder:
    path: Path
    logs: Path

    @property
    def etc(self) -> Path:
        return self.path / "etc"

    @property
    def volumes(self) -> Path:
        return self.path / "volumes"

    @property
    def uid(self) -> str:
        return self.path.name.rpartition("_")[2]

    def load(self) -> dict[str, Any]:
        return load_json(self.path / "pod.json") or {}

    def update(self, **values: Any) -> None:
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        save(str(self.path), "pod.json", {**self.load(), **values})

    def attempts(self, container: str) -> list[Attempt]:
        """Return every start of the container, oldest first."""
        folder = self.path / "containers" / container
        if not folder.is_dir():
            return []
        numbers = sorted(int(entry) for entry in os.listdir(folder) if entry.isdigit())
        found = [self.attempt(container, number) for number in numbers]
        return [attempt for attempt in found if attempt.begun()]

    def attempt(self, container: str, number: int) -> Attempt:
        return Attempt(
            self.path / "containers" / container / str(number),
            self.logs / container / f"{number}.log",
            number,
        )

    def all_attempts(self) -> list[Attempt]:
        folder = self.path / "containers"
        names = sorted(os.listdir(folder)) if folder.is_dir() else []
        return [attempt for name in names for attempt in self.attempts(name)]

    def clear(self, state: paths.State) -> None:
        """Remove volumes and environments, which may hold secrets; keep records and logs."""
        shutil.rmtree(self.volumes, ignore_errors=True)
        shutil.rmtree(memory_folder(state, self.uid), ignore_errors=True)
        for attempt in self.all_attempts():
            shutil.rmtree(attempt.path / "tmp", ignore_errors=True)
            save(str(attempt.path), "spec.json", {})

    def remove(self, state: paths.State) -> None:
        shutil.rmtree(memory_folder(state, self.uid), ignore_errors=True)
        shutil.rmtree(self.path, ignore_errors=True)


@dataclass(frozen=True)
class Attempt:
    path: Path
    log: Path
    number: int

    @property
    def container_id(self) -> str:
        """containerID of the status; stable across restarts of the agent."""
        text = "/".join(self.path.parts[-4:]).encode()
        return f"bwrap://{zlib.crc32(text):08x}{zlib.adler32(text):08x}"

    def begun(self) -> bool:
        """Whether it was started; an agent may have been killed just before."""
        return (
            any((self.path / name).exists() for name in ("run.json", "exit.json")) or self.alive()
        )

    def alive(self) -> bool:
        """Whether its shim is alive: it holds the lock throughout its life."""
        try:
            fd = os.open(self.path / "lock", os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return False
        except BlockingIOError:
            return True
        finally:
            os.close(fd)

    def run(self, wait_s: float = 0.0) -> dict[str, Any] | None:
        """Return run.json; wait up to `wait_s` for the shim to write it, else None."""
        deadline = time.monotonic() + wait_s
        while True:
            found = load_json(self.path / "run.json")
            if found or time.monotonic() >= deadline or not self.alive():
                return found or load_json(self.path / "run.json")
            time.sleep(0.01)

    def exit(self) -> dict[str, Any] | None:
        """Return exit.json; None while the container runs. A killed shim counts as exit code 137."""
        found = load_json(self.path / "exit.json")
        if found or self.alive():
            return found
        found = load_json(self.path / "exit.json")  # written between the two reads
        if found:
            return found
        lost = {"exit_code": EXIT_KILLED, "finished_at": time.time(), "tail": "", "oom_kills": 0}
        lost["lost"] = True
        with contextlib.suppress(FileNotFoundError):  # the pod is being removed
            save(str(self.path), "exit.json", lost)
        return load_json(self.path / "exit.json") or lost

    def signal(self, number: int) -> bool:
        """Send a signal to the container's main process; return False when it does not run."""
        run = self.run(wait_s=5.0)
        return run is not None and Process(run["pid"], run["start"]).send(number)

    def kill(self) -> None:
        """Send SIGKILL to the container's pid namespace, or to its shim if that fails."""
        if not self.alive():
            return
        if not self.signal(signal.SIGKILL):
            run = self.run()
            if run:
                Process(run["shim_pid"], run["shim_start"]).send(signal.SIGKILL)

    def mark(self, name: str) -> None:
        """Record an action on this container: `term`, `killed`, `stopped` or `prestop`."""
        if self.path.is_dir():
            (self.path / name).touch()

    def marked(self, name: str) -> bool:
        return (self.path / name).exists()

    def open_shim(self) -> int | None:
        """Return a pidfd that becomes readable when the shim ends; None when it has ended."""
        run = self.run(wait_s=5.0)
        return Process(run["shim_pid"], run["shim_start"]).open() if run else None


def load_json(path: Path) -> Json | None:
    """Return a JSON file's content; None when it is absent or invalid."""
    try:
        content: Json = json.loads(path.read_bytes())
        return content
    except (OSError, ValueError):
        return None


def pod_folder(state: paths.State, pod: Json) -> PodFolder:
    metadata = pod["metadata"]
    name = f"{metadata['namespace']}_{metadata['name']}_{metadata['uid']}"
    return PodFolder(state.node / "pods" / name, state.node / "logs" / name)


def pod_folders(state: paths.State) -> Iterator[PodFolder]:
    folder = state.node / "pods"
    for name in sorted(os.listdir(folder)) if folder.is_dir() else []:
        yield PodFolder(folder / name, state.node / "logs" / name)


def memory_folder(state: paths.State, uid: str = "") -> Path:
    """Return the folder of emptyDirs of medium Memory: of one pod, or of all pods of this sandbox."""
    sandbox = f"{zlib.crc32(str(state.home).encode()):08x}"
    return Path("/dev/shm") / f"trainyard-{os.getuid()}-{sandbox}" / uid


def prune_logs(state: paths.State) -> None:
    """Delete logs of deleted pods, except the newest `KEPT_LOG_FOLDERS`."""
    folder = state.node / "logs"
    present = {place.path.name for place in pod_folders(state)}
    gone = [f for f in folder.iterdir() if f.name not in present] if folder.is_dir() else []
    gone.sort(key=lambda f: f.stat().st_mtime)
    for old in gone[:-KEPT_LOG_FOLDERS]:
        shutil.rmtree(old, ignore_errors=True)
