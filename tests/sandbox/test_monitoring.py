"""Prometheus of a real sandbox: metrics of a training run, Kueue and simulated GPUs, and firing rules."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from infra.domain import naming
from infra.observability import series
from ops.__main__ import main as ops_main
from ops.ledger.model import Hold
from ops.ledger.record import Record
from sandbox import cluster as embedded
from sandbox import environment, monitoring, paths, process, toolchain
from sandbox.node import images
from sandbox.toolchain.tools import MONITORING_TOOLS
from tests.golden.example_runs import PREPARED, run
from tests.sandbox import add_on_kit
from tests.sandbox.node_kit import until
from tests.sandbox.queue_kit import Fleet, pool, team_of
from training import source
from training.launchers import LAUNCHERS
from training.spec import Resources

if TYPE_CHECKING:
    from tests.sandbox.conftest import Cluster

pytestmark = [pytest.mark.sandbox, pytest.mark.timeout(600), pytest.mark.long(47)]

TEAM, POOL = "watched", "watched-pool"
NODE = f"{POOL}-0"
SERVICES = ("prometheus", "kube-state-metrics", "gpu-exporter")
TRAIN_S = 240.0
"""Torch is imported twice, on a machine that may be busy with other tests."""

SETTINGS = """
steps: 1000000
model: {hidden_size: 16, intermediate_size: 32, layers: 1, heads: 2, kv_heads: 1}
data: {sequence_length: 16}
batch: {global_samples: 4, micro_samples: 4}
schedule: {warmup_steps: 3}
evaluation: {every_steps: null, samples: 4}
checkpoint: {every_steps: 500000}
"""
SCRIPT = f"""
cat > /tmp/config.yaml <<'END'{SETTINGS}END
mkdir /tmp/source
for i in $(seq 40); do echo "text = '$i: some text that a model can learn'" > /tmp/source/$i.py; done
python -m trainer.prepare --source /tmp/source --out /tmp/data --eval-fraction 0.2
export TRAINYARD_SCRATCH=/tmp/scratch
exec python -m trainyard.launch -- -m trainer \
    --config /tmp/config.yaml --run-dir /tmp/run --set data.path=/tmp/data \
    --run-record /tmp/record.json
"""


@dataclass
class Watched:
    cluster: Cluster
    url: str
    run_id: str

    def ask(self, what: str, **asked: str) -> dict[str, Any]:
        address = f"{self.url}/api/v1/{what}?{urllib.parse.urlencode(asked)}"
        with urllib.request.urlopen(address, timeout=10) as answer:
            data: dict[str, Any] = json.load(answer)["data"]
            return data

    def await_series(self, expression: str, deadline_s: float = 180.0) -> list[dict[str, Any]]:
        return until(lambda: self.ask("query", query=expression)["result"], expression, deadline_s)


def _services(cluster: Cluster) -> dict[str, int]:
    found = {path.stem: process.load(path) for path in cluster.state.pids.glob("*.json")}
    return {name: one.pid for name, one in found.items() if one and one.alive}


def _switch(cluster: Cluster, value: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(monitoring.MONITORING_ENV, value)
        embedded.up(cluster.settings.tools, lambda _: None)


def _switch_on_late(cluster: Cluster) -> None:
    """Start as a first `make up` does: without the tools of monitoring, then in the background."""
    tools, late = cluster.settings.tools, toolchain.find(*MONITORING_TOOLS)
    lean = replace(
        tools,
        binaries={k: v for k, v in tools.binaries.items() if k not in late.binaries},
        sources={k: v for k, v in tools.sources.items() if k not in late.sources},
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(monitoring.MONITORING_ENV, "on")
        before = _services(cluster)
        embedded.up(lean, lambda _: None)
        assert _services(cluster) == before
        monitoring.start_later(cluster.state)
        background = monitoring.background_process(cluster.state)
        monitoring.start_later(cluster.state)
        assert background == monitoring.background_process(cluster.state), "started twice"
        assert background
        until(lambda: not background.alive, "monitoring was started in the background")
    log = (cluster.state.logs / monitoring.LOG).read_text()
    assert "Monitoring runs" in log, log


@pytest.fixture(scope="module")
def prometheus(cluster: Cluster) -> Iterator[str]:
    """Monitor the session's cluster during this module; return the URL of Prometheus."""
    # Other files' tests may have left services that an `up` would start again anyway.
    _switch(cluster, "off")
    before = _services(cluster)
    _switch_on_late(cluster)
    after = _services(cluster)
    assert set(after) - set(before) == set(SERVICES)
    assert {name: after[name] for name in before} == before, "others were started again"
    url = monitoring.prometheus_url(cluster.state)
    assert url
    yield url
    _switch(cluster, "off")
    until(lambda: set(_services(cluster)) == set(before), "those who watched are gone")


def _job(fleet: Fleet) -> tuple[str, dict[str, Any]]:
    """A single-node run that trains on generated data until it is deleted."""
    digest = source.digest(paths.PROJECT)
    images.snapshot(digest, fleet.cluster.state)
    spec = run(
        dataset=PREPARED,
        name="seen",
        team=TEAM,
        job_kind="job",
        nodes=1,
        processes_per_node=1,
        image=f"{images.REGISTRY}/trainer@sha256:{digest}",
        resources=Resources(cpu="1", memory="2Gi", shm="64Mi"),
        max_hours=None,
    )
    job = copy.deepcopy(LAUNCHERS["job"].render(spec, fleet.platform)[-1])
    body = job["spec"]["template"]["spec"]
    record = json.dumps({"run_id": "forged", "team": "forged"})
    main = body["containers"][0]
    main["command"] = ["sh", "-c", f"echo '{record}' > /tmp/record.json; {SCRIPT}"]
    main["volumeMounts"] = [{"name": "tmp", "mountPath": "/tmp"}]
    body |= {"volumes": [{"name": "tmp", "emptyDir": {}}], "terminationGracePeriodSeconds": 1}
    return spec.run_id, fleet.own(job)


@pytest.fixture(scope="module")
def watched(cluster: Cluster, prometheus: str) -> Iterator[Watched]:
    """A training run that Prometheus scrapes, and the add-on that books what it costs."""
    one = pool(POOL, 1) | {"instanceTypes": ["g6.xlarge"], "nodes": "process"}
    quota = {"cpu": "4", "memory": "16Gi", "gpus": 1}
    fleet = Fleet(cluster, "watch", [one], [team_of(TEAM, quota=quota)])
    with fleet.deployed():
        run_id, job = _job(fleet)
        cluster.apply(job)
        costs = add_on_kit.on_node(add_on_kit.objects(TEAM, POOL, 1e6, ""), NODE)
        with add_on_kit.applied(cluster, costs):
            yield Watched(cluster, prometheus, run_id)


def test_run_metrics_carry_the_labels_of_the_pod(watched: Watched) -> None:
    (steps,) = watched.await_series(f'{series.STEPS}{{run_id="{watched.run_id}"}} > 3', TRAIN_S)
    labels = steps["metric"]
    assert labels["job"] == series.TRAINER_JOB
    assert labels["team"] == TEAM
    assert labels["namespace"] == naming.namespace(TEAM)
    assert labels["node"] == NODE
    assert labels["pod"].startswith(watched.run_id)
    assert "forged" not in labels.values()


def test_prometheus_scrapes_ledger_and_budgets_of_the_add_on(watched: Watched) -> None:
    own = f'job="{series.COSTS_JOB}", team="{TEAM}"'
    watched.await_series(f'{series.BUDGET_STATE}{{{own}, state="ok"}} == 1', TRAIN_S)
    (held,) = watched.await_series(f"sum({series.LEDGER_SECONDS}{{{own}}}) by (pool) > 0")
    assert held["metric"] == {"pool": POOL}


def test_run_serves_metrics_only_on_the_pod_address(watched: Watched) -> None:
    watched.await_series(f'{series.STEPS}{{run_id="{watched.run_id}"}}', TRAIN_S)
    listed = subprocess.run(["ss", "-Hltn"], capture_output=True, text=True, check=True).stdout
    listening = [line.split()[3] for line in listed.splitlines()]
    metrics = [one for one in listening if one.endswith(f":{naming.METRICS_PORT}")]
    assert metrics
    assert all(one.startswith("127.") and not one.startswith("127.0.0.1:") for one in metrics)


def test_gpu_metrics_follow_the_processes_of_the_run(watched: Watched) -> None:
    held = f'{series.GPU_UTILIZATION}{{run_id="{watched.run_id}"}} > 0.1'
    (gpu,) = watched.await_series(held, TRAIN_S)
    assert gpu["metric"]["node"] == NODE
    assert gpu["metric"]["team"] == TEAM
    assert gpu["metric"]["modelName"].startswith("NVIDIA")


def test_the_ledger_books_a_run_by_what_it_does(
    watched: Watched, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def ask(*command: str) -> Any:
        where = ["--kubeconfig", str(watched.cluster.kubeconfig), "--prometheus", watched.url]
        assert ops_main([*command, "--record", str(tmp_path), *where]) == 0
        return capsys.readouterr().out

    watched.await_series(f'{series.STEPS}{{run_id="{watched.run_id}"}} > 3', TRAIN_S)
    for _ in range(2):
        ask("cost", "collect", "--once")
    before = time.time()
    cost = json.loads(ask("run", "cost", "seen", "--json"))
    after = time.time()
    assert cost["run"] == watched.run_id and cost["usefulSteps"] > 3
    assert cost["buckets"]["productive"]["nodeHours"] > 0 < cost["buckets"]["starting"]["usd"]
    assert cost["usdPerBillionTokens"] > 0
    assert {(row["pool"], row["team"]) for row in cost["rows"]} == {(POOL, TEAM)}
    (hold,) = [f for f in Record(tmp_path).read() if isinstance(f, Hold) and f.team == TEAM]
    booked = sum(one["nodeHours"] for one in cost["buckets"].values())
    assert before - hold.start - 1 <= booked * 3600 <= after - hold.start + 1


# The local stack does not steer; tests/sandbox/test_in_cluster.py reads what its pod serves.
@pytest.mark.parametrize("job", [job for job in series.JOBS if job != series.STEERING_JOB])
def test_every_scrape_job_used_by_rules_is_up(watched: Watched, job: str) -> None:
    watched.await_series(f'up{{job="{job}"}} == 1', TRAIN_S)


def test_kueue_and_api_server_export_the_metrics_that_rules_use(watched: Watched) -> None:
    queue = naming.cluster_queue(TEAM)
    watched.await_series(f'{series.ADMITTED_ACTIVE}{{cluster_queue="{queue}"}} == 1')
    watched.await_series(f'{series.QUOTA_USED}{{cluster_queue="{queue}"}} > 0')
    watched.await_series(f'sum({series.REQUESTS}{{verb="LIST"}}) > 0')


def test_every_rule_is_loaded_and_none_fails(watched: Watched) -> None:
    def groups() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = watched.ask("rules")["groups"]
        return found if all(one["lastEvaluation"] > "0002" for one in found) else []

    rules = [
        rule for group in until(groups, "all groups were evaluated") for rule in group["rules"]
    ]
    assert len([rule for rule in rules if rule["type"] == "alerting"]) > 6
    assert {rule["name"]: rule["lastError"] for rule in rules if rule.get("lastError")} == {}


def test_status_shows_nodes_runs_and_how_many_alerts_fire(watched: Watched) -> None:
    home = {"SANDBOX_HOME": str(watched.cluster.state.home), monitoring.MONITORING_ENV: "on"}
    done = subprocess.run(
        [sys.executable, "-m", "sandbox", "status"],
        cwd=paths.PROJECT,
        env=watched.cluster.env | home,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert NODE in done.stdout and watched.run_id in done.stdout
    assert re.search(rf"Prometheus: {watched.url}, (no alert|\d+ alerts) firing", done.stdout)


def test_shell_environment_contains_the_prometheus_url(cluster: Cluster, prometheus: str) -> None:
    assert environment.variables(cluster.settings)["PROMETHEUS_URL"] == prometheus


def test_prometheus_token_is_private_and_read_only(cluster: Cluster, prometheus: str) -> None:
    token = Path(cluster.state.pki / "prometheus.token")
    assert token.stat().st_mode & 0o777 == 0o600
    may = ["auth", "can-i", "--quiet", f"--token={token.read_text()}"]
    kubectl = [cluster.settings.binary("kubectl"), f"--kubeconfig={_without_a_user(cluster)}"]

    def allowed(*what: str) -> bool:
        done = subprocess.run([*kubectl, *may, *what], capture_output=True, text=True, check=False)
        return done.returncode == 0

    assert allowed("list", "pods", "-A")
    assert allowed("get", "/metrics")
    for denied in (("list", "secrets", "-A"), ("create", "pods", "-A"), ("get", "nodes/proxy")):
        assert not allowed(*denied), denied


def _without_a_user(cluster: Cluster) -> Path:
    """The cluster's kubeconfig without the administrator's certificate, which would win over a token."""
    path = cluster.state.home / "anonymous.kubeconfig"
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {}
    path.write_text(yaml.safe_dump(config))
    return path
