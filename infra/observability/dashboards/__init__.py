"""Grafana's dashboards: the JSON files of this folder, loaded as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent
RUN_UID: Final = "trainyard-run"
"""The `uid` of run.json, part of its URL."""


def texts() -> dict[str, str]:
    return {file.stem: file.read_text(encoding="utf-8") for file in sorted(FOLDER.glob("*.json"))}


def run_url(grafana: str, run_id: str) -> str:
    """Return the URL of a run's dashboard; `grafana` is Grafana's external URL."""
    return f"{grafana.rstrip('/')}/d/{RUN_UID}?var-run_id={run_id}"
