"""Have the servers of a container listen on its pod's address in place of every interface.

Controllers listen on fixed ports of all interfaces, and process pods share the host's network: two would collide,
and other machines could connect. A seccomp filter stops the container's processes at `bind` and `connect`; the
shim, outside of the container, carries out the call on their socket: an unspecified address becomes the pod's, and
so does localhost for a port that they serve. Other calls pass. Nothing is forwarded.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import fcntl
import os
import platform
import socket
import struct

_SET_NO_NEW_PRIVS, _SET_FILTER, _NEW_LISTENER = 38, 1, 8
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_NOTIFICATION = struct.Struct("=QIIiIQ6Q")
"""id, thread, flags; then system call, architecture, instruction pointer, arguments."""
_RESPONSE = struct.Struct("=QqiI")
"""id, result, error, flags."""
_CONTINUE = 1
_ALLOW, _NOTIFY = 0x7FFF0000, 0x7FC00000
_LOAD, _IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_NUMBER_AT, _ARCHITECTURE_AT = 0, 4
_CALLS = {"x86_64": (0xC000003E, 49, 42, 317, 438), "aarch64": (0xC00000B7, 200, 203, 277, 438)}
"""By machine: its audit number, and the numbers of bind, connect, seccomp and pidfd_getfd."""
_HOST: dict[int, slice] = {socket.AF_INET: slice(4, 8), socket.AF_INET6: slice(8, 24)}
"""Where a socket address has the host, by family."""
_LOCALHOST = {socket.inet_aton("127.0.0.1"), bytes([*([0] * 15), 1])}
_ADDRESS_BYTES = 28

_libc = ctypes.CDLL(None, use_errno=True)


class Listening:
    """The filter of one container; `install` runs in its process, `receive` and `answer` in the shim."""

    def __init__(self, address: str) -> None:
        self._address = address
        numbers = _CALLS[platform.machine()]
        self._architecture, self._bind, self._connect, self._seccomp, self._getfd = numbers
        self._served: set[int] = set()
        self._ours, self._theirs = socket.socketpair()
        self.descriptor = -1
        """Readable while a call is stopped."""

    def install(self) -> None:
        """Stop this process, and what it starts, at each such call. Raises OSError."""
        steps = [
            (_LOAD, 0, 0, _ARCHITECTURE_AT),
            (_IF_EQUAL, 0, 4, self._architecture),
            (_LOAD, 0, 0, _NUMBER_AT),
            (_IF_EQUAL, 1, 0, self._bind),
            (_IF_EQUAL, 0, 1, self._connect),
            (_RETURN, 0, 0, _NOTIFY),
            (_RETURN, 0, 0, _ALLOW),
        ]
        code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
        program = struct.pack("@HP", len(steps), ctypes.addressof(code))
        _check(_libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        fd = _check(_libc.syscall(self._seccomp, _SET_FILTER, _NEW_LISTENER, program))
        rights = array.array("i", [fd])
        self._theirs.sendmsg([b"f"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        os.close(fd)

    def receive(self) -> None:
        """Wait for the descriptor that `install` sends; it stays -1 if the process ends before."""
        self._theirs.close()
        rights = array.array("i")
        with self._ours:
            _, ancillary, _, _ = self._ours.recvmsg(1, socket.CMSG_SPACE(rights.itemsize))
        for _, _, data in ancillary:
            rights.frombytes(data)
            self.descriptor = rights[0]

    def answer(self) -> None:
        buffer = bytearray(_NOTIFICATION.size)
        with contextlib.suppress(OSError):  # the caller was killed meanwhile
            fcntl.ioctl(self.descriptor, _RECEIVE, buffer)
            call, thread, _, asked, _, _, number, at, size, *_ = _NOTIFICATION.unpack(buffer)
            try:
                error, flags = 0, self._carry_out(asked, thread, number, at, size)
            except OSError as failure:
                error, flags = failure.errno or 1, 0
            fcntl.ioctl(self.descriptor, _SEND, bytearray(_RESPONSE.pack(call, 0, -error, flags)))

    def _carry_out(self, asked: int, thread: int, number: int, at: int, size: int) -> int:
        """Carry out a call that means the pod's address; return the flags of the answer. Raises OSError."""
        with open(f"/proc/{thread}/mem", "rb", buffering=0) as memory:
            memory.seek(at)
            wanted = memory.read(min(size, _ADDRESS_BYTES))
        family = int.from_bytes(wanted[:2], "little")
        if family not in _HOST:
            return _CONTINUE
        host, port = wanted[_HOST[family]], int.from_bytes(wanted[2:4], "big")
        own = not any(host) or (
            asked == self._connect and port in self._served and host in _LOCALHOST
        )
        address = f"::ffff:{self._address}" if family == socket.AF_INET6 else self._address
        with self._socket(thread, number) as caller:
            if not own or caller.family != family:
                return _CONTINUE
            if asked == self._connect:
                caller.connect((address, port))
            else:
                caller.bind((address, port))
                self._served.add(caller.getsockname()[1])
        return 0

    def _socket(self, thread: int, number: int) -> socket.socket:
        """Return the socket that is a descriptor of the thread's process."""
        with open(f"/proc/{thread}/status") as status:
            process = next(int(line.split()[1]) for line in status if line.startswith("Tgid:"))
        handle = os.pidfd_open(process)
        try:
            return socket.socket(fileno=_check(_libc.syscall(self._getfd, handle, number, 0)))
        finally:
            os.close(handle)


def _check(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(result)
