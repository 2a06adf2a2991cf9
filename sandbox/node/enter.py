"""Run a command inside a running container: `python -I -S -E enter.py CONTROL_FD`.

Joins the namespaces of the container's main process, gives up all capabilities and starts the command. The owner
of a user namespace has all capabilities in it, so this works without root on the host. The request comes as JSON
on the control socket; the answers are the terminal's descriptor (with a terminal), and one JSON line: the exit
code, or an error. Everything is imported at the start: afterwards the container's files replace the host's.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import fcntl
import json
import os
import signal
import socket
import struct
import sys
import termios

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_NS_GET_USERNS = 0xB701
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT, _AMBIENT_CLEAR_ALL = 24, 38, 47, 4
_CAPABILITY_VERSION = 0x20080522
_LAST_CAPABILITY = 63
NOT_FOUND, NOT_EXECUTABLE = 127, 126
_ENDINGS = {signal.SIGHUP: signal.SIGHUP, signal.SIGTERM: signal.SIGKILL}
"""What the command's process group gets for a signal from the agent: its client has left, or it took too long."""

_libc = ctypes.CDLL(None, use_errno=True)


class CannotEnter(Exception):
    """The container has ended, or its namespaces cannot be joined."""


def _check(result: int, what: str) -> None:
    if result:
        raise CannotEnter(f"{what}: {os.strerror(ctypes.get_errno())}")


def _start_time(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return int(stat.read().rpartition(b")")[2].split()[19])
    except OSError:
        return 0


def _same(one: int, other: int) -> bool:
    a, b = os.fstat(one), os.fstat(other)
    return (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino)


def join_namespaces(pid: int, start: int) -> None:
    """Join all namespaces of a process but the network, which containers share with the host.

    bubblewrap makes the mounts in an outer user namespace and maps the container's user in an inner one: the
    mounts can be joined only with the capabilities of the outer one.
    """
    kinds = ("mnt", "pid", "uts", "ipc")
    try:
        inner = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY)
        own = os.open("/proc/self/ns/user", os.O_RDONLY)
        others = {kind: os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY) for kind in kinds}
        outer = fcntl.ioctl(others["mnt"], _NS_GET_USERNS)
    except OSError as error:
        raise CannotEnter(f"container: {error.strerror}") from None
    if _start_time(pid) != start:
        raise CannotEnter("container: it has ended")
    if not _same(outer, own):
        _check(_libc.setns(outer, 0), "user namespace")
    for kind, fd in others.items():
        _check(_libc.setns(fd, 0), f"{kind} namespace")
    if not _same(inner, outer):
        _check(_libc.setns(inner, 0), "user namespace of the container")


def drop_privileges() -> None:
    """Give up every capability, as the container's own processes have: also across execve."""
    for capability in range(_LAST_CAPABILITY + 1):
        _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)  # fails above the kernel's last one
    _libc.prctl(_PR_CAP_AMBIENT, _AMBIENT_CLEAR_ALL, 0, 0, 0)
    header = struct.pack("=Ii", _CAPABILITY_VERSION, 0)
    _check(_libc.capset(header, struct.pack("=6I", *([0] * 6))), "capabilities")
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")


def run_command(request: dict[str, Any], terminal: int | None) -> None:
    """Replace this process by the command; never returns."""
    code = 1
    try:
        os.setsid()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDINGS)
        if terminal is not None:
            fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
            for fd in range(3):
                os.dup2(terminal, fd)
        os.closerange(3, 1024)
        drop_privileges()
        for number in (signal.SIGPIPE, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        os.chdir(request["cwd"])
        os.execvpe(request["command"][0], request["command"], request["env"])
    except FileNotFoundError:
        code = NOT_FOUND
        os.write(2, f"exec: {request['command'][0]}: not found in the container\n".encode())
    except OSError as error:
        code = NOT_EXECUTABLE
        os.write(2, f"exec: {request['command'][0]}: {error.strerror}\n".encode())
    except CannotEnter as error:
        os.write(2, f"exec: {error}\n".encode())
    finally:
        os._exit(code)


def main(control: socket.socket) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDINGS)  # until there is a command that they can end
    request = json.loads(control.makefile("rb").readline())
    try:
        join_namespaces(request["pid"], request["start"])
        master = slave = None
        if request["tty"]:
            master, slave = os.openpty()
            rights = array.array("i", [master])
            control.sendmsg([b"t"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
            os.close(master)
        child = os.fork()
    except (CannotEnter, OSError) as error:
        control.sendall(json.dumps({"error": str(error)}).encode() + b"\n")
        return
    if child == 0:
        run_command(request, slave)

    def end(number: int, _: object) -> None:
        sent = _ENDINGS[signal.Signals(number)]
        with contextlib.suppress(ProcessLookupError):
            try:
                os.killpg(child, sent)
            except ProcessLookupError:  # it has no group yet
                os.kill(child, sent)

    for number in _ENDINGS:
        signal.signal(number, end)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDINGS)
    null = os.open("/dev/null", os.O_RDWR)
    for fd in range(3):  # only the command holds its streams, so that they end with it
        os.dup2(null, fd)
    if slave is not None:
        os.close(slave)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    control.sendall(json.dumps({"exit": code if code >= 0 else 128 - code}).encode() + b"\n")


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
