"""Logs of runs: one place that takes them, and somebody who ships them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from infra.config.checks.parts import Parts
from infra.config.mistakes import Mistake

_PLACES: Final = ("cloudwatch", "loki", "http")


def _shipper(parts: Parts) -> Any:
    operators = parts.raw.get("operators")
    section = operators.get("fluentBit") if isinstance(operators, dict) else None
    return section.get("provided") if isinstance(section, dict) else None


def one_place(parts: Parts) -> Iterator[Mistake]:
    """Logs go to one place; to CloudWatch from EKS only, whose pods alone have a role for it."""
    section = parts.raw.get("logs")
    if not isinstance(section, dict):
        return
    named = [place for place in _PLACES if section.get(place) is not None]
    if len(named) != 1:
        yield Mistake(
            path="logs",
            got=" and ".join(named) or "no place",
            allowed="one of cloudwatch, loki and http",
            remedy="remove the others" if named else "add one, or remove logs",
        )
    elif named == ["cloudwatch"] and parts.provider == "existing":
        yield Mistake(
            path="logs.cloudwatch",
            got="what only a cluster on AWS has",
            allowed="loki or http where cluster.provider is existing",
            remedy="name one of them",
        )


def shipper(parts: Parts) -> Iterator[Mistake]:
    """A place is of use with a shipper that the stack installs, and that one needs a place."""
    provided = _shipper(parts)
    if parts.raw.get("logs") is not None and provided is not False:
        yield Mistake(
            path="logs",
            got="a place for logs that nobody ships",
            allowed="it with operators.fluentBit: {provided: false}",
            remedy="add that to operators, or remove logs",
        )
    elif parts.raw.get("logs") is None and provided is False and parts.provider == "existing":
        yield Mistake(
            path="logs",
            got="nothing",
            allowed="loki or http, for fluentBit has nowhere to ship to",
            remedy="add one, or remove fluentBit from operators",
        )
