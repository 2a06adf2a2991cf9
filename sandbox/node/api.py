"""Minimal Kubernetes API client for the node agent.

The generated `kubernetes` package needs about a second and 100 MB to import, too much for an idle agent.
"""

from __future__ import annotations

import base64
import json
import ssl
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlencode, urlsplit

import urllib3
import yaml

Json = dict[str, Any]
"""One Kubernetes object, as decoded from JSON."""

PatchKind = Literal["merge", "strategic", "apply"]
_PATCH_TYPES: Mapping[PatchKind, str] = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
CONNECT_TIMEOUT_S = 3.0
READ_TIMEOUT_S = 15.0
_TOO_MANY_REQUESTS = 429
_MAX_ATTEMPTS = 10
"""client-go's limit of attempts for requests that a busy server rejects with Retry-After."""
FIELD_MANAGER = "trainyard-node"


class ApiError(Exception):
    """An error response. `status`: HTTP code; `reason`: the Status object's reason."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message or reason or f"HTTP {status}")
        self.status = status
        self.reason = reason

    @property
    def not_found(self) -> bool:
        return self.status == 404

    @property
    def forbidden(self) -> bool:
        return self.status == 403

    @property
    def conflict(self) -> bool:
        return self.status == 409


class ApiUnavailable(Exception):
    """No response: the API server is down, starting or unreachable. Retryable."""


class Client:
    """Requests to one API server as the user of a kubeconfig. Thread-safe."""

    def __init__(self, kubeconfig: Path) -> None:
        """Read `kubeconfig`, which the sandbox has written."""
        cluster, user = _current_context(kubeconfig)
        self.server: str = cluster["server"]
        address = urlsplit(self.server)
        self.host: str = address.hostname or ""
        self.port: int = address.port or 443
        self._headers = {"Accept": "application/json", "User-Agent": FIELD_MANAGER}
        if user.get("token"):
            self._headers["Authorization"] = f"Bearer {user['token']}"
        self._authority = base64.b64decode(cluster["certificate-authority-data"])
        self._use(_pem(user, "client-certificate-data"), _pem(user, "client-key-data"))

    def _use(self, certificate: bytes | None, key: bytes | None) -> None:
        context = _tls(self._authority, certificate, key)
        self._pool = urllib3.HTTPSConnectionPool(
            self.host, self.port, maxsize=16, ssl_context=context, retries=False
        )

    def get(self, path: str, **query: str) -> Json:
        """Return one object or list. Raises ApiError, ApiUnavailable."""
        return self._call("GET", path, query)

    def create(self, path: str, body: Json, **query: str) -> Json:
        return self._call("POST", path, query, body)

    def patch(self, path: str, body: Json, kind: PatchKind = "merge", **query: str) -> Json:
        """Patch an object; `apply` is server-side apply and requires `fieldManager` in the query."""
        return self._call("PATCH", path, query, body, _PATCH_TYPES[kind])

    def delete(self, path: str, options: Json | None = None) -> Json:
        return self._call("DELETE", path, {}, options)

    def stream(
        self, path: str, query: Mapping[str, str], read_timeout_s: float
    ) -> urllib3.BaseHTTPResponse:
        """Return an open response (a watch); the caller reads and closes it."""
        response = self._send("GET", path, query, None, "", read_timeout_s)
        if response.status >= 400:
            raise _error(response.status, response.data)
        return response

    def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Json | None = None,
        content_type: str = "application/json",
    ) -> Json:
        response = self._send(method, path, query, body, content_type, None)
        for _ in range(_MAX_ATTEMPTS - 1):
            if not _is_throttled(response):
                break
            time.sleep(float(response.headers["Retry-After"]))
            response = self._send(method, path, query, body, content_type, None)
        if response.status >= 400:
            raise _error(response.status, response.data)
        answer: Json = json.loads(response.data)
        return answer

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Json | None,
        content_type: str,
        stream_timeout_s: float | None,
    ) -> urllib3.BaseHTTPResponse:
        headers = dict(self._headers)
        if body is not None:
            headers["Content-Type"] = content_type
        timeout = urllib3.Timeout(
            connect=CONNECT_TIMEOUT_S, read=stream_timeout_s or READ_TIMEOUT_S
        )
        try:
            return self._pool.urlopen(
                method,
                path + ("?" + urlencode(query) if query else ""),
                body=None if body is None else json.dumps(body).encode(),
                headers=headers,
                timeout=timeout,
                preload_content=stream_timeout_s is None,
            )
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise ApiUnavailable(f"{self.server}: {error}") from error


def object_path(prefix: str, namespace: str | None, plural: str, name: str = "") -> str:
    """Return the path of an object or collection; `prefix`: /api/v1 or /apis/GROUP/VERSION."""
    parts = [prefix]
    if namespace:
        parts += ["namespaces", namespace]
    parts.append(plural)
    if name:
        parts.append(name)
    return "/".join(parts)


def pod_path(namespace: str, name: str, subresource: str = "") -> str:
    path = object_path("/api/v1", namespace, "pods", name)
    return f"{path}/{subresource}" if subresource else path


def node_path(name: str = "", subresource: str = "") -> str:
    path = object_path("/api/v1", None, "nodes", name)
    return f"{path}/{subresource}" if subresource else path


def _is_throttled(response: urllib3.BaseHTTPResponse) -> bool:
    """Whether the server rejected the request with a time to retry.

    Evictions that a disruption budget rejects have the same code; their retries are up to the caller.
    """
    if response.status != _TOO_MANY_REQUESTS or "Retry-After" not in response.headers:
        return False
    return b"DisruptionBudget" not in response.data


def _error(status: int, body: bytes) -> ApiError | ApiUnavailable:
    try:
        answer = json.loads(body)
    except ValueError:
        answer = {"message": body[:200].decode(errors="replace")}
    reason, message = answer.get("reason", ""), answer.get("message", "")
    if status in (502, 503, 504):
        return ApiUnavailable(message or f"HTTP {status}")
    return ApiError(status, reason, message)


def _current_context(kubeconfig: Path) -> tuple[Json, Json]:
    config = yaml.safe_load(kubeconfig.read_text())
    contexts = {c["name"]: c["context"] for c in config["contexts"]}
    context = contexts[config["current-context"]]
    clusters = {c["name"]: c["cluster"] for c in config["clusters"]}
    users = {u["name"]: u["user"] for u in config["users"]}
    return clusters[context["cluster"]], users[context["user"]]


def _tls(authority: bytes, certificate: bytes | None, key: bytes | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=authority.decode())
    if certificate and key:
        # ssl loads key pairs from files only; this one has mode 0600 and is deleted at once.
        with tempfile.NamedTemporaryFile() as pair:
            pair.write(certificate + b"\n" + key)
            pair.flush()
            context.load_cert_chain(pair.name)
    return context


def _pem(user: Json, name: str) -> bytes | None:
    return base64.b64decode(user[name]) if name in user else None
