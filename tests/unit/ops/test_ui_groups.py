"""The run page of a run with replica groups."""

from __future__ import annotations

import re

import pytest
from starlette.testclient import TestClient

from infra.domain import naming
from ops.ui.server import create_app
from ops.ui.source import Source
from tests.unit.ops.group_fixtures import admitted, gang, pod_of, queued, started
from tests.unit.ops.run_fixtures import NAMESPACE, RUN_ID
from tests.unit.ops.ui_world import KEY, LOG, RoleCluster, world

RUN = f"/runs/{NAMESPACE}/{RUN_ID}"


@pytest.fixture
def page() -> TestClient:
    """A run of three groups beside others: one trains on spot, one joins, one waits."""
    items = world()
    items["jobsets"] += [started(0), started(1), gang(2)]
    items["workloads"] += [admitted(0), admitted(1, "on-demand"), queued(2)]
    items["pods"] += [pod_of(0), pod_of(1, ready=False)]
    cluster = RoleCluster("research", "researcher", items)
    for number in (0, 1):
        cluster.texts[f"hello-g{number}/log"] = LOG.replace("step", f"group {number} step")
    source = Source(lambda: cluster, lambda _, read: read(naming.namespace("research")))  # type: ignore[arg-type, return-value]
    found = TestClient(create_app(source, KEY), base_url="http://127.0.0.1:8642")
    found.get(f"/login?key={KEY}", follow_redirects=False)
    return found


def text_of(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))


def test_a_run_with_groups_is_one_row(page: TestClient) -> None:
    told = text_of(page.get("/").text)
    assert told.count(RUN_ID) == 1
    assert "1/3 groups" in told
    assert "research-model-v2-aaaaaaaa" in told and told.count(" groups") == 1


def test_its_page_shows_the_groups_and_the_group_of_each_rank(page: TestClient) -> None:
    told = text_of(page.get(RUN).text)
    assert "1 of 3 train; at least 1 needed" in told
    assert re.search(r"0 running spot 1/1", told)
    assert re.search(r"1 starting on-demand 0/1", told)
    assert re.search(r"2 queued", told)
    html = page.get(RUN).text
    assert 'data-rank="0" data-group="1"' in html
    alone = page.get("/runs/team-research/research-model-v2-aaaaaaaa").text
    assert "data-group" not in alone and 'name="group"' not in alone


def test_the_log_is_the_leaders_or_that_of_a_group(
    page: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Source, "is_over", lambda *_: True)
    asked = f"/log?namespace={NAMESPACE}&run={RUN_ID}&rank=0&group="
    assert "group 0 step 120" in page.get(asked).text
    assert "group 1 step 120" in page.get(f"{asked}1").text
    assert "has ended; its pods are deleted" in page.get(f"{asked}2").text
    assert "group: got x; expected a whole number" in page.get(f"{asked}x").text
