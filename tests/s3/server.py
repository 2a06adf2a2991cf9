"""`python -m tests.s3.server`: moto's S3 behind a proxy that injects faults.

Prints its port. The proxy also does what moto leaves out and S3 does: it compares the checksums of
what is uploaded, lets one conditional write after the other, and forgets an upload once complete.
Paths that begin with /_ are the tests' own, see `tests.s3.bucket`.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import os
import random
import re
import socket
import struct
import sys
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from moto.server import ThreadedMotoServer

HOP_BY_HOP: Final = {"connection", "transfer-encoding", "content-length", "keep-alive"}
_DIGESTS: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "x-amz-checksum-sha256": lambda body: hashlib.sha256(body).digest(),
    "x-amz-checksum-crc32": lambda body: zlib.crc32(body).to_bytes(4, "big"),
}


@dataclass
class Rule:
    """Breaks the requests that match, as described by `tests.s3.bucket.Fault`."""

    kind: str
    match: str = "."
    share: float = 1.0
    skip: int = 0
    times: int = 10**9
    seconds: float = 0.0


@dataclass
class Faults:
    """What to break, and what was seen."""

    rules: list[Rule] = field(default_factory=list)
    chance: random.Random = field(default_factory=random.Random)
    seen: list[dict[str, Any]] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def next(self, text: str) -> Rule | None:
        """The rule that breaks this request; None lets it pass."""
        with self.lock:
            for rule in self.rules:
                if rule.times > 0 and re.search(rule.match, text):
                    if rule.skip > 0:
                        rule.skip -= 1
                    elif self.chance.random() < rule.share:
                        rule.times -= 1
                        return rule
        return None

    def saw(self, text: str, kind: str | None, status: int) -> dict[str, Any]:
        """Remember a request; the record may be changed until the test reads it."""
        record = {"request": text, "fault": kind, "status": status}
        with self.lock:
            self.seen.append(record)
        return record


FAULTS = Faults()
CONDITIONAL = threading.Lock()
CREDENTIALS = iter(range(1, 10**6))
COMPLETED: Final[set[str]] = set()
UPSTREAM: list[tuple[str, int]] = []


class Proxy(BaseHTTPRequestHandler):
    """One connection of a client."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def handle_any(self) -> None:
        """Break the request, or pass it on."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path.startswith("/_"):
            self._own(body)
            return
        key = re.search(r"Credential=([^/]+)/", self.headers.get("Authorization", ""))
        text = f"{self.command} {self.path} key={key[1] if key else ''}"
        rule = FAULTS.next(text)
        kind = rule.kind if rule else None
        seconds = rule.seconds if rule else 0.0
        record = FAULTS.saw(text, kind, 0)
        if kind == "hold":
            FAULTS.released.wait()
            self._reset()
        elif kind == "reset":
            self._reset()
        elif kind == "503":
            self._refuse(record, 503, "SlowDown", "Please reduce your request rate.")
        elif kind == "expired":
            self._refuse(record, 400, "ExpiredToken", "The provided token has expired.")
        elif kind == "denied":
            self._refuse(record, 403, "AccessDenied", "Access Denied")
        else:
            time.sleep(seconds if kind == "slow" else 0.0)
            if kind == "flip" and body:
                body = _flipped(body)
            self._pass_on(record, body, kind)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any

    def _pass_on(self, record: dict[str, Any], body: bytes, kind: str | None) -> None:
        if not _sound(self.headers, body):
            self._refuse(record, 400, "BadDigest", "The digest is not that of what was received.")
            return
        if self.command == "POST" and self.path in COMPLETED:
            self._refuse(record, 404, "NoSuchUpload", "The specified upload does not exist.")
            return
        conditional = any(name.lower() in ("if-match", "if-none-match") for name in self.headers)
        if conditional and self.command == "PUT":
            with CONDITIONAL:
                status, headers, answer = _ask_moto(self.command, self.path, body, self.headers)
        else:
            status, headers, answer = _ask_moto(self.command, self.path, body, self.headers)
        record["status"] = status
        if self.command == "POST" and "uploadId=" in self.path and status == 200:
            COMPLETED.add(self.path)
        if kind == "500 after":
            self._refuse(record, 500, "InternalError", "We encountered an internal error.")
        elif kind == "reset after":
            self._reset()
        elif kind == "hold after":
            FAULTS.released.wait()
            self._reset()
        else:
            if kind == "flip" and self.command == "GET" and answer:
                answer = _flipped(answer)
            self._answer(status, headers, answer, cut=kind == "truncate")

    def _answer(
        self, status: int, headers: list[tuple[str, str]], body: bytes, *, cut: bool = False
    ) -> None:
        self.send_response_only(status)
        length = [v for k, v in headers if k.lower() == "content-length"]
        for name, value in headers:
            if name.lower() not in HOP_BY_HOP:
                self.send_header(name, value)
        size = length[0] if self.command == "HEAD" and length else str(len(body))
        if status not in (204, 304):
            self.send_header("Content-Length", size)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[: len(body) // 2] if cut else body)
        if cut:
            self._reset()

    def _refuse(self, record: dict[str, Any], status: int, code: str, message: str) -> None:
        record["status"] = status
        text = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
        self._answer(status, [("Content-Type", "application/xml")], text.encode())

    def _reset(self) -> None:
        self.wfile.flush()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True

    def _own(self, body: bytes) -> None:
        if self.path == "/_faults":
            plan = json.loads(body)
            with FAULTS.lock:
                FAULTS.released.set()
                FAULTS.released = threading.Event()
                FAULTS.chance = random.Random(plan["seed"])
                FAULTS.rules = [Rule(**rule) for rule in plan["rules"]]
                FAULTS.seen = []
        elif self.path == "/_seen":
            with FAULTS.lock:
                self._answer(200, [], json.dumps(FAULTS.seen).encode())
            return
        elif self.path == "/_credentials":
            number = next(CREDENTIALS)
            given = {"AccessKeyId": f"KEY{number}", "SecretAccessKey": "s", "Token": "t"}
            given["Expiration"] = "2999-01-01T00:00:00Z"
            self._answer(200, [("Content-Type", "application/json")], json.dumps(given).encode())
            return
        self._answer(200, [], b"ok")


def _flipped(body: bytes) -> bytes:
    middle = len(body) // 2
    return body[:middle] + bytes([body[middle] ^ 1]) + body[middle + 1 :]


def _sound(headers: Any, body: bytes) -> bool:
    """Return whether the body matches its checksum."""
    for name, digest in _DIGESTS.items():
        given = headers.get(name)
        if given is not None and base64.b64decode(given) != digest(body):
            return False
    return True


def _ask_moto(
    method: str, path: str, body: bytes, headers: Any
) -> tuple[int, list[tuple[str, str]], bytes]:
    connection = http.client.HTTPConnection(*UPSTREAM[0])
    try:
        kept = {k: v for k, v in headers.items() if k.lower() not in HOP_BY_HOP}
        connection.request(method, path, body, kept)
        answer = connection.getresponse()
        return answer.status, answer.getheaders(), answer.read()
    finally:
        connection.close()


def main() -> None:
    """Serve until standard input ends, which it does with the process that started this one."""
    moto = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    moto.start()
    UPSTREAM.append(moto.get_host_and_port())
    server = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], flush=True)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
