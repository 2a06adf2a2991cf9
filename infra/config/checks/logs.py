"""Logs of runs: one place that takes them, and somebody who ships them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from infra.config.checks.partial import UNKNOWN, PartialStack
from infra.config.errors import ConfigIssue

_PLACES: Final = ("cloudwatch", "loki", "http")


def _shipper(parts: PartialStack) -> Any:
    section = (parts.operators or {}).get("fluentBit")
    return section.get("provided") if isinstance(section, dict) else None


def check_single_log_destination(parts: PartialStack) -> Iterator[ConfigIssue]:
    """Require one destination; CloudWatch only on EKS, whose pods have a role for it."""
    section = parts.raw.get("logs")
    if not isinstance(section, dict):
        return
    named = [place for place in _PLACES if section.get(place) is not None]
    if len(named) != 1:
        yield ConfigIssue(
            path="logs",
            code="log-destination",
            problem=f"{' and '.join(named)} are set" if named else "no destination is set",
            valid="exactly one of cloudwatch, loki and http is required",
            action="remove the others" if named else "add one, or remove logs",
        )
    elif named == ["cloudwatch"] and parts.provider == "existing":
        yield ConfigIssue(
            path="logs.cloudwatch",
            code="aws-only",
            problem="cloudwatch requires a cluster on AWS",
            valid="must be loki or http where cluster.provider is existing",
            action="choose one of them",
        )


def check_log_shipper(parts: PartialStack) -> Iterator[ConfigIssue]:
    """Require a shipper for a destination, and a destination for a shipper."""
    if not isinstance((parts.operators or {"fluentBit": UNKNOWN}).get("fluentBit"), dict | None):
        return  # The operator is invalid, which is reported.
    provided = _shipper(parts)
    if parts.raw.get("logs") is not None and provided is not False:
        yield ConfigIssue(
            path="logs",
            code="log-shipper-missing",
            problem="no log shipper is installed",
            valid="requires operators.fluentBit: {provided: false}",
            action="add that to operators, or remove logs",
        )
    elif parts.raw.get("logs") is None and provided is False and parts.provider == "existing":
        yield ConfigIssue(
            path="logs",
            code="log-destination",
            problem="missing, but operators.fluentBit is installed",
            valid="fluentBit requires a destination: loki or http",
            action="add one, or remove fluentBit from operators",
        )
