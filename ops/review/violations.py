"""Violations of policies, from the event log of a preview: one JSON record per line.

`pulumi preview --json` leaves them out. `--event-log FILE`, which the engine has with PULUMI_DEBUG_COMMANDS=true,
writes every event, violations among them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ops.cluster import ClusterError
from ops.review.steps import Finding

_MANDATORY: Final = "mandatory"
_STACK: Final = "pulumi:pulumi:Stack"
_COLORS: Final = re.compile(r"<\{%.*?%\}>")


def parse(text: str, place: str) -> tuple[Finding, ...]:
    """Return the violations of an event log, those that fail first. Raises ClusterError for other text."""
    try:
        found = list(_violations(text))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ClusterError(
            f"{place}: not an event log; expected what `PULUMI_DEBUG_COMMANDS=true pulumi preview --event-log"
            " FILE` writes; make the preview again"
        ) from None
    return tuple(sorted(found, key=lambda one: (not one.fails, one.policy, one.resource)))


def _violations(text: str) -> Iterator[Finding]:
    seen: set[Finding] = set()
    for line in text.splitlines():
        event = json.loads(line).get("policyEvent") if line.strip() else None
        if event is None:
            continue
        found = _finding(event)
        # A rule may be evaluated for each step of a replacement.
        if found not in seen:
            seen.add(found)
            yield found


def _finding(event: Mapping[str, Any]) -> Finding:
    urn = str(event.get("resourceUrn") or "")
    whole = not urn or urn.split("::")[2] == _STACK
    # The rule's description, then the violation.
    description, _, violation = _COLORS.sub("", str(event["message"])).strip().partition("\n")
    return Finding(
        fails=event.get("enforcementLevel") == _MANDATORY,
        text=" ".join((violation or description).split()),
        policy=str(event["policyName"]),
        resource="" if whole else urn.split("::", 3)[3],
    )
