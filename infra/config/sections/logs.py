"""Logs of runs: one destination and its shipper."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from infra.addons.fluent_bit import CloudWatch, Destination, Endpoint, FluentBitArgs, Loki
from infra.config.aws_types import LogDays
from infra.config.errors import ConfigIssue, invalid
from infra.config.partial import UNKNOWN, Check, PartialStack
from infra.config.types import DnsLabel, Str, StrictModel
from infra.domain.pools import NodePool

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


_PLACES: Final = ("cloudwatch", "loki")


def _shipper(stack: PartialStack) -> Any:
    section = (stack.operators or {}).get("fluentBit")
    return section.get("provided") if isinstance(section, dict) else None


def check_single_log_destination(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Require one destination; CloudWatch only on EKS, whose pods have a role for it."""
    section = stack.raw.get("logs")
    if not isinstance(section, dict):
        return
    named = [place for place in _PLACES if section.get(place) is not None]
    if len(named) != 1:
        yield ConfigIssue(
            path="logs",
            code="log-destination",
            problem=f"{' and '.join(named)} are set" if named else "no destination is set",
            valid="exactly one of cloudwatch and loki is required",
            action="remove the others" if named else "add one, or remove logs",
        )
    elif named == ["cloudwatch"] and stack.provider == "existing":
        yield ConfigIssue(
            path="logs.cloudwatch",
            code="aws-only",
            problem="cloudwatch requires a cluster on AWS",
            valid="must be loki where cluster.provider is existing",
            action="use loki",
        )


def check_log_shipper(stack: PartialStack) -> Iterator[ConfigIssue]:
    """Require a shipper for a destination, and a destination for a shipper."""
    if not isinstance((stack.operators or {"fluentBit": UNKNOWN}).get("fluentBit"), dict | None):
        return  # The operator is invalid, which is reported.
    provided = _shipper(stack)
    if stack.raw.get("logs") is not None and provided is not False:
        yield ConfigIssue(
            path="logs",
            code="log-shipper-missing",
            problem="no log shipper is installed",
            valid="requires operators.fluentBit: {provided: false}",
            action="add that to operators, or remove logs",
        )
    elif stack.raw.get("logs") is None and provided is False and stack.provider == "existing":
        yield ConfigIssue(
            path="logs",
            code="log-destination",
            problem="missing, but operators.fluentBit is installed",
            valid="fluentBit requires a destination: loki",
            action="add it, or remove fluentBit from operators",
        )


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


CHECKS: Final[tuple[Check, ...]] = (
    check_single_log_destination,
    check_log_shipper,
)
