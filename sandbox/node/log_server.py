"""The kubelet's HTTPS endpoint: `kubectl logs`, and of dev pods `exec` and `port-forward`.

Only the API server is authorized."""

from __future__ import annotations

import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

from infra.domain import naming
from sandbox import paths
from sandbox.node import logs, port_forward, remote_command, spdy
from sandbox.node.api import Json
from sandbox.node.records import Attempt, PodFolder, pod_folder, pod_folders
from sandbox.node.status import stamp_seconds

log = logging.getLogger("logs")

API_SERVER = "kube-apiserver-kubelet-client"
"""Common name of the API server's client certificate."""
_STREAMED = {"exec": remote_command.PROTOCOL, "portForward": port_forward.PROTOCOL}
"""Paths that are upgraded to SPDY, with the protocol of their streams."""
HANDSHAKE_S = 10.0

FindPod = Callable[[str, str], Json | None]
"""Returns the pod of this namespace and name."""


class RequestError(Exception):
    """A request cannot be served. `status`: the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class LogServer(threading.Thread):
    """Serves on a loopback port. Raises OSError if it is taken or certificates are missing."""

    def __init__(self, find_pod: FindPod, state: paths.State, port: int) -> None:
        super().__init__(name="logs server", daemon=True)
        self._server = _listen(state, port)
        self._server.find_pod = find_pod

    def run(self) -> None:
        self._server.serve_forever(poll_interval=3600)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    state: paths.State
    find_pod: FindPod
    context: ssl.SSLContext

    def get_request(self) -> tuple[socket.socket, tuple[str, int]]:
        """Leave the handshake to the connection's thread: a slow client must not block others."""
        connection, address = self.socket.accept()
        connection.settimeout(HANDSHAKE_S)
        secured = self.context.wrap_socket(
            connection, server_side=True, do_handshake_on_connect=False
        )
        return secured, address

    def handle_error(self, request: object, client_address: object) -> None:
        log.debug("connection from %s ended", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def log_message(self, format: str, *args: object) -> None:
        log.debug(format, *args)

    def _answer(self) -> None:
        try:
            parts = self._parts()
            if parts[0] in _STREAMED:
                self._stream(parts)
                return
            blocks = self._route(parts)
        except RequestError as error:
            self._text(error.status, f"{error}\n")
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.connection.settimeout(None)
        for block in blocks:
            if block:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(block), block))
                self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def _text(self, status: int, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = True

    def _parts(self) -> list[str]:
        """Return the parts of the path of a request that the caller may make."""
        parts = [unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")]
        if parts[0] != "healthz":
            self._authenticate()
        return parts

    def _route(self, parts: list[str]) -> Iterator[bytes]:
        address = urlsplit(self.path)
        if parts[0] == "healthz":
            return iter([b"ok"])
        if parts[0] != "containerLogs" or len(parts) != 4 or self.command != "GET":
            raise RequestError(404, f"{address.path}: not served by a process node")
        query = {key: values[-1] for key, values in parse_qs(address.query).items()}
        return self._logs(parts[1], parts[2], parts[3], query)

    def _stream(self, parts: list[str]) -> None:
        """Serve `/exec/NAMESPACE/POD/CONTAINER` and `/portForward/NAMESPACE/POD` of a dev pod."""
        kind = parts[0]
        if len(parts) != (4 if kind == "exec" else 3):
            raise RequestError(404, f"{self.path}: not served by a process node")
        place = self._dev_pod(parts[1], parts[2])
        attempts = [a for a in place.all_attempts() if a.exit() is None]
        mine = [a for a in attempts if kind != "exec" or a.path.parent.name == parts[3]]
        if not mine:
            raise RequestError(400, f"no container of pod {parts[2]} runs that could serve this")
        self._upgrade(_STREAMED[kind])
        if kind == "exec":
            query = parse_qs(urlsplit(self.path).query, keep_blank_values=True)
            remote_command.serve(self.connection, mine[-1], remote_command.parse_request(query))
        else:
            port_forward.serve(self.connection, mine, str(place.load().get("ip")))

    def _dev_pod(self, namespace: str, name: str) -> PodFolder:
        """Return the folder of a dev pod; any other pod is refused, whoever asks."""
        pod = self.server.find_pod(namespace, name)
        if pod is None:
            raise RequestError(404, f"pod {namespace}/{name}: does not run on a process node")
        labels = pod["metadata"].get("labels") or {}
        if labels.get(naming.DEV) != "true":
            raise RequestError(
                403, f"pod {name} is not a dev pod; exec and port-forward work in dev pods only"
            )
        return pod_folder(self.server.state, pod)

    def _upgrade(self, protocol: str) -> None:
        offered = [
            one.strip()
            for line in self.headers.get_all("X-Stream-Protocol-Version") or []
            for one in line.split(",")
        ]
        if self.headers.get("Upgrade", "").upper() != spdy.PROTOCOL:
            raise RequestError(400, f"the connection must be upgraded to {spdy.PROTOCOL}")
        if protocol not in offered:
            raise RequestError(403, f"streams must use {protocol}; offered are {offered}")
        self.send_response(101)
        self.send_header("Connection", "Upgrade")
        self.send_header("Upgrade", spdy.PROTOCOL)
        self.send_header("X-Stream-Protocol-Version", protocol)
        self.end_headers()
        self.close_connection = True

    def _authenticate(self) -> None:
        """Check the common name of the client certificate, which TLS has verified."""
        connection = self.connection
        assert isinstance(connection, ssl.SSLSocket)
        subject = (connection.getpeercert() or {}).get("subject", ())
        names = [pair[1] for group in subject for pair in group if pair[0] == "commonName"]
        if API_SERVER not in names:
            raise RequestError(403, "only the API server may access a process node")

    def _logs(
        self, namespace: str, pod: str, container: str, options: dict[str, str]
    ) -> Iterator[bytes]:
        attempt = find_attempt(
            self.server.state, namespace, pod, container, options.get("previous") == "true"
        )
        return logs.read_log(
            attempt.log, parse_log_options(options), lambda: attempt.exit() is not None
        )


def parse_log_options(options: dict[str, str]) -> logs.LogOptions:
    def number(name: str) -> int | None:
        if not options.get(name):
            return None
        try:
            return int(options[name])
        except ValueError:
            raise RequestError(400, f"{name}={options[name]}: not a whole number") from None

    since: float | None = None
    seconds = number("sinceSeconds")
    if seconds is not None:
        since = time.time() - seconds
    elif options.get("sinceTime"):
        try:
            since = stamp_seconds(options["sinceTime"])
        except ValueError:
            raise RequestError(400, f"sinceTime={options['sinceTime']}: not a time") from None
    return logs.LogOptions(
        follow=options.get("follow") in ("true", "1"),
        tail_lines=number("tailLines"),
        since=since,
        timestamps=options.get("timestamps") in ("true", "1"),
        limit_bytes=number("limitBytes"),
    )


def find_attempt(
    state: paths.State, namespace: str, pod: str, container: str, previous: bool
) -> Attempt:
    """Return the attempt whose log is requested. Raises RequestError as a kubelet does."""
    places = [p for p in pod_folders(state) if p.path.name.startswith(f"{namespace}_{pod}_")]
    places.sort(key=lambda p: p.path.stat().st_mtime)
    attempts = places[-1].attempts(container) if places else []
    if not attempts:
        message = f'container "{container}" in pod "{pod}" is waiting to start'
        raise RequestError(400, message)
    if not previous:
        return attempts[-1]
    if len(attempts) < 2:
        message = f'previous terminated container "{container}" in pod "{pod}" not found'
        raise RequestError(400, message)
    return attempts[-2]


def _listen(state: paths.State, port: int) -> _Server:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(state.pki / "kubelet.crt", state.pki / "kubelet.key")
    context.load_verify_locations(state.pki / "ca.crt")
    context.verify_mode = ssl.CERT_REQUIRED
    server = _Server(("127.0.0.1", port), _Handler)
    server.state, server.context = state, context
    return server
