"""SPDY framing of the node: what a client sees that opens streams, sends data and misbehaves."""

from __future__ import annotations

import contextlib
import hashlib
import socket
import struct
import threading
import zlib
from collections.abc import Iterator

import pytest

from sandbox.node import spdy
from sandbox.node.spdy import DICTIONARY, Connection, HeaderCodec, SpdyError, Stream

DIGEST = "51d27341373f923f3cd88e1eb7162aeaa3723d7585ff2399201dc06498407f02"
"""Of the 1423 bytes that the protocol's draft lists."""


class _Client:
    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.socket.settimeout(60)
        self.codec = HeaderCodec()
        self._file = connection.makefile("rb")

    def control(self, kind: int, body: bytes, flags: int = 0) -> None:
        self.socket.sendall(struct.pack(">HHI", 0x8003, kind, flags << 24 | len(body)) + body)

    def open(self, number: int, **headers: str) -> None:
        self.control(1, struct.pack(">IIH", number, 0, 0) + self.codec.pack(headers))

    def data(self, number: int, data: bytes, flags: int = 0) -> None:
        self.socket.sendall(struct.pack(">II", number, flags << 24 | len(data)) + data)

    def frame(self) -> tuple[int, int, bytes]:
        """The next frame: kind (0: data), flags, body; data bodies begin with the stream's number."""
        head = self._file.read(8)
        if not head:
            raise EOFError
        first, second = struct.unpack(">II", head)
        body = self._file.read(second & 0xFFFFFF)
        if first & 0x80000000:
            return first & 0xFFFF, second >> 24, body
        return 0, second >> 24, struct.pack(">I", first) + body


@pytest.fixture
def client() -> Iterator[_Client]:
    """A client of a server that answers each stream's data in capitals, and ends it when the client does."""

    def opened(stream: Stream) -> None:
        def echo() -> None:
            with contextlib.suppress(OSError):
                while data := stream.read():
                    stream.write(data.upper())
                stream.close()

        threading.Thread(target=echo, daemon=True).start()

    ours, theirs = socket.socketpair()
    connection = Connection(theirs, opened)
    thread = threading.Thread(target=connection.serve, daemon=True)
    thread.start()
    with ours, theirs:
        yield _Client(ours)
        connection.close()
        thread.join(60)
        assert not thread.is_alive()


def test_dictionary_is_that_of_the_protocol() -> None:
    assert len(DICTIONARY) == 1423
    assert hashlib.sha256(DICTIONARY).hexdigest() == DIGEST


@pytest.mark.parametrize("plain", [b"", b"\0\0\0\1", b"\xff\xff\xff\xff", b"\0\0\0\1\0\0\0\x50a"])
def test_truncated_header_block_is_an_error(plain: bytes) -> None:
    packer = zlib.compressobj(zdict=DICTIONARY)
    with pytest.raises(SpdyError):
        HeaderCodec().read(packer.compress(plain) + packer.flush(zlib.Z_SYNC_FLUSH))


def test_stream_is_accepted_answered_and_ended(client: _Client) -> None:
    client.open(1, streamtype="data")
    kind, _, body = client.frame()
    assert kind == 2 and struct.unpack_from(">I", body) == (1,)
    client.data(1, b"abc")
    assert client.frame() == (0, 0, b"\0\0\0\1ABC")
    client.data(1, b"last", flags=1)
    assert client.frame() == (0, 0, b"\0\0\0\1LAST")
    assert client.frame() == (0, 1, b"\0\0\0\1")


def test_large_data_is_split_and_complete(client: _Client) -> None:
    client.open(1, streamtype="data")
    client.frame()
    sent = b"x" * 300_000
    threading.Thread(target=client.data, args=(1, sent, 1), daemon=True).start()
    found = b""
    while True:
        _, flags, body = client.frame()
        found += body[4:]
        if flags:
            break
    assert found == sent.upper()


def test_ping_is_answered(client: _Client) -> None:
    client.control(6, b"\0\0\0\7")
    assert client.frame() == (6, 0, b"\0\0\0\7")


def test_stream_that_is_open_is_not_opened_again(client: _Client) -> None:
    client.open(1, streamtype="data")
    client.frame()
    client.open(1, streamtype="data")
    assert client.frame()[0] == 3
    client.open(3, streamtype="data")  # the compression state has not suffered
    assert client.frame()[0] == 2


@pytest.mark.parametrize(
    "bad",
    [
        struct.pack(">II", 1, spdy._MAX_FRAME_BYTES + 1),
        struct.pack(">HHI", 0x8003, 1, 4) + b"\0\0\0\1",
        struct.pack(">HHI", 0x8003, 1, 14) + b"\0" * 14,
    ],
    ids=["too large", "too short", "not compressed"],
)
def test_bad_frame_ends_the_connection(client: _Client, bad: bytes) -> None:
    client.socket.sendall(bad)
    with pytest.raises(EOFError):
        client.frame()


def test_goaway_ends_the_connection(client: _Client) -> None:
    client.control(7, b"\0" * 8)
    with pytest.raises(EOFError):
        client.frame()
