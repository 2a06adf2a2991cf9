"""The Prometheus rule file of a stack."""

from __future__ import annotations

from typing import Any

from infra.observability import alerts, recording
from infra.observability.recording import Facts


def rule_file(facts: Facts | None = None, runbook_base: str = "") -> dict[str, Any]:
    """Return the rule file: recording rules first, then alerts."""
    return {"groups": [*recording.groups(facts), *alerts.groups(runbook_base)]}
