"""The run page over a faked cluster: what each role sees, what is refused, and one line for each failure."""

from __future__ import annotations

import hashlib
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from infra.domain import naming
from ops import __main__ as front_door
from ops.cluster import Cluster, ClusterError, UnknownCallerError, UnreachableError
from ops.ui import command as ui
from ops.ui.server import create_app
from ops.ui.source import Source
from tests.unit.ops.ui_world import KEY, LOG, RoleCluster, finished_pod_of, world

RUN = "/runs/team-research/research-model-v2-aaaaaaaa"
STATIC = Path(__file__).resolve().parents[3] / "ops" / "ui" / "static"


def in_namespace(team: str) -> Callable[..., Any]:
    return lambda _cluster, read: read(naming.namespace(team))


def client(source: Source, host: str = "127.0.0.1:8642") -> TestClient:
    """A browser that has opened the printed address."""
    found = TestClient(create_app(source, KEY), base_url=f"http://{host}")
    found.get(f"/login?key={KEY}", follow_redirects=False)
    return found


def as_role(team: str, role: str) -> TestClient:
    cluster = RoleCluster(team, role, world())
    cluster.texts["worker-0-0-x/log"] = LOG
    return client(Source(lambda: cluster, in_namespace(team)))  # type: ignore[arg-type, return-value]


@pytest.fixture
def page() -> TestClient:
    return as_role("research", "researcher")


def text_of(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))


def test_a_strangers_eight_questions_are_answered_on_the_page_of_a_run(page: TestClient) -> None:
    told = text_of(page.get(RUN).text)
    assert "running" in told and "training" in told
    assert "Ends in 7 min 20 s" in told
    assert re.search(r"Cost so far \$\d", told)
    assert "/checkpoints/research-model-v2-aaaaaaaa/checkpoints" in told
    assert re.search(r"optimizer.learning_rate 0.001 0.002", told)
    assert "Which rank is slow is not known without metrics" in told
    assert "Goodput by cause is not known: it needs the run's metrics" in told.replace("&#39;", "'")
    waiting = text_of(page.get("/runs/team-research/research-next-v1-aaaaaaaa").text)
    assert "insufficient quota for research" in waiting


def test_the_list_shows_state_place_progress_time_left_and_cost(page: TestClient) -> None:
    told = text_of(page.get("/").text)
    assert "120 of 1000 5.402 7 min" in told
    assert "queued 1 of 1" in told
    assert (
        "your role may not query service prometheus-operated:9090 of monitoring; pass a Prometheus"
        in told
    )
    assert "research-model-v2" not in page.get("/?state=queued").text
    assert "research-next" not in page.get("/?q=model").text


def finished_without_metrics(log: str) -> str:
    """The page and the list of a run that was finished 60 s ago, whose first pod ran from 400 s ago on."""
    items = world()
    old = next(
        one for one in items["jobsets"] if one["metadata"]["name"].startswith("research-model-v1")
    )
    items["pods"].append(finished_pod_of(old, 400, 65))
    cluster = RoleCluster("research", "researcher", items)
    cluster.texts["research-model-v1-aaaaaaaa-worker-0-0-x/log"] = log
    browser = client(Source(lambda: cluster, in_namespace("research")))  # type: ignore[arg-type, return-value]
    told = browser.get("/runs/team-research/research-model-v1-aaaaaaaa").text
    return text_of(browser.get("/?state=finished").text) + text_of(told)


def test_a_finished_run_has_its_progress_and_training_without_metrics() -> None:
    told = finished_without_metrics(
        "2026-11-21T11:54:00Z step 10/110  loss 5.5\n2026-11-21T11:58:00Z step 90/110  loss 4.321\n"
    )
    assert told.count("110 of 110") == 2
    assert "Loss 4.3210" in told and "4.321 -" in told
    axis = told.partition("From (UTC) For What ")[2].partition(" No interruptions")[0]
    assert axis == (
        "2026-11-21 09:30:00 2 h 23 min waited and started"
        " 2026-11-21 11:53:30 4 min 30 s trained 90 steps from step 1"
        " 2026-11-21 11:58:00 1 min from its last step to its end"
    )


def test_a_program_that_prints_no_steps_is_not_shown_as_starting() -> None:
    told = finished_without_metrics("2026-11-21T11:54:00Z hello\n")
    assert re.search(r"11:53:20 5 min 40 s ran; no step of it is known", told), told


def test_queues_say_who_holds_and_who_waits(page: TestClient) -> None:
    told = text_of(page.get("/queues").text)
    assert "research-model-v2-aaaaaaaa : 16 GPUs on 2 nodes of spot" in told
    assert "research-next-v1-aaaaaaaa : 2 nodes" in told
    assert "16 held 16 waited for 32 in its pools now, in GPUs" in told


def test_nodes_show_pools_prices_and_the_runs_on_them(page: TestClient) -> None:
    told = text_of(page.get("/nodes").text)
    assert "spot 4 of 4 32 16" in told
    assert "p5.48xlarge" in told and "8 of 8 research-model-v2-aaaaaaaa" in told
    assert "2 with runs 2 free" in told


def test_a_reclaimed_node_is_named(page: TestClient) -> None:
    items = world()
    taint = {"key": "trainyard.dev/interruption", "effect": "NoSchedule"}
    items["nodes"][0]["spec"] = {"unschedulable": True, "taints": [taint]}
    cluster = RoleCluster("research", "researcher", items)
    browser = client(Source(lambda: cluster, in_namespace("research")))  # type: ignore[arg-type, return-value]
    told = text_of(browser.get("/nodes").text)
    assert "spot-0: cordoned: trainyard.dev/interruption; on it research-model-v2-aaaaaaaa" in told
    assert "1 with runs 2 free 1 cordoned, leaving or not ready" in told


def test_curves_come_from_the_log_where_no_prometheus_may_be_asked(page: TestClient) -> None:
    found = page.get("/curves?run=team-research/research-model-v2-aaaaaaaa").json()
    curve = found["research-model-v2-aaaaaaaa"]
    assert (curve["step"], curve["loss"], curve["mfu"]) == ([100, 120], [5.5, 5.402], [0.41, 0.415])
    assert "pass a Prometheus" in curve["gap"]


def test_the_log_of_a_rank_is_streamed(page: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Source, "is_over", lambda *_: True)
    told = page.get("/log?namespace=team-research&run=research-model-v2-aaaaaaaa&rank=3").text
    assert "research-model-v2-aaaaaaaa-worker-0-0-x, container trainer" in told
    assert "step 120/1000" in told and "the run has ended" in told
    asked = "/log?namespace=team-research&run=research-model-v2-aaaaaaaa&rank="
    assert "the run has ranks 0 to 15" in page.get(f"{asked}16").text
    assert "expected a whole number" in page.get(f"{asked}-1").text


def test_texts_of_the_cluster_are_never_markup() -> None:
    items = world()
    for one in items["workloads"]:
        for condition in one["status"]["conditions"]:
            condition["message"] = "<script>alert(1)</script>"
    cluster = RoleCluster("research", "researcher", items)
    cluster.texts["/log"] = LOG + "2026-11-21T11:58:11Z <img src=x onerror=alert(1)>\n"
    browser = client(Source(lambda: cluster, in_namespace("research")))  # type: ignore[arg-type, return-value]
    for path in ("/", "/queues", RUN, "/runs/team-research/research-next-v1-aaaaaaaa"):
        assert "<script>alert" not in browser.get(path).text
        assert "<img" not in browser.get(path).text
    assert "&lt;script&gt;" in browser.get("/queues").text


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8642", "127.0.0.1.evil.example", ""]
)
def test_hosts_that_are_not_loopback_are_refused(host: str) -> None:
    found = client(Source(_no_cluster, in_namespace("research"))).get("/", headers={"host": host})
    assert found.status_code == 421
    assert found.text.startswith("error: Host:")


@pytest.mark.parametrize("host", ["127.0.0.1:8642", "localhost:8642", "localhost", "[::1]:8642"])
def test_loopback_hosts_are_served(host: str) -> None:
    assert as_role("research", "lead").get("/", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"])
def test_only_get_is_allowed(page: TestClient, method: str) -> None:
    assert page.request(method, "/").status_code == 405


def test_without_the_key_nothing_is_shown() -> None:
    source = as_role("research", "lead").app
    stranger = TestClient(source, base_url="http://127.0.0.1:8642")
    for path in ("/", RUN, "/curves", "/log", "/events", "/login", "/login?key=wrong"):
        found = stranger.get(path)
        assert found.status_code == 403
        assert "research-model" not in found.text
    away = stranger.get(f"/login?key={KEY}&to=//evil.example")
    assert 'content="0; url=/"' in away.text and "evil" not in away.text
    quoted = stranger.get(f"/login?key={KEY}", params={"key": KEY, "to": '/"><p>'})
    assert 'url=/&quot;&gt;&lt;p&gt;"' in quoted.text


def test_the_key_is_not_among_the_arguments_of_the_browser(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened: list[tuple[str, Path, int, int, str]] = []

    def browse(address: str) -> None:
        file = Path(address.removeprefix("file://"))
        modes = stat.S_IMODE(file.stat().st_mode), stat.S_IMODE(file.parent.stat().st_mode)
        opened.append((address, file, *modes, file.read_text()))

    monkeypatch.setattr("webbrowser.open", browse)
    monkeypatch.setattr(ui, "_serve", lambda *_: None)
    monkeypatch.setattr(ui, "Cluster", lambda *_: _no_cluster())
    assert front_door.main(["ui", "--port", "0", "--open"]) == 0
    [key] = re.findall(r"/login\?key=(\S+)", capsys.readouterr().out)
    [(address, file, mode, folder, text)] = opened
    assert address.startswith("file:///") and key not in address and key in text
    assert (mode, folder, file.exists()) == (0o600, 0o700, False)


def test_answers_have_a_strict_policy_and_nothing_from_elsewhere(page: TestClient) -> None:
    for path in ("/", RUN, "/queues", "/nodes", "/static/page.js", "/nothing"):
        answer = page.get(path)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
        if "html" in answer.headers["content-type"]:
            assert not re.findall(r'(?:src|href)="(?:https?:)?//', answer.text)
            assert not re.findall(r"<script(?![^>]*src=)|\son\w+=|\sstyle=", answer.text)


def _no_cluster() -> Cluster:
    raise ClusterError("kubeconfig: not usable: no file; select another with --kubeconfig")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ClusterError("kubeconfig: not usable: no file; select another with --kubeconfig"), 502),
        (UnknownCallerError("credentials are missing or expired: log in again"), 403),
        (UnreachableError("API server https://x: no answer: timed out"), 502),
    ],
)
@pytest.mark.parametrize("path", ["/", "/queues", "/nodes", RUN])
def test_a_failure_is_one_line_on_the_page(path: str, error: ClusterError, status: int) -> None:
    def connect() -> Cluster:
        raise error

    answer = client(Source(connect, in_namespace("research"))).get(path)
    assert answer.status_code == status
    shown = re.findall(r'<p class="error" role="alert">([^<]*)</p>', answer.text)
    assert shown == [str(error)]


def test_after_a_new_login_the_kubeconfig_is_opened_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ops.ui.recent.RELIST_S", 0.0)
    good = RoleCluster("research", "researcher", world())
    expired = RoleCluster("research", "researcher", world())

    def refuse(*_: Any) -> Any:
        raise UnknownCallerError("expired")

    monkeypatch.setattr(expired, "items", refuse)
    opened = iter([expired, good])
    browser = client(Source(lambda: next(opened), in_namespace("research")))  # type: ignore[arg-type, return-value]
    assert browser.get("/").status_code == 403
    assert browser.get("/").status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "/nothing",
        "/?state=nonsense",
        "/runs/team-research/nothing-v1-00000000",
        "/runs/kube-system/x",
        "/compare?" + "&".join(f"run=team-research/r{n}" for n in range(9)),
    ],
)
def test_wrong_addresses_are_explained(page: TestClient, path: str) -> None:
    answer = page.get(path)
    assert answer.status_code == 404
    assert len(re.findall(r'role="alert">[^<]{20,}</p>', answer.text)) == 1


def test_runs_are_compared(page: TestClient) -> None:
    both = (
        "run=team-research/research-model-v1-aaaaaaaa&run=team-research/research-model-v2-aaaaaaaa"
    )
    told = text_of(page.get(f"/compare?{both}").text)
    assert "optimizer.learning_rate 0.001 0.002" in told
    assert "last loss 5.4020 at step 120" in told


def test_the_chart_library_is_the_recorded_one() -> None:
    folder = STATIC / "uplot"
    recorded = re.findall(
        r"^([0-9a-f]{64})  (\S+)$", (folder / "VERSION").read_text(), re.MULTILINE
    )
    assert {name for _, name in recorded} | {"VERSION"} == {p.name for p in folder.iterdir()}
    for digest, name in recorded:
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest, name


def test_a_port_that_is_taken_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def taken(_wanted: int | None) -> Any:
        raise OSError(98, "Address already in use")

    monkeypatch.setattr("ops.ui.command._listen", taken)
    assert front_door.main(["ui", "--port", "80", "--kubeconfig", str(tmp_path / "none")]) == 2
    assert "--port: got 80; not usable: Address already in use" in capsys.readouterr().out
