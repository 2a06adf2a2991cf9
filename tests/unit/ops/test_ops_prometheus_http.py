"""A Prometheus by its URL: credentials, its CA, and HTTP errors as one line without a secret."""

from __future__ import annotations

import base64
import hashlib
import hmac
import ssl
import sys
import threading
from collections.abc import Iterator
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote

import pytest

from ops import __main__ as front_door
from ops import metrics
from ops.metrics import MetricsUnknownError
from sandbox.certificates import CertificateAuthority, Identity

GOOD = '{"status": "success", "data": {"result": []}}'
TOKEN = "token-of-this-test"
BASIC = "Basic " + base64.b64encode(b"ada:p@ss").decode()


class Server(ThreadingHTTPServer):
    """Answers every query with `reply`, and notes what it was asked with."""

    reply: tuple[int, str] = (200, GOOD)
    required = ""
    location = ""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []
        self.requests: list[tuple[str, Message]] = []
        super().__init__(("127.0.0.1", 0), Handler)

    def url(self, login: str = "", scheme: str = "http") -> str:
        return f"{scheme}://{login}127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        given = self.headers.get("Authorization", "")
        self.server.requests.append((self.path, self.headers))
        self.server.seen.append((self.path.partition("?")[0], given))
        status, text = self.server.reply
        if self.server.required not in ("", given):
            status, text = 401, "Unauthorized"
        self.send_response(status)
        if self.server.location:
            self.send_header("Location", self.server.location)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (metrics.PROMETHEUS_ENV, metrics.TOKEN_ENV, metrics.CA_ENV):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as found:
        thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def ask(url: str) -> list[metrics.Sample]:
    return metrics.connect(url, None).query("up")  # type: ignore[arg-type]


def refusal(url: str) -> str:
    with pytest.raises(MetricsUnknownError) as error:
        ask(url)
    text = str(error.value)
    assert len(text.splitlines()) == 1 and "p@ss" not in text and TOKEN not in text
    return text


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (400, '{"status":"error","error":"parse\\nerror"}', "HTTP 400 Bad Request: parse error"),
        (422, '{"status":"error","error":"too many samples"}', "too many samples"),
        (401, "<html>", "HTTP 401 Unauthorized: no or other credentials"),
        (403, "", "HTTP 403 Forbidden: no or other credentials"),
        (302, "", "HTTP 302 Found: no or other credentials"),
        (404, "404 page", "no Prometheus found at"),
        (500, "[]", "HTTP 500 Internal Server Error"),
        (502, "<html>\n</html>", "HTTP 502 Bad Gateway"),
        (503, '"x"', "HTTP 503 Service Unavailable"),
        (599, "\x00", "HTTP 599"),
    ],
)
def test_an_http_error_is_one_line(server: Server, status: int, body: str, said: str) -> None:
    server.reply = status, body
    assert said in refusal(server.url("ada:p%40ss@"))


def test_credentials_do_not_follow_a_redirect(server: Server) -> None:
    server.reply, server.location = (302, ""), server.url() + "/login"
    assert "HTTP 302" in refusal(server.url("ada:p%40ss@"))
    assert server.seen == [("/api/v1/query", BASIC)]


def test_a_password_of_the_url_is_used_and_not_shown(server: Server) -> None:
    server.required = BASIC
    assert ask(server.url("ada:p%40ss@") + "/prometheus/") == []
    assert server.seen == [("/prometheus/api/v1/query", BASIC)]
    assert "p%40ss" not in metrics.connect(server.url("ada:p%40ss@"), None).place  # type: ignore[arg-type]
    assert "p@ss" not in refusal("http://ada:p%40ss@127.0.0.1:9")


def test_the_token_is_read_again_for_each_query(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    monkeypatch.setenv(metrics.TOKEN_ENV, str(file))
    assert f"{metrics.TOKEN_ENV}: got {file}; must be a readable file" in refusal(server.url())
    file.write_text("old\n")
    server.required = f"Bearer {TOKEN}"
    assert "HTTP 401" in refusal(server.url())
    file.write_text(f"{TOKEN}\n")
    assert ask(server.url()) == []


def test_the_ca_of_a_server_is_named(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = CertificateAuthority(tmp_path / "pki")
    pair = authority.issue(Identity("server", "prometheus", hosts=("127.0.0.1",)))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    assert f"set {metrics.CA_ENV} to the file of its CA" in refusal(server.url(scheme="https"))
    monkeypatch.setenv(metrics.CA_ENV, str(authority.pair.certificate))
    assert ask(server.url(scheme="https")) == []
    monkeypatch.setenv(metrics.CA_ENV, str(tmp_path / "none"))
    assert f"{metrics.CA_ENV}: got" in refusal(server.url(scheme="https"))


def test_a_password_is_not_passed_as_an_argument(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url = "https://ada:p%40ss@prometheus.example.com"
    with pytest.raises(SystemExit):
        front_door.parser().parse_args(["run", "list", "--prometheus", url])
    error = capsys.readouterr().err
    assert metrics.PROMETHEUS_ENV in error and "p%40ss" not in error
    monkeypatch.setenv(metrics.PROMETHEUS_ENV, url)
    assert front_door.parser().parse_args(["run", "list"]).prometheus == url


def test_queries_of_amazons_service_are_signed_as_the_server_sees_them(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKID")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "session")
    monkeypatch.setenv(metrics.REGION_ENV, "eu-west-1")
    connected = metrics.connect(f"{server.url()}/workspaces/ws-1", None)  # type: ignore[arg-type]
    assert connected.query('sum by (a) (up{b=~"c+|d"}) + 1') == []
    [(target, headers)] = server.requests
    path, _, query = target.partition("?")
    signed = {
        "host": headers["Host"],
        "x-amz-date": headers["X-Amz-Date"],
        "x-amz-security-token": "session",
    }
    lines = [f"{name}:{value}" for name, value in signed.items()]
    empty = hashlib.sha256(b"").hexdigest()
    # AWS encodes the parameters anew: RFC 3986, in which a space is %20.
    canonical = "&".join(sorted(f"{k}={quote(v, safe='-_.~')}" for k, v in parse_qsl(query)))
    asked = "\n".join(["GET", path, canonical, *lines, "", ";".join(signed), empty])
    day = headers["X-Amz-Date"][:8]
    scope = f"{day}/eu-west-1/aps/aws4_request"
    digest = hashlib.sha256(asked.encode()).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{headers['X-Amz-Date']}\n{scope}\n{digest}"
    key = b"AWS4secret"
    for part in (day, "eu-west-1", "aps", "aws4_request", text):
        key = hmac.digest(key, part.encode(), "sha256")
    assert headers["Authorization"] == (
        f"AWS4-HMAC-SHA256 Credential=AKID/{scope}, SignedHeaders={';'.join(signed)}, "
        f"Signature={key.hex()}"
    )


def test_signing_without_credentials_or_botocore_is_one_line(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(metrics.REGION_ENV, "eu-west-1")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    assert f"{metrics.REGION_ENV}: no AWS credentials" in refusal(server.url())
    monkeypatch.setitem(sys.modules, "botocore.auth", None)
    assert 'pip install "trainyard[cli,s3]"' in refusal(server.url())
