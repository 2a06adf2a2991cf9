"""Prometheus' configuration files and token."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from infra.observability.rules import rule_file
from sandbox.monitoring import processes, rbac, scrape_config
from sandbox.services import ClusterSettings

RENEW_AFTER_S = rbac.TOKEN_HOURS * 3600 * 11 / 12


def config_files(settings: ClusterSettings) -> dict[str, dict[str, Any]]:
    """Return configuration documents by file name."""
    read = scrape_config.Files(
        ca=settings.ca, token=token_file(settings), rules=Path(settings.config(processes.RULES))
    )
    return {
        processes.CONFIGURATION: scrape_config.prometheus_config(settings.ports, read),
        processes.RULES: _with_fast_evaluation(rule_file(scrape_config.rule_facts())),
    }


def _with_fast_evaluation(rules: dict[str, Any]) -> dict[str, Any]:
    """Return the rules with the sandbox's evaluation interval; `for` durations stay the same."""
    groups = [group | {"interval": scrape_config.SCRAPE_INTERVAL} for group in rules["groups"]]
    return {"groups": groups}


def token_file(settings: ClusterSettings) -> Path:
    """Return the file of Prometheus' token."""
    return settings.state.pki / processes.TOKEN


def token_is_due(settings: ClusterSettings) -> bool:
    """Whether the token is missing or past 11/12 of its lifetime."""
    try:
        return time.time() - token_file(settings).stat().st_mtime > RENEW_AFTER_S
    except OSError:
        return True
