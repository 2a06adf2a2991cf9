"""Dashboards as data; only `build.py` uses Grafana's SDK."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from infra.observability.dashboards.costs import COSTS
from infra.observability.dashboards.fleet import FLEET
from infra.observability.dashboards.model import RUN_UID, Dashboard
from infra.observability.dashboards.run import RUN
from infra.observability.dashboards.spot import SPOT
from infra.observability.dashboards.team import TEAM

DASHBOARDS: Final[Mapping[str, Dashboard]] = {
    "fleet": FLEET,
    "team": TEAM,
    "run": RUN,
    "spot": SPOT,
    "costs": COSTS,
}
"""By name, a DNS label."""


def rendered() -> dict[str, str]:
    """Return the JSON of every dashboard by its name. Loads the SDK, which is slow to import."""
    from infra.observability.dashboards.build import as_json

    return {name: as_json(dashboard) for name, dashboard in DASHBOARDS.items()}


def run_url(grafana: str, run_id: str) -> str:
    """Return the URL of a run's dashboard; `grafana` is Grafana's external URL."""
    return f"{grafana.rstrip('/')}/d/{RUN_UID}?var-run_id={run_id}"
