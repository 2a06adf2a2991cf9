"""A rank without torch: meets the other one at the rendezvous of its run, then does as the plan says.

The plan has a word per attempt: an exit code, or `work`, which ends with 0 once the file `finish` exists, with 75
after SIGTERM of either rank, and with 1 when the other rank is lost.
"""

import os
import pathlib
import select
import signal
import socket
import sys
import time

words = sys.argv[1:]
index = os.environ.get("TRAINYARD_WORKER_INDEX")
node = int(index) + 1 if index else int(os.environ["TRAINYARD_NODE_RANK"])
rank = int(os.environ.get("RANK", node))
folder = pathlib.Path(words[words.index("--run-dir") + 1])
folder.mkdir(parents=True, exist_ok=True)
host, port = (os.environ[f"TRAINYARD_RENDEZVOUS_{part}"] for part in ("HOST", "PORT"))
stopped = False


def stop(*_: object) -> None:
    global stopped
    stopped = True


def meet() -> socket.socket:
    end = time.monotonic() + 120
    while time.monotonic() < end and not stopped:
        try:
            address = socket.gethostbyname(host)
            if rank == 0:
                server = socket.create_server((address, int(port)))
                server.settimeout(1.0)
                while not stopped:
                    try:
                        return server.accept()[0]
                    except TimeoutError:
                        continue
            return socket.create_connection((address, int(port)), timeout=1.0)
        except OSError:
            time.sleep(0.2)
    sys.exit(75 if stopped else 1)


def next_attempt() -> int:
    file = folder / "attempts"
    number = int(file.read_text()) if file.exists() else 0
    file.write_text(str(number + 1))
    return number


def work(peer: socket.socket) -> int:
    while True:
        if stopped:
            peer.send(b"s")
            return 75
        if select.select([peer], [], [], 0.1)[0]:
            said = peer.recv(1)
            return {b"s": 75, b"f": 0}.get(said, 1)
        if (folder / "finish").exists():
            peer.send(b"f")
            return 0


signal.signal(signal.SIGTERM, stop)
peer = meet()
peer.settimeout(30)
if rank == 0:
    attempt = next_attempt()
    peer.send(bytes([attempt]))
else:
    attempt = peer.recv(1)[0]
with (folder / "started").open("a") as file:
    file.write(f"{attempt} {rank} {socket.gethostname()}\n")
plan = (pathlib.Path(__file__).parent / "plan").read_text().split()
todo = plan[min(attempt, len(plan) - 1)]
sys.exit(work(peer) if todo == "work" else int(todo))
