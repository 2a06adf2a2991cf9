"""A hub of models on loopback, with the answers of huggingface.co and the faults that a test asks for."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL = "acme/tiny"
COMMIT = "c0ffee" * 6 + "beef"


def git_sha1(content: bytes) -> str:
    """Return git's name of a file."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@dataclass
class Request:
    """What a server was asked."""

    path: str
    token: str
    range: str
    method: str


@dataclass
class HubServer:
    """Files and faults of a hub, and what it was asked."""

    files: dict[str, bytes]
    address: str = ""
    large: tuple[str, ...] = (".safetensors",)
    """Suffixes of files that are stored by their SHA-256."""
    store: HubServer | None = None
    """Another host to which requests for large files are redirected."""
    token: str = ""
    """Requests without it are refused."""
    gated: bool = False
    tree: Callable[[list[dict[str, Any]]], Any] = lambda found: found
    """What the list of files becomes."""
    answer: dict[str, Callable[[Handler, bytes], bool]] = field(default_factory=dict)
    """By name of a file: sends the answer itself, and returns whether it did."""
    asked: list[Request] = field(default_factory=list)

    def entries(self) -> list[dict[str, Any]]:
        """Return the list of files."""
        return [self._entry(name, content) for name, content in self.files.items()]

    def _entry(self, name: str, content: bytes) -> dict[str, Any]:
        size = len(content)
        found: dict[str, Any] = {"type": "file", "path": name, "size": size}
        if not name.endswith(self.large):
            return found | {"oid": git_sha1(content)}
        digest = hashlib.sha256(content).hexdigest()
        return found | {"oid": "0" * 40, "lfs": {"oid": digest, "size": size, "pointerSize": 134}}

    def paths(self, name: str) -> list[Request]:
        """Return the requests for the content of a file."""
        return [o for o in self.asked if o.method == "GET" and o.path.endswith(f"/{name}")]


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    protocol_version = "HTTP/1.1"
    hub: HubServer

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        """Answer."""
        hub = self.hub
        path = self.path.partition("?")[0]
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        hub.asked.append(Request(path, token, self.headers.get("Range", ""), self.command))
        api, files = f"/api/models/{MODEL}", f"/{MODEL}/resolve/{COMMIT}/"
        if hub.gated:
            self.refuse(403, "GatedRepo")
        elif hub.token and token != hub.token:
            self.refuse(401, "RepoNotFound")
        elif path == f"{api}/tree/{COMMIT}":
            self.send(json.dumps(hub.tree(hub.entries())).encode())
        elif path.startswith((files, "/stored/")):
            self._file(path.removeprefix(files).removeprefix("/stored/"))
        elif path.startswith(f"{api}/"):
            self.refuse(404, "RevisionNotFound")
        else:
            self.refuse(404, "RepoNotFound")

    do_HEAD = do_GET

    def end_headers(self) -> None:
        """Add what the hub states of a file."""
        name = self.path.partition("?")[0].rpartition("/")[2]
        if self.command == "HEAD" and name in self.hub.files:
            content = self.hub.files[name]
            digest = hashlib.sha256(content).hexdigest()
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("ETag", f'"{git_sha1(content)}"')
            if name.endswith(self.hub.large):
                self.send_header("X-Linked-ETag", f'"{digest}"')
                self.send_header("X-Linked-Size", str(len(content)))
        super().end_headers()

    def _file(self, name: str) -> None:
        hub = self.hub
        content = hub.files[name]
        if self.command == "GET" and (fault := hub.answer.get(name)) and fault(self, content):
            return
        if hub.store and name.endswith(hub.large):
            hub.store.files[name] = content
            host = hub.store.address.partition("://")[2]
            self.send_response(302)
            self.send_header("Location", f"http://{host}/stored/{name}?signature=s3cr3t")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send(content)

    def send(self, content: bytes, *, promise: int | None = None) -> None:
        """Send content from the first byte asked for. `promise`: its stated size, if it is another."""
        start = int((self.headers.get("Range") or "bytes=0-")[6:].split("-")[0])
        rest = content[start:]
        self.send_response(206 if start else 200)
        size = len(content) if promise is None else promise
        if start:
            self.send_header("Content-Range", f"bytes {start}-{size - 1}/{size}")
        self.send_header("Content-Length", str(size - start))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(rest)
        if promise is not None:
            self.close_connection = True

    def refuse(self, status: int, code: str = "") -> None:
        """Send an error as the hub does."""
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()


@contextmanager
def serve(hub: HubServer) -> Iterator[HubServer]:
    """Run a server until the end of the block."""
    handler = type("Bound", (Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    hub.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
