"""What must lie there before anything watches: Prometheus' files and its token."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from infra.observability.rules import rule_file
from sandbox.monitoring import processes, rbac, scrape_config
from sandbox.services import Setting

RENEW_AFTER_S = rbac.TOKEN_HOURS * 3600 * 11 / 12


def files(at: Setting) -> dict[str, dict[str, Any]]:
    """Configuration files by name."""
    read = scrape_config.Files(ca=at.ca, token=token(at), rules=Path(at.config(processes.RULES)))
    return {
        processes.CONFIGURATION: scrape_config.document(at.ports, read),
        processes.RULES: _hastened(rule_file(scrape_config.facts())),
    }


def _hastened(rules: dict[str, Any]) -> dict[str, Any]:
    """The same rules, looked at as often as a sandbox is asked. How long an alert waits stays the same."""
    groups = [group | {"interval": scrape_config.EVERY} for group in rules["groups"]]
    return {"groups": groups}


def token(at: Setting) -> Path:
    """The file of Prometheus' token."""
    return at.state.pki / processes.TOKEN


def needs_token(at: Setting) -> bool:
    """Whether there is none, or one that expires before long."""
    try:
        return time.time() - token(at).stat().st_mtime > RENEW_AFTER_S
    except OSError:
        return True
