"""Logs of runs: one destination and its shipper."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from infra.addons.fluent_bit import CloudWatch, Destination, Endpoint, FluentBitArgs, Loki
from infra.domain.pools import NodePool
from infra.sections.aws_types import LogDays
from infra.sections.errors import invalid
from infra.sections.types import DnsLabel, Str, StrictModel

_PORT: Final = {"https": 443, "http": 80}


_HOST: Final = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


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
    """A Secret in the namespace `logging` with the keys `username` and `password`. Default: none is asked
    for."""
    tenant: DnsLabel | None = None
    """Tenant, sent as X-Scope-OrgID, such as training. Default: none."""

    @property
    def endpoint(self) -> Endpoint:
        """Return the endpoint for Fluent Bit."""
        stack = urlsplit(self.url)
        return Endpoint(
            host=stack.hostname or "",
            port=stack.port or _PORT[stack.scheme],
            path=stack.path.rstrip("/"),
            tls=stack.scheme == "https",
            credentials=self.credentials or "",
        )


class LogsConfig(StrictModel):
    """Destination of logs: exactly one. Default: CloudWatch on AWS, elsewhere none."""

    cloudwatch: CloudWatchConfig | None = None
    """CloudWatch Logs, on AWS."""
    loki: LokiConfig | None = None
    """A Loki server."""


def group(section: LogsConfig | None) -> CloudWatchConfig | None:
    """Return the log group of a shipper on AWS; None where logs go elsewhere."""
    return section.cloudwatch if section else CloudWatchConfig()


def shipper(
    section: LogsConfig | None,
    *,
    cloudwatch: CloudWatch | None,
    namespaces: tuple[str, ...],
    pools: Iterable[NodePool],
    monitored: bool,
) -> FluentBitArgs:
    """Return the arguments of the release; `cloudwatch` is the log group that the stack creates, if any."""
    tolerations = [toleration for pool in pools for toleration in pool.tolerations()]
    return FluentBitArgs(
        namespaces=namespaces,
        destination=cloudwatch or _destination(section),
        tolerations=tuple(t for i, t in enumerate(tolerations) if t not in tolerations[:i]),
        monitored=monitored,
    )


def _destination(section: LogsConfig | None) -> Destination:
    assert section is not None and section.loki is not None
    return Loki(endpoint=section.loki.endpoint, tenant=section.loki.tenant or "")
