"""The whole rule file of a stack."""

from __future__ import annotations

from typing import Any

from infra.observability import alerts, recording
from infra.observability.recording import Facts


def rule_file(facts: Facts | None = None, runbook_base: str = "") -> dict[str, Any]:
    """All groups, as Prometheus reads a file of rules: recording rules first, then alerts."""
    return {"groups": [*recording.groups(facts), *alerts.groups(runbook_base)]}
