"""HTTP client of the API server: pooled connections, JSON, retries, one-line errors."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from urllib.parse import urlencode

import urllib3
from kubernetes import client

from sandbox.provider.errors import ApiError, Unreachable
from sandbox.provider.objects import Object

CONNECT_SECONDS = 5.0
RETRY_SECONDS = 10.0
"""How long a request is retried while the server is restarting or throttles."""
POOL_SIZE = 64
_RETRYABLE_STATUS = frozenset({429, 502, 503, 504})

Warn = Callable[[str], None]


class Connection:
    """One API server. Thread-safe. `timeout`: of one request, in seconds."""

    def __init__(self, configuration: client.Configuration, timeout: float) -> None:
        configuration.connection_pool_maxsize = POOL_SIZE
        self._configuration = configuration
        self._pool = client.ApiClient(configuration).rest_client.pool_manager
        self._host = configuration.host.rstrip("/")
        self._timeout = urllib3.Timeout(connect=min(CONNECT_SECONDS, timeout), read=timeout)
        self._closed = threading.Event()

    def close(self) -> None:
        """Stop retrying requests."""
        self._closed.set()

    def get(self, path: str, query: Mapping[str, str] | None = None) -> Object:
        return self.request("GET", path, query)

    def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Object | None = None,
        content_type: str = "application/json",
        warn: Warn | None = None,
    ) -> Object:
        """Send a request; retry for up to `RETRY_SECONDS` while the server is unavailable.

        All requests sent here are idempotent: reads, server-side applies and deletions.
        Raises ApiError or Unreachable.
        """
        headers = {"Accept": "application/json", "User-Agent": "trainyard-provider"}
        if body is not None:
            headers["Content-Type"] = content_type
        encoded = None if body is None else json.dumps(body).encode()
        deadline = time.monotonic() + RETRY_SECONDS
        pause = 0.1
        while True:
            try:
                response = self._send(method, path, query, headers, encoded)
            except (urllib3.exceptions.HTTPError, OSError) as error:
                if time.monotonic() + pause > deadline or self._closed.wait(pause):
                    raise Unreachable(_describe_failure(self._host, error)) from error
            else:
                if response.status not in _RETRYABLE_STATUS or time.monotonic() + pause > deadline:
                    return _answer(response, warn)
                if self._closed.wait(pause):
                    return _answer(response, warn)
            pause = min(pause * 2, 2.0)

    def probe(self) -> None:
        """Request the server's version once, without retries. Raises ApiError or Unreachable."""
        try:
            response = self._send("GET", "/version", None, {"Accept": "application/json"}, None)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise Unreachable(_describe_failure(self._host, error)) from error
        _answer(response, None)

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        headers: Mapping[str, str],
        body: bytes | None,
    ) -> urllib3.BaseHTTPResponse:
        token = self._configuration.auth_settings().get("BearerToken")
        authorization = {"Authorization": token["value"]} if token and token["value"] else {}
        url = f"{self._host}{path}?{urlencode(query)}" if query else self._host + path
        response: urllib3.BaseHTTPResponse = self._pool.request(
            method,
            url,
            body=body,
            headers={**headers, **authorization},
            timeout=self._timeout,
            retries=False,
        )
        return response


def _answer(response: urllib3.BaseHTTPResponse, warn: Warn | None) -> Object:
    if warn is not None:
        for text in _warnings(response.headers.getlist("Warning")):
            warn(text)
    try:
        decoded = json.loads(response.data) if response.data else {}
    except ValueError:
        decoded = {"message": response.data.decode(errors="replace")[:500]}
    if response.status >= 400:
        raise ApiError(response.status, decoded)
    result: Object = decoded
    return result


def _warnings(headers: list[str]) -> list[str]:
    """Return the texts of `Warning: 299 - "text"` headers."""
    texts = [header.partition('"')[2].rpartition('"')[0] for header in headers]
    return [text.replace('\\"', '"') for text in texts if text]


def _describe_failure(host: str, error: Exception) -> str:
    reason = getattr(error, "reason", None) or error
    text = str(reason).rpartition(": ")[2] or type(error).__name__
    return f"no answer from the API server at {host}: {text}"
