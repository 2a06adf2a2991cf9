"""The run page in a headless Chromium: what is on screen, live updates, keyboard, width, dark mode.

Skipped without a Chromium: install Debian's `chromium`, or name the program in $CHROMIUM.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn

from infra.domain import naming
from ops.objects import Json
from ops.ui.command import _listen, _opened
from ops.ui.server import create_app
from ops.ui.source import Source
from tests.unit.ops.browser import DEADLINE_S, Tab, find_chromium, open_tab
from tests.unit.ops.run_fixtures import condition
from tests.unit.ops.ui_world import KEY, LOG, RoleCluster, pod_of, workload_of, world

PROGRAM = find_chromium()
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no chromium on PATH or in $CHROMIUM")
NEXT = "/runs/team-research/research-next-v1-aaaaaaaa"
MODEL = "/runs/team-research/research-model-v2-aaaaaaaa"


@pytest.fixture
def items() -> dict[str, list[Json]]:
    return world()


@pytest.fixture
def address(items: dict[str, list[Json]]) -> Iterator[str]:
    """The page over a fake cluster."""
    cluster = RoleCluster("research", "researcher", items)
    cluster.texts["worker-0-0-x/log"] = LOG
    namespace = naming.namespace("research")
    source = Source(lambda: cluster, lambda _cluster, read: read(namespace))  # type: ignore[arg-type, return-value]
    listener = _listen(0)
    config = uvicorn.Config(
        create_app(source, KEY), log_level="error", lifespan="off", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    thread.join(DEADLINE_S)
    listener.close()


@pytest.fixture
def tab(tmp_path: Path, address: str) -> Iterator[Tab]:
    assert PROGRAM
    with open_tab(PROGRAM, tmp_path / "profile") as found:
        found.open(f"{address}/login?key={KEY}")
        found.wait_for("location.pathname === '/' && document.readyState === 'complete'")
        yield found


def test_the_file_of_open_leads_to_the_page(
    tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert PROGRAM
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    with _opened(f"{address}/login?key={KEY}"), open_tab(PROGRAM, tmp_path / "profile") as tab:
        tab.open(opened[0])
        tab.wait_for(f"location.href === '{address}/' && document.readyState === 'complete'")
        assert "research-model" in tab.text()
        assert tab.errors == []


def test_a_run_is_followed_from_queued_to_done(
    tab: Tab, address: str, items: dict[str, list[Json]]
) -> None:
    tab.open(f"{address}{NEXT}")
    assert "queued 1 of 1" in tab.text() and "insufficient quota" in tab.text()
    run = next(
        one for one in items["jobsets"] if one["metadata"]["name"].startswith("research-next")
    )
    waiting = next(
        one
        for one in items["workloads"]
        if one["metadata"]["name"].endswith(run["metadata"]["name"])
    )
    admitted = [condition("QuotaReserved"), condition("Admitted")]
    items["workloads"][items["workloads"].index(waiting)] = workload_of(
        run, *admitted, flavor="spot"
    )
    items["pods"] += [pod_of(run, rank, f"spot-{rank}") for rank in (0, 1)]
    tab.wait_for("document.querySelector('.lead .state').innerText === 'running'")
    tab.wait_for("document.querySelector('#summary').innerText.includes('120 of 1000')")
    tab.wait_for("document.querySelector('[data-curve=loss]').dataset.points === '2'")
    run["status"] = {"restarts": 1, "restartsCountTowardsMax": 0}
    tab.wait_for("document.querySelector('#time').innerText.includes('restarted 1 time')")
    run["status"]["conditions"] = [condition("Completed")]
    tab.wait_for("document.querySelector('.lead .state').innerText === 'finished'")
    assert tab.errors == []


def test_charts_logs_and_the_strangers_answers_are_on_screen(tab: Tab, address: str) -> None:
    tab.open(f"{address}{MODEL}")
    tab.wait_for("document.querySelector('[data-curve=loss] canvas')")
    tab.wait_for("document.querySelector('#log-lines').innerText.includes('step 120/1000')")
    tab.wait_for("document.querySelector('#connection').innerText === 'live'")
    told = tab.text()
    for answer in (
        "training",  # Is it healthy?
        "7 min 20 s, about 20",  # When will it end?
        "Cost so far $",  # What did it cost?
        "Why it is running",  # Why is it in this state?
        "Goodput by cause is not known",  # What did the reclaim cost?
        "Which rank is slow is not known without metrics",
        "optimizer.learning_rate 0.001 0.002",  # What changed?
        "/checkpoints/research-model-v2-aaaaaaaa/checkpoints",  # Where are the checkpoints?
    ):
        assert answer in told, answer
    tab.value("document.querySelectorAll('a.log-of')[1].click()")
    tab.wait_for("document.querySelector('#log-lines').innerText.includes('worker-0-1-x')")
    assert tab.errors == []


@pytest.mark.parametrize("path", ["/", MODEL, "/queues", "/nodes"])
def test_a_page_is_readable_at_phone_width_in_both_schemes(
    tab: Tab, address: str, path: str
) -> None:
    tab.resize(390, 844)
    colors = set()
    for scheme in ("light", "dark"):
        tab.prefer(scheme)
        tab.open(f"{address}{path}")
        assert tab.value("document.documentElement.scrollWidth") <= 390
        colors.add(tab.value("getComputedStyle(document.body).backgroundColor"))
    assert len(colors) == 2


def test_a_run_is_opened_with_the_keyboard(tab: Tab) -> None:
    for _ in range(40):
        tab.press("Tab", 9)
        if str(tab.value("document.activeElement.href")).endswith(MODEL):
            break
    else:
        pytest.fail("the link to the run was not reached with the Tab key")
    outline = tab.value("getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"
    tab.press("Enter", 13, "\r")
    tab.wait_for(f"location.pathname === {MODEL!r}")
