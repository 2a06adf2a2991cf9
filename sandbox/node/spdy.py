"""Server side of SPDY/3.1 framing, over which the API server runs `exec` and `port-forward` on a kubelet.

Python has no kept library for SPDY. This is the part that Kubernetes uses: the client opens streams, both sides
send data, pings and resets. There is no flow control, as in the API server's own implementation: a stream whose
reader is slow blocks its connection.

Format: https://www.chromium.org/spdy/spdy-protocol/spdy-protocol-draft3-1/
"""

from __future__ import annotations

import contextlib
import queue
import select
import socket
import ssl
import struct
import threading
import zlib
from collections.abc import Callable, Mapping

PROTOCOL = "SPDY/3.1"

_VERSION = 3
_SYN_STREAM, _SYN_REPLY, _RST_STREAM, _PING, _GOAWAY = 1, 2, 3, 6, 7
_FIN = 0x01
_PROTOCOL_ERROR, _CANCEL = 1, 5
_MAX_FRAME_BYTES = 1 << 20
_MAX_STREAMS = 1000
_DATA_BYTES = 32768
_QUEUED_FRAMES = 64
FINISH_S = 5.0

_WORD_LIST = (
    "options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges "
    "age allow authorization cache-control connection content-base content-encoding content-language "
    "content-length content-location content-md5 content-range content-type date etag expect expires from "
    "host if-match if-modified-since if-none-match if-range if-unmodified-since last-modified location "
    "max-forwards pragma proxy-authenticate proxy-authorization range referer retry-after server te trailer "
    "transfer-encoding upgrade user-agent vary via warning www-authenticate method get status"
)
_WORDS = _WORD_LIST.split()
_LAST_WORDS = (
    "200 OK",
    "version",
    "HTTP/1.1",
    "url",
    "public",
    "set-cookie",
    "keep-alive",
    "origin",
)
_STATUSES = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505203 "
    "Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 "
    "Forbidden404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable"
    "Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, "
    "GMTchunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,"
    "text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)


def _counted(text: bytes) -> bytes:
    return struct.pack(">I", len(text)) + text


DICTIONARY = b"".join(_counted(w.encode()) for w in (*_WORDS, *_LAST_WORDS)) + _STATUSES.encode()
"""Initial contents of the compression window of header blocks."""


class SpdyError(Exception):
    """The peer violates the protocol."""


class HeaderCodec:
    """Compresses and reads header blocks; each direction of a connection has one compression state."""

    def __init__(self) -> None:
        self._packer = zlib.compressobj(zdict=DICTIONARY)
        self._reader = zlib.decompressobj(zdict=DICTIONARY)

    def pack(self, headers: Mapping[str, str]) -> bytes:
        plain = struct.pack(">I", len(headers)) + b"".join(
            _counted(name.lower().encode()) + _counted(value.encode())
            for name, value in headers.items()
        )
        return self._packer.compress(plain) + self._packer.flush(zlib.Z_SYNC_FLUSH)

    def read(self, block: bytes) -> dict[str, str]:
        """Return the headers of a block, names in lower case. Raises SpdyError."""
        try:
            plain = self._reader.decompress(block, _MAX_FRAME_BYTES)
        except zlib.error as error:
            raise SpdyError(f"header block: {error}") from None
        try:
            (count,) = struct.unpack_from(">I", plain)
            if count > len(plain) // 8:
                raise SpdyError(f"header block of {len(plain)} bytes with {count} headers")
            texts, at = [], 4
            for _ in range(2 * count):
                (size,) = struct.unpack_from(">I", plain, at)
                if at + 4 + size > len(plain):
                    raise SpdyError("header block: truncated")
                texts.append(plain[at + 4 : at + 4 + size].decode())
                at += 4 + size
        except (struct.error, UnicodeDecodeError) as error:
            raise SpdyError(f"header block: {error}") from None
        return {name.lower(): value for name, value in zip(texts[::2], texts[1::2], strict=True)}


class Stream:
    def __init__(self, connection: Connection, number: int, headers: Mapping[str, str]) -> None:
        self.number = number
        self.headers = headers
        self._connection = connection
        self._received: queue.Queue[bytes | None] = queue.Queue(_QUEUED_FRAMES)
        self._ended = threading.Event()

    def read(self) -> bytes:
        """Return the next data; empty at the end of the stream or its connection."""
        while not (self._ended.is_set() and self._received.empty()):
            try:
                return self._received.get(timeout=0.5) or b""
            except queue.Empty:
                continue
        return b""

    def write(self, data: bytes) -> None:
        """Send data. Raises OSError when the connection has ended."""
        for start in range(0, len(data), _DATA_BYTES):
            part = data[start : start + _DATA_BYTES]
            self._connection.send(struct.pack(">II", self.number, len(part)) + part)

    def close(self) -> None:
        self._connection.send(struct.pack(">II", self.number, _FIN << 24))

    def reset(self) -> None:
        self._connection.send_control(_RST_STREAM, struct.pack(">II", self.number, _CANCEL))

    def received(self, data: bytes | None) -> None:
        """Queue data of the client; None ends its side. Blocks while too much is queued."""
        while not self._ended.is_set():
            try:
                self._received.put(data, timeout=0.5)
                break
            except queue.Full:
                continue
        if data is None:
            self._ended.set()

    def end(self) -> None:
        self._ended.set()


class Connection:
    """A connection after its upgrade. `serve` reads it until it ends."""

    def __init__(self, connection: socket.socket, opened: Callable[[Stream], None]) -> None:
        """`opened` is called for each new stream, in the thread of `serve`, and must not block."""
        self._socket = connection
        self._opened = opened
        self._codec = HeaderCodec()
        self._streams: dict[int, Stream] = {}
        self._sending = threading.Lock()
        self._tls = threading.Lock()  # OpenSSL may not read and write at the same time
        self._closed = False
        self._ended = threading.Event()
        connection.setblocking(False)

    def serve(self) -> None:
        """Dispatch frames until either side ends the connection."""
        try:
            while not self._closed:
                self._dispatch(*self._next_frame())
        except (OSError, EOFError, SpdyError):
            pass
        finally:
            self._ended.set()
            self.close()

    @property
    def has_ended(self) -> bool:
        return self._ended.is_set()

    def finish(self) -> None:
        """Let the client end the connection, so that it reads what was sent; after `FINISH_S` end it."""
        self._ended.wait(FINISH_S)
        self.close()

    def close(self) -> None:
        self._closed = True
        for stream in list(self._streams.values()):
            stream.end()
        with contextlib.suppress(OSError, ValueError):
            if isinstance(self._socket, ssl.SSLSocket):
                with self._tls:
                    self._socket.unwrap()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def forget(self, stream: Stream) -> None:
        """Release a stream that both sides have ended."""
        self._streams.pop(stream.number, None)

    def send_control(self, kind: int, body: bytes, flags: int = 0) -> None:
        """Send a control frame. Raises OSError."""
        self.send(struct.pack(">HHI", 0x8000 | _VERSION, kind, flags << 24 | len(body)) + body)

    def send(self, frame: bytes) -> None:
        """Send one frame. Raises OSError when the connection has ended."""
        with self._sending:
            rest = memoryview(frame)
            while rest:
                if self._closed:
                    raise BrokenPipeError("the connection has ended")
                try:
                    with self._tls:
                        rest = rest[self._socket.send(rest) :]
                except (ssl.SSLWantWriteError, ssl.SSLWantReadError, BlockingIOError):
                    select.select([], [self._socket], [], 0.5)

    def _receive(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            try:
                with self._tls:
                    data = self._socket.recv(size - len(parts))
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError):
                if self._closed:
                    raise EOFError from None
                select.select([self._socket], [], [], 0.5)
                continue
            if not data:
                raise EOFError
            parts += data
        return bytes(parts)

    def _next_frame(self) -> tuple[int, int, bytes]:
        first, second = struct.unpack(">II", self._receive(8))
        size = second & 0xFFFFFF
        if size > _MAX_FRAME_BYTES:
            raise SpdyError(f"frame of {size} bytes")
        return first, second >> 24, self._receive(size)

    def _dispatch(self, first: int, flags: int, body: bytes) -> None:
        if not first & 0x80000000:
            self._data(first, flags, body)
            return
        kind = first & 0xFFFF
        if kind == _SYN_STREAM:
            self._open(flags, body)
        elif kind == _PING:
            self.send_control(_PING, body)
        elif kind == _GOAWAY:
            self._closed = True
        elif kind == _RST_STREAM and len(body) >= 4:
            stream = self._streams.pop(struct.unpack_from(">I", body)[0], None)
            if stream:
                stream.end()

    def _data(self, number: int, flags: int, body: bytes) -> None:
        stream = self._streams.get(number)
        if stream is None:
            return
        if body:
            stream.received(body)
        if flags & _FIN:
            stream.received(None)

    def _open(self, flags: int, body: bytes) -> None:
        if len(body) < 10:
            raise SpdyError("SYN_STREAM is too short")
        number = struct.unpack_from(">I", body)[0] & 0x7FFFFFFF
        # The block is read even for a rejected stream: it belongs to the compression state.
        stream = Stream(self, number, self._codec.read(body[10:]))
        if number in self._streams or len(self._streams) >= _MAX_STREAMS:
            self.send_control(_RST_STREAM, struct.pack(">II", number, _PROTOCOL_ERROR))
            return
        self._streams[number] = stream
        self.send_control(_SYN_REPLY, struct.pack(">I", number) + self._codec.pack({}))
        if flags & _FIN:
            stream.received(None)
        self._opened(stream)
