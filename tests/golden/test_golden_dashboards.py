"""Committed dashboard JSON, and what Grafana requires."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from infra.observability.dashboards import DASHBOARDS, rendered, run_url
from infra.observability.dashboards.model import Unit

FOLDER = Path(__file__).parent / "dashboards"


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    return rendered()


@pytest.fixture(scope="module")
def documents(texts: dict[str, str]) -> dict[str, dict[str, Any]]:
    return {name: json.loads(text) for name, text in texts.items()}


@pytest.mark.parametrize("name", DASHBOARDS)
def test_each_dashboard_matches_the_committed_file(
    name: str, texts: dict[str, str], request: pytest.FixtureRequest
) -> None:
    path = FOLDER / f"{name}.json"
    if request.config.getoption("--update-golden"):
        path.write_text(texts[name])
    assert path.read_text() == texts[name], "pytest tests/golden --update-golden shows the change"


@pytest.mark.parametrize("name", DASHBOARDS)
def test_sdk_round_trips_every_dashboard(name: str, texts: dict[str, str]) -> None:
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins
    from grafana_foundation_sdk.models.dashboard import Dashboard

    register_default_plugins()
    again = Dashboard.from_json(json.loads(texts[name]))
    assert json.loads(json.dumps(again, cls=JSONEncoder)) == json.loads(texts[name])


@pytest.mark.parametrize("name", DASHBOARDS)
def test_panels_have_unique_ids_and_do_not_overlap(
    name: str, documents: dict[str, dict[str, Any]]
) -> None:
    panels = documents[name]["panels"]
    assert max(Counter(panel["id"] for panel in panels).values()) == 1
    taken: Counter[tuple[int, int]] = Counter()
    for panel in panels:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24, panel["title"]
        taken.update(
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        )
    assert max(taken.values()) == 1, "two panels overlap"


def test_panels_have_a_description_and_a_unit(
    documents: dict[str, dict[str, Any]],
) -> None:
    for document in documents.values():
        for panel in document["panels"]:
            if panel["type"] == "row":
                continue
            assert panel["title"] and panel["description"].endswith(".")
            assert panel["fieldConfig"]["defaults"]["unit"] and panel["targets"]
            assert panel["datasource"]["uid"] == "${source}"


def test_titles_are_unique_within_a_dashboard() -> None:
    for dashboard in DASHBOARDS.values():
        titles = [panel.title for panel in dashboard.panels]
        assert sorted(set(titles)) == sorted(titles)


def test_units_are_known_to_grafana() -> None:
    from grafana_foundation_sdk.models import units

    known = {value for value in vars(units).values() if isinstance(value, str)}
    assert {unit.value for unit in Unit} - known == {Unit.TOKENS_PER_SECOND.value}


def test_expressions_use_only_defined_dashboard_variables() -> None:
    for dashboard in DASHBOARDS.values():
        known = {f"${variable.name}" for variable in dashboard.variables} | {"$__range"}
        for panel in dashboard.panels:
            for query in panel.queries:
                used = set(re.findall(r"\$\w+", query.expression))
                assert used - {"$1"} <= known, panel.title


def test_rows_with_a_run_link_to_its_dashboard(documents: dict[str, dict[str, Any]]) -> None:
    panel = next(p for p in documents["team"]["panels"] if p["title"] == "GPU utilisation")
    links = panel["fieldConfig"]["defaults"]["links"]
    assert [link["url"] for link in links] == [
        "/d/trainyard-run?var-run_id=${__field.labels.run_id}&${__url_time_range}"
    ]


def test_run_dashboard_has_a_url() -> None:
    found = run_url("https://grafana.example.com/", "hello-v1-0a1b2c3d")
    assert found == "https://grafana.example.com/d/trainyard-run?var-run_id=hello-v1-0a1b2c3d"


def test_the_sdk_is_loaded_only_when_a_dashboard_is_rendered() -> None:
    program = (
        "import sys, infra.observability.dashboards, infra.observability.rules;"
        "sys.exit(any(name.startswith('grafana') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
