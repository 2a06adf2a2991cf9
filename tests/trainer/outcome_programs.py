"""Small programs of users with every behaviour that docs/failures.md lists, and a launcher."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.trainer.ranks import DEADLINE_S, until

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import os, signal, sys, time
from pathlib import Path

rank = int(os.environ.get("RANK", "0"))
words = sys.argv[2].split(",")
word, _, code = words[min(rank, len(words) - 1)].partition("=")
folder = Path(sys.argv[1])
starts = folder / f"starts-{rank}"
with starts.open("a") as stream:
    stream.write("x")
if word == "last":  # after rank 1 is ready
    while not (folder / "pid-1").exists():
        time.sleep(0.01)
if word in ("exit", "last"):
    sys.exit(int(code))
if word == "once" and starts.stat().st_size == 1:
    sys.exit(int(code))
if word == "once":
    sys.exit(0)
if word == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if word == "raises":
    def stop(*_):
        raise RuntimeError("SIGTERM")
    signal.signal(signal.SIGTERM, stop)
if word == "done":
    sys.path.insert(0, os.environ["PYTHONPATH"].split(":")[-1])
    import trainyard
    trainyard.finished()
if word in ("handles", "done"):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(int(code)))
if word == "slowly":
    def save(*_):
        time.sleep(1.0)
        sys.exit(int(code))
    signal.signal(signal.SIGTERM, save)
if word == "ignores":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
(folder / f".pid-{rank}").write_text(str(os.getpid()))
(folder / f".pid-{rank}").rename(folder / f"pid-{rank}")
if word == "stopped":
    os.kill(os.getpid(), signal.SIGSTOP)
while True:
    time.sleep(0.05)
"""

MPIRUN = """#!{python}
# Stands in for Open MPI: starts ranks on this host, and as soon as one fails it kills the others.
import os, subprocess, sys, time
count = int(sys.argv[sys.argv.index("-np") + 1])
command = sys.argv[sys.argv.index("--host") + 2:]
size = {{f"OMPI_COMM_WORLD_{{n}}SIZE": str(count) for n in ("", "LOCAL_")}}
ranks = [
    subprocess.Popen(command, start_new_session=True, env={{**os.environ, **size,
        "OMPI_COMM_WORLD_RANK": str(r), "OMPI_COMM_WORLD_LOCAL_RANK": str(r)}})
    for r in range(count)
]
while any(r.poll() is None for r in ranks):
    time.sleep(0.01)
    if any(r.poll() for r in ranks):
        for r in ranks:
            r.poll() is None and r.kill()
sys.exit(max(abs(r.returncode) for r in ranks))
"""


@dataclass
class Gang:
    """A run of a small program; what its launchers print is in `log`."""

    folder: Path
    nodes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "program.py").write_text(PROGRAM)
        (self.folder / "bin").mkdir()
        mpirun = self.folder / "bin" / "mpirun"
        mpirun.write_text(MPIRUN.format(python=sys.executable))
        mpirun.chmod(0o755)

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def launch(
        self, behaviour: str, ranks: int = 1, notice_s: int = 60, launcher: str = "", **env: str
    ) -> None:
        """Start a node by `trainyard.launch`; a node with several ranks by mpirun."""
        launcher = launcher or ("python" if ranks == 1 else "mpirun")
        command = [str(self.folder / "program.py"), str(self.folder), behaviour]
        file = self.folder / f"program-{len(self.nodes)}.json"
        file.write_text(json.dumps({"launcher": launcher, "command": command, "env": {}}))
        facts = {
            "TRAINYARD_GPUS_PER_NODE": str(ranks),
            "TRAINYARD_NOTICE_SECONDS": str(notice_s),
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
        }
        words = ["-m", "trainyard.launch", "--program", str(file)]
        self.start(words, {**os.environ, **facts, **env})

    def start(self, words: Sequence[str], env: dict[str, str]) -> None:
        with (self.folder / "log").open("ab") as log:
            self.nodes.append(
                subprocess.Popen([sys.executable, *words], stdout=log, stderr=log, env=env)
            )

    def pids(self, ranks: int) -> list[int]:
        """Process ids of the programs, once all ranks are ready for a signal."""
        files = [self.folder / f"pid-{rank}" for rank in range(ranks)]
        until(lambda: all(file.exists() for file in files), f"{ranks} ranks")
        return [int(file.read_text()) for file in files]

    def starts(self, rank: int) -> int:
        """How often a rank was started."""
        return (self.folder / f"starts-{rank}").stat().st_size

    def wait(self) -> int:
        """The exit code of the first node."""
        return self.nodes[0].wait(DEADLINE_S)

    def end(self) -> None:
        for node in self.nodes:
            if node.poll() is None:
                node.kill()
                node.wait()
