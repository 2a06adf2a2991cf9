"""Run one container and outlive the agent: `python -I -S -E shim.py FOLDER LOCK_FD`.

FOLDER/spec.json holds the bubblewrap options, the command and the log. The shim writes run.json (process
ids) when the container has started, copies its output to the log, and writes exit.json at its end. It runs
in a separate session; bubblewrap dies with it, and the container's pid namespace with bubblewrap. The
inherited LOCK_FD holds a lock while the shim lives, which shows liveness without races on reused pids. Only
fast imports of the standard library are used: there is one shim per container. Servers of a container whose spec
has `listen_at` listen on that address in place of every interface, see listening.py.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing would slow every shim
    from typing import Any

    from sandbox.node.listening import Listening

ARGS_FD, INFO_FD = 3, 4
CHUNK_BYTES = 65536
TAIL_BYTES = 2048


def stamp(seconds: float) -> str:
    """Return Unix seconds in UTC; texts sort as the times do."""
    whole, micro = divmod(round(seconds * 1e6), 1_000_000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)) + f".{micro:06d}Z"


class Log:
    """The container's output, each line behind its time and F (P if it ends later); a full file replaces LOG.1."""

    def __init__(self, path: str, limit_bytes: int) -> None:
        self._path, self._limit = path, limit_bytes
        self.tail = b""
        self._open()

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._fd = os.open(self._path, flags, 0o644)
        self._size = os.fstat(self._fd).st_size

    def write(self, data: bytes) -> None:
        """Append data; on a full disk output is lost, but the container keeps running."""
        self.tail = (self.tail + data)[-TAIL_BYTES:]
        when = stamp(time.time()).encode()
        *whole, part = data.split(b"\n")
        entries = b"".join(when + b" F " + line + b"\n" for line in whole)
        if part:
            entries += when + b" P " + part + b"\n"
        try:
            if self._size + len(entries) > self._limit and self._size:
                os.replace(self._path, self._path + ".1")
                os.close(self._fd)
                self._open()
            rest = memoryview(entries)
            while rest:
                rest = rest[os.write(self._fd, rest) :]
            self._size += len(entries)
        except OSError:
            pass


def save(folder: str, name: str, content: dict[str, object]) -> None:
    """Write FOLDER/name as JSON atomically."""
    path = os.path.join(folder, name)
    with open(path + ".part", "w") as part:
        json.dump(content, part)
        part.flush()
        os.fsync(part.fileno())
    os.replace(path + ".part", path)


def start_time(pid: int) -> int:
    """Return a process's start time in clock ticks since boot; with the pid it is unique."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return int(stat.read().rpartition(b")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return 0


def oom_kills() -> int:
    try:
        with open("/proc/vmstat", "rb") as vmstat:
            for line in vmstat:
                if line.startswith(b"oom_kill "):
                    return int(line.split()[1])
    except OSError:
        pass
    return 0


def launch(spec: dict[str, Any]) -> tuple[int, int, int, Listening | None]:
    """Fork bubblewrap; return (pid, output descriptor, info descriptor, answers to its servers)."""
    options = os.memfd_create("args")
    # Each argument ends with NUL, since the last may be empty.
    os.write(options, b"".join(os.fsencode(o) + b"\0" for o in spec["options"]))
    os.lseek(options, 0, os.SEEK_SET)
    output, output_in = os.pipe()
    info, info_in = os.pipe()
    listening = _listening(spec["listen_at"]) if spec["listen_at"] else None
    pid = os.fork()
    if pid:
        for fd in (options, output_in, info_in):
            os.close(fd)
        if listening:
            listening.receive()
        return pid, output, info, listening
    try:
        null = os.open("/dev/null", os.O_RDONLY)
        # Move descriptors above the fixed numbers first, then onto them (dup2 makes them inheritable).
        kept = [os.dup(fd) for fd in (null, output_in, output_in, options, info_in)]
        high = [fd if fd > INFO_FD else os.dup2(fd, 100 + fd) for fd in kept]
        for number, fd in enumerate(high):
            os.dup2(fd, number)
        if listening:
            listening.install()
        os.execve(spec["bwrap"], ["bwrap", "--args", str(ARGS_FD), "--", *spec["command"]], {})
    except OSError as error:
        os.write(2, f"shim: {error}\n".encode())
    finally:
        os._exit(127)


def _listening(address: str) -> Listening:
    """Import what only these containers need; the project is not on the path of a shim."""
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    from sandbox.node.listening import Listening

    return Listening(address)


def read(fd: int, listening: Listening | None) -> bytes:
    """Read what there is, empty at the end; answer the container's servers while there is nothing."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    if listening and listening.descriptor >= 0:
        poll.register(listening.descriptor, select.POLLIN)
    while listening and fd not in (found := dict(poll.poll())):
        if found[listening.descriptor] & select.POLLIN:
            listening.answer()
        else:
            poll.unregister(listening.descriptor)  # no process is left
    return os.read(fd, CHUNK_BYTES)


def read_all(fd: int, listening: Listening | None) -> bytes:
    parts: list[bytes] = []
    while True:
        part = read(fd, listening)
        if not part:
            os.close(fd)
            return b"".join(parts)
        parts.append(part)


def child_pid(information: bytes) -> int:
    try:
        return int(json.loads(information)["child-pid"])
    except (ValueError, KeyError):
        return 0  # bubblewrap failed before it had a child; its message is in the log


def main(folder: str, lock_fd: int) -> None:
    os.set_inheritable(lock_fd, False)
    with open(os.path.join(folder, "spec.json")) as file:
        spec = json.load(file)
    log = Log(spec["log"], spec["log_limit_bytes"])
    ooms = oom_kills()
    started = time.time()
    pid, output, info, listening = launch(spec)
    main_pid = child_pid(read_all(info, listening))
    save(
        folder,
        "run.json",
        {
            "shim_pid": os.getpid(),
            "shim_start": start_time(os.getpid()),
            "pid": main_pid,
            "start": start_time(main_pid) if main_pid else 0,
            "started_at": started,
        },
    )
    while data := read(output, listening):
        log.write(data)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    save(
        folder,
        "exit.json",
        {
            "exit_code": code if code >= 0 else 128 - code,
            "finished_at": time.time(),
            "tail": log.tail.decode(errors="replace"),
            "oom_kills": oom_kills() - ooms,
        },
    )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
