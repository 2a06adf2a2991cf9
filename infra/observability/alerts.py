"""The alerts of alerts.yaml, with owner, severity and runbook.

Each has a section of its name in docs/runbooks.md, an owner (`platform` operates the stack, `team` the training)
and a severity: `page` needs a response at any hour, `ticket` during working hours.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from infra.domain import naming
from infra.observability import dcgm, recording, series
from infra.observability.log_patterns import COUNTED
from infra.observability.recording import INTERVAL, Facts, Group

RUNBOOKS: Final = "docs/runbooks.md"
TEAM: Final = "team"
"""Owner of alerts on training."""

_FILE: Final = yaml.safe_load(Path(__file__).with_name("alerts.yaml").read_text("utf-8"))
THRESHOLDS: Final[Mapping[str, Any]] = _FILE["thresholds"]
"""By name."""
_UNWATCHED: Final = (
    *(series.TRAINER_JOB, series.CULPRITS_JOB),
    *(series.COSTS_JOB, series.STEERING_JOB),
)
_NAMES: Final[Mapping[str, Any]] = {
    **THRESHOLDS,
    **_FILE["parts"],
    "team_namespace": naming.namespace("(.+)"),
    "timeout_patterns": "|".join(COUNTED),
    "application_xids": "|".join(map(str, dcgm.APPLICATION_XIDS)),
    "watched_jobs": "|".join(job for job in series.JOBS if job not in _UNWATCHED),
}


def expanded(expression: str) -> str:
    """Return the expression with a value for each `$name`. Raises KeyError if a name is unknown."""
    return re.sub(r"\$([a-z_]+)", lambda found: expanded(str(_NAMES[found[1]])), expression)


@dataclass(frozen=True, kw_only=True)
class Alert:
    name: str
    owner: str
    """`platform` or `team`."""
    severity: str
    """`page` or `ticket`."""
    written: Mapping[str, Any]
    """The rule as in a rule file, without the runbook."""

    @property
    def runbook(self) -> str:
        """The runbook in this repository: path and anchor."""
        return f"{RUNBOOKS}#{self.name.lower()}"

    def rule(self, runbook_base: str = "") -> dict[str, Any]:
        """Return the rule as in a rule file; `runbook_base` is a URL that precedes the runbook's path."""
        base = f"{runbook_base.rstrip('/')}/" if runbook_base else ""
        annotations = {**self.written["annotations"], "runbook": f"{base}{self.runbook}"}
        return {**self.written, "annotations": annotations}


def _alert(written: Mapping[str, Any]) -> Alert:
    rule = {**written, "expr": expanded(written["expr"])}
    return Alert(name=written["alert"], **written["labels"], written=rule)


_GROUPS: Final = {group["name"]: tuple(map(_alert, group["rules"])) for group in _FILE["groups"]}
_RANKS: Final = "trainyard-alerts-ranks"

ALERTS: Final = tuple(alert for alerts in _GROUPS.values() for alert in alerts)
RANK_ALERTS: Final = tuple(alert.name for alert in _GROUPS[_RANKS])
"""Sent without waiting for others like them."""


def groups(runbook_base: str = "") -> list[Group]:
    return [
        {
            "name": name,
            "interval": series.CULPRITS_INTERVAL if name == _RANKS else INTERVAL,
            "rules": [alert.rule(runbook_base) for alert in alerts],
        }
        for name, alerts in _GROUPS.items()
    ]


def rule_file(facts: Facts | None = None, runbook_base: str = "") -> dict[str, Any]:
    """Return the rule file: recording rules first, then alerts."""
    return {"groups": [*recording.groups(facts), *groups(runbook_base)]}
