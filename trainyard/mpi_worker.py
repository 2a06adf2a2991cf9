"""Main process of a worker of an mpijob: `python3 -m trainyard.mpi_worker -- SSHD ...`.

sshd would end on SIGTERM, and with it every rank, without a notice. Here the notice goes to the ranks: sshd stops
accepting sessions, the ranks get SIGTERM, and the pod ends once they have.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Final

from trainyard import processes
from trainyard.contract import EXIT_PREEMPTED

RANK_ENV: Final = "OMPI_COMM_WORLD_RANK"
"""Variable that Open MPI sets in each rank."""
_POLL_S: Final = 0.1


def main(argv: Sequence[str]) -> int:
    """Run sshd; on SIGTERM end it, pass the notice on and wait for the ranks. The pod's grace period bounds it."""
    command = [word for word in argv if word != "--"]
    stopping = False

    def stop(_number: int, _frame: FrameType | None) -> None:
        nonlocal stopping
        stopping = True
        sshd.terminate()

    sshd = subprocess.Popen(command)
    signal.signal(signal.SIGTERM, stop)
    code = sshd.wait()
    if not stopping:
        return code if code >= 0 else 128 - code
    processes.send(signal.SIGTERM, ranks())
    while ranks():
        processes.reap()  # orphans: this is the container's first process
        time.sleep(_POLL_S)
    return EXIT_PREEMPTED


def ranks(proc: Path = Path("/proc")) -> list[int]:
    """Return the processes of this container that Open MPI started as ranks, without their children."""
    found = {}
    for folder in proc.iterdir():
        if folder.name.isdigit():
            try:
                variables = (folder / "environ").read_bytes().split(b"\0")
                stat = (folder / "stat").read_text()
            except OSError:
                continue
            fields = stat[stat.rindex(")") + 2 :].split()
            if fields[0] not in "ZX" and any(
                one.startswith(f"{RANK_ENV}=".encode()) for one in variables
            ):
                found[int(folder.name)] = int(fields[1])
    return [pid for pid, parent in found.items() if parent not in found]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
