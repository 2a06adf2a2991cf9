"""Where the logs of runs go, in the stack file."""

from __future__ import annotations

import re
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from infra.addons.fluent_bit import Endpoint
from infra.config.errors import invalid
from infra.config.types import DnsLabel, LogDays, Str, StrictModel

_PORT: Final = {"https": 443, "http": 80}
_HOST: Final = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
_PATH: Final = re.compile(r"(/[\w./-]*)?")


def _url(value: str) -> str:
    parts = urlsplit(value)
    host = parts.hostname or ""
    inside = host.endswith((".svc", ".svc.cluster.local"))
    sound = (
        parts.scheme in _PORT
        and _HOST.fullmatch(host)
        and _PATH.fullmatch(parts.path)
        and not (parts.query or parts.fragment or parts.username or parts.password)
    )
    try:
        _ = parts.port
    except ValueError:
        sound = None
    if not sound:
        raise invalid(
            "url",
            "must be https://HOST[:PORT][/PATH] (name a Secret in credentials for user and password)",
        )
    if parts.scheme == "http" and not inside:
        raise invalid(
            "plaintext-url",
            "must be https, or http://SERVICE.NAMESPACE.svc in this cluster",
            "use https",
            "sends logs in plain text",
        )
    return value


class CloudWatchConfig(StrictModel):
    """A log group of the cluster's own in CloudWatch Logs, encrypted with the stack's key."""

    retention_days: LogDays = 90
    """Days that logs are kept."""


class EndpointConfig(StrictModel):
    """A service that takes logs over HTTP."""

    url: Annotated[Str, AfterValidator(_url)] = Field(
        description="a URL such as https://logs.example.com"
    )
    """URL of the endpoint."""
    credentials: DnsLabel | None = None
    """A Secret in the namespace `logging` with the keys `username` and `password`. Default: none is asked
    for."""

    @property
    def endpoint(self) -> Endpoint:
        """Where that is."""
        parts = urlsplit(self.url)
        return Endpoint(
            host=parts.hostname or "",
            port=parts.port or _PORT[parts.scheme],
            path=parts.path.rstrip("/"),
            tls=parts.scheme == "https",
            credentials=self.credentials or "",
        )


class LokiConfig(EndpointConfig):
    """Loki; its URL without /loki/api/v1/push."""

    tenant: DnsLabel | None = None
    """Tenant, sent as X-Scope-OrgID, such as training. Default: none."""


class LogsConfig(StrictModel):
    """One place. Default: on AWS CloudWatch, elsewhere none."""

    cloudwatch: CloudWatchConfig | None = None
    """CloudWatch Logs, on AWS."""
    loki: LokiConfig | None = None
    """A Loki server."""
    http: EndpointConfig | None = None
    """An HTTP endpoint that accepts JSON arrays by POST."""
