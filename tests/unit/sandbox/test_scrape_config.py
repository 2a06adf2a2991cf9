"""The scrape configuration of the sandbox's Prometheus: every job of the rules, with read-only access."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from infra.domain import naming
from infra.observability import series
from sandbox import monitoring, paths, ports, rbac
from sandbox.certificates import KeyPair
from sandbox.monitoring import setup
from sandbox.reporting import SandboxError
from sandbox.services import ClusterSettings
from sandbox.toolchain import Toolchain
from tests.unit.snapshots import Snapshot

SETTINGS = ClusterSettings(
    state=paths.State(Path("/home")),
    tools=Toolchain({}, {}, {}),
    ports={name: 20000 + index for index, name in enumerate(ports.NAMES)},
    ca=Path("/ca"),
    pairs={},
    service_account=KeyPair(Path("/key"), Path("/certificate")),
)
DOCUMENT = setup.prometheus_config(SETTINGS)
JOBS: dict[str, Any] = {job["job_name"]: job for job in DOCUMENT["scrape_configs"]}


def test_every_job_used_by_rules_is_scraped() -> None:
    assert set(series.JOBS) <= JOBS.keys()


@pytest.mark.parametrize("job", JOBS)
def test_only_loopback_is_scraped(job: str) -> None:
    addresses = re.findall(r"\d+\.\d+\.\d+\.\d+", str(JOBS[job]))
    assert addresses
    assert set(addresses) == {"127.0.0.1"}


@pytest.mark.parametrize("job", [series.KUEUE_JOB, series.APISERVER_JOB])
def test_authenticated_targets_get_a_token_over_tls(job: str) -> None:
    assert JOBS[job]["scheme"] == "https"
    assert JOBS[job]["authorization"] == {"credentials_file": str(setup.token_file(SETTINGS))}
    # Kueue's certificate is its own.
    trusted = {"insecure_skip_verify": True} if job == series.KUEUE_JOB else {"ca_file": "/ca"}
    assert JOBS[job]["tls_config"] == trusted


def _kept(job: dict[str, Any], source: str) -> str:
    rules = [rule for rule in job["relabel_configs"] if rule.get("action") == "keep"]
    (found,) = [rule["regex"] for rule in rules if rule["source_labels"] == [source]]
    return str(found)


def test_runs_on_process_nodes_are_scraped_on_the_metrics_port() -> None:
    trainer = JOBS[series.TRAINER_JOB]
    pod = "__meta_kubernetes_pod"
    assert _kept(trainer, f"{pod}_container_port_name") == naming.METRICS_PORT_NAME
    address = _kept(trainer, f"{pod}_ip")
    assert re.fullmatch(address, "127.3.0.4")
    assert not re.fullmatch(address, "10.64.0.7")
    index = _kept(trainer, f"{pod}_label_batch_kubernetes_io_job_completion_index")
    assert re.fullmatch(index, "0")
    assert re.fullmatch(index, "")
    assert not re.fullmatch(index, "1")


def test_series_of_a_run_get_the_labels_that_rules_expect() -> None:
    rules = JOBS[series.TRAINER_JOB]["relabel_configs"]
    given = {rule["target_label"] for rule in rules if "target_label" in rule}
    assert given == {"namespace", "pod", "node", "run_id", "team"}


def test_prometheus_role_is_read_only_and_excludes_secrets() -> None:
    roles = [d for d in rbac.monitoring_objects() if d["kind"] == "ClusterRole"]
    assert len(roles) == 3
    for rule in (rule for role in roles for rule in role["rules"]):
        assert set(rule["verbs"]) <= {"get", "list", "watch"}
        assert "secrets" not in rule.get("resources", [])
        assert "*" not in str(rule)


def test_every_simulated_instance_type_has_a_price() -> None:
    offers = {(one.instance_type, one.capacity) for one in setup.rule_facts().prices}
    assert {("p4d.24xlarge", "spot"), ("g6.xlarge", "on-demand")} <= offers


@pytest.mark.parametrize(("value", "wanted"), [("on", True), ("off", False)])
def test_one_setting_switches_all_monitoring(
    value: str, wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(monitoring.MONITORING_ENV, value)
    assert monitoring.is_enabled() is wanted


def test_monitoring_is_on_by_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(monitoring.MONITORING_ENV, raising=False)
    assert monitoring.is_enabled()


def test_unknown_monitoring_setting_is_an_error(
    monkeypatch: pytest.MonkeyPatch, texts: Snapshot
) -> None:
    monkeypatch.setenv(monitoring.MONITORING_ENV, "yes")
    with pytest.raises(SandboxError, match=r"^SANDBOX_MONITORING: got 'yes'") as caught:
        monitoring.is_enabled()
    texts.check("invalid switch", [str(caught.value)])
