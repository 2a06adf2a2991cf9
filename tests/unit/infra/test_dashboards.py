"""What Grafana requires of the dashboards, and what makes their changes readable."""

from __future__ import annotations

import json
import re
from collections import Counter

import pytest

from infra.observability import dashboards
from tests.unit.infra.dashboard_files import DOCUMENTS, Document, panels

ALL = pytest.mark.parametrize("document", DOCUMENTS.values(), ids=DOCUMENTS)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_file_is_in_the_form_of_the_documented_command(name: str) -> None:
    """Sorted keys, without what Grafana changes at every export: docs/observability.md."""
    form = json.dumps(DOCUMENTS[name], indent=1, sort_keys=True, ensure_ascii=False)
    assert dashboards.texts()[name] == f"{form}\n"
    assert not {"id", "version"} & DOCUMENTS[name].keys()


def test_dashboards_have_urls_of_their_own() -> None:
    uids = [document["uid"] for document in DOCUMENTS.values()]
    assert len(set(uids)) == len(uids) and DOCUMENTS["run"]["uid"] == dashboards.RUN_UID
    found = dashboards.run_url("https://grafana.example.com/", "hello-v1-0a1b2c3d")
    assert found == "https://grafana.example.com/d/trainyard-run?var-run_id=hello-v1-0a1b2c3d"


@ALL
def test_panels_have_unique_ids_and_titles_and_do_not_overlap(document: Document) -> None:
    for key in ("id", "title"):
        assert max(Counter(panel[key] for panel in panels(document)).values()) == 1
    taken: Counter[tuple[int, int]] = Counter()
    for panel in document["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24, panel["title"]
        taken.update(
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        )
    assert max(taken.values()) == 1, "two panels overlap"


@ALL
def test_panels_have_a_description_a_unit_and_the_chosen_data_source(document: Document) -> None:
    for panel in panels(document):
        assert panel["title"] and panel["description"].endswith(".")
        assert panel["fieldConfig"]["defaults"]["unit"] and panel["targets"]
        for part in (panel, *panel["targets"]):
            assert part["datasource"] == {"type": "prometheus", "uid": "${source}"}, panel["title"]


@ALL
def test_only_defined_variables_are_used(document: Document) -> None:
    variables = {one["name"] for one in document["templating"]["list"]}
    assert "source" in variables
    for panel in panels(document):
        for target in panel["targets"]:
            used = set(re.findall(r"\$(\w+)", target["expr"]))
            assert used - {"1", "__range"} <= variables, panel["title"]


def test_rows_with_a_run_link_to_its_dashboard() -> None:
    panel = next(p for p in panels(DOCUMENTS["team"]) if p["title"] == "GPU utilisation")
    assert [link["url"] for link in panel["fieldConfig"]["defaults"]["links"]] == [
        "/d/trainyard-run?var-run_id=${__field.labels.run_id}&${__url_time_range}"
    ]
