"""Logs of runs: one destination and its shipper."""

from __future__ import annotations

import re
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from infra.sections.aws import LogDays
from infra.sections.errors import invalid
from infra.sections.types import DnsLabel, Str, StrictModel

_PORT: Final = {"https": 443, "http": 80}


_HOST: Final = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


_SERVICE: Final = re.compile(r"[^.]+\.([^.]+)\.svc(\.cluster\.local)?")


_PATH: Final = re.compile(r"(/[\w./-]*)?")


def _url(value: str) -> str:
    stack = urlsplit(value)
    host = stack.hostname or ""
    inside = host.endswith((".svc", ".svc.cluster.local"))
    sound = (
        stack.scheme in _PORT
        and _HOST.fullmatch(host)
        and _PATH.fullmatch(stack.path)
        and not (stack.query or stack.fragment or stack.username or stack.password)
    )
    try:
        _ = stack.port
    except ValueError:
        sound = None
    if not sound:
        raise invalid(
            "url",
            "must be https://HOST[:PORT][/PATH] (name a Secret in credentials for user and password)",
        )
    if stack.scheme == "http" and not inside:
        raise invalid(
            "plaintext-url",
            "must be https, or http://SERVICE.NAMESPACE.svc in this cluster",
            "use https",
            "sends logs in plain text",
        )
    return value


class CloudWatchConfig(StrictModel):
    """The cluster's log group in CloudWatch Logs, encrypted with the stack's key."""

    retention_days: LogDays = 90
    """Days that logs are kept."""


class LokiConfig(StrictModel):
    """Loki; its URL without /loki/api/v1/push."""

    url: Annotated[Str, AfterValidator(_url)] = Field(
        description="a URL such as https://logs.example.com"
    )
    """URL of the endpoint."""
    credentials: DnsLabel | None = None
    """Secret in `logging` with the keys `username` and `password`. Default: none."""
    tenant: DnsLabel | None = None
    """Tenant, sent as X-Scope-OrgID, such as training. Default: none."""

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        found = urlsplit(self.url)
        return found.port or _PORT[found.scheme]

    @property
    def path(self) -> str:
        """Empty, or with a leading slash."""
        return urlsplit(self.url).path.rstrip("/")

    @property
    def tls(self) -> bool:
        return urlsplit(self.url).scheme == "https"

    @property
    def namespace(self) -> str:
        """Namespace of a host SERVICE.NAMESPACE.svc; empty: outside of the cluster."""
        inside = _SERVICE.fullmatch(self.host)
        return inside[1] if inside else ""


class LogsConfig(StrictModel):
    """Destination of logs: exactly one. Default: CloudWatch on AWS, elsewhere none."""

    cloudwatch: CloudWatchConfig | None = None
    """CloudWatch Logs, on AWS."""
    loki: LokiConfig | None = None
    """A Loki server."""
