"""The client asks again when the API server names a time to, and passes on every other answer."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from sandbox import service_config
from sandbox.certificates import CertificateAuthority, Identity
from sandbox.node.api import ApiError, Client

Answer = tuple[int, dict[str, str], dict[str, object]]
BUSY: Answer = (
    429,
    {"Retry-After": "0"},
    {"reason": "TooManyRequests", "message": "storage is (re)initializing"},
)
FULL: Answer = (
    429,
    {"Retry-After": "0"},
    {
        "reason": "TooManyRequests",
        "message": "Cannot evict pod",
        "details": {"causes": [{"reason": "DisruptionBudget"}]},
    },
)
FOUND: Answer = (200, {}, {"items": []})


@contextmanager
def _server(folder: Path, answers: list[Answer], asked: list[str]) -> Iterator[Client]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            status, headers, body = answers.pop(0) if len(answers) > 1 else answers[0]
            data = json.dumps(body).encode()
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    authority = CertificateAuthority(folder / "pki")
    pair = authority.issue(Identity("server", "server", hosts=("127.0.0.1",)))
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    kubeconfig = folder / "kubeconfig"
    config = service_config.kubeconfig(server.server_port, authority.pair.certificate, pair)
    kubeconfig.write_text(yaml.safe_dump(config))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield Client(kubeconfig)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_server_that_is_not_warm_yet_is_asked_again(tmp_path: Path) -> None:
    asked: list[str] = []
    with _server(tmp_path, [BUSY, BUSY, FOUND], asked) as client:
        assert client.get("/api/v1/pods") == {"items": []}
    assert len(asked) == 3


def test_a_server_that_stays_busy_is_not_asked_for_ever(tmp_path: Path) -> None:
    asked: list[str] = []
    with (
        _server(tmp_path, [BUSY], asked) as client,
        pytest.raises(ApiError, match=r"storage is \(re\)initializing"),
    ):
        client.get("/api/v1/pods")
    assert len(asked) == 10


def test_a_disruption_budget_is_passed_on_at_once(tmp_path: Path) -> None:
    asked: list[str] = []
    with (
        _server(tmp_path, [FULL], asked) as client,
        pytest.raises(ApiError, match="Cannot evict pod"),
    ):
        client.get("/api/v1/pods")
    assert len(asked) == 1
