"""A connection to S3 with credentials from the environment only.

That is Pod Identity (AWS_CONTAINER_CREDENTIALS_FULL_URI), a web identity, or keys in variables: a
training pod must not fall back to its node's role, and a file in a home directory must not decide
whose bucket a run writes to. The endpoint is AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, or AWS's own.
"""

from __future__ import annotations

import os
import threading
from typing import Any, Final

_FROM_ENVIRONMENT: Final = ("env", "assume-role-with-web-identity", "container-role")
_CONNECT_S: Final = 5.0
_DEFAULT_REGION: Final = "us-east-1"


class Connection:
    """One client, created on first use and again when its credentials are rejected.

    Thread-safe; a forked process must create its own.
    """

    def __init__(self, *, answer_s: float, connections: int) -> None:
        self._answer_s = answer_s
        self._connections = connections
        self._lock = threading.Lock()
        self._client: Any = None

    def client(self) -> Any:
        with self._lock:
            if self._client is None:
                self._client = _connect(self._answer_s, self._connections)
            return self._client

    def renew(self, used: Any) -> None:
        """Forget `used`, unless another thread has done so already."""
        with self._lock:
            if self._client is used:
                self._client = None


def _connect(answer_s: float, connections: int) -> Any:
    from botocore.config import Config
    from botocore.session import Session

    nowhere = (None, None, None, None)
    files = dict.fromkeys(("config_file", "credentials_file"), (None, None, os.devnull, None))
    session = Session(session_vars={"profile": nowhere, **files})
    resolver = session.get_component("credential_provider")
    for provider in list(resolver.providers):
        if provider.METHOD not in _FROM_ENVIRONMENT:
            resolver.remove(provider.METHOD)
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    settings = Config(
        connect_timeout=_CONNECT_S,
        read_timeout=answer_s,
        max_pool_connections=connections,
        retries={"total_max_attempts": 1, "mode": "standard"},  # RetryPolicy decides
        tcp_keepalive=True,
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    return session.create_client("s3", region_name=region or _DEFAULT_REGION, config=settings)
