"""Log shipping: input, filters, metrics, output and permissions of the shipper."""

from __future__ import annotations

import re
from typing import Any

import pytest

from infra.addons import fluent_bit, fluent_bit_pipeline
from infra.addons.fluent_bit import (
    FLUENT_BIT,
    CloudWatch,
    FluentBitArgs,
    plan,
)
from infra.addons.fluent_bit_pipeline import Destination
from infra.domain import naming
from infra.observability import series
from infra.observability.log_patterns import COUNTED, LOG_PATTERNS
from infra.sections.logs import LokiConfig

CLOUDWATCH = CloudWatch(region="us-east-1", group="/trainyard/training/runs")
OUTSIDE = LokiConfig(url="https://logs.example.com:8443/in", credentials="log-store")
INSIDE = LokiConfig(url="http://loki.observing.svc:3100", tenant="training")
DESTINATIONS: dict[str, Destination] = {
    "cloudwatch": CLOUDWATCH,
    "loki inside": INSIDE,
    "loki outside": OUTSIDE,
}

Section = tuple[str, list[tuple[str, str]]]


def sections(text: str) -> list[Section]:
    """Parse fluent-bit's classic format: kind and settings; keys may repeat."""
    found: list[Section] = []
    for line in text.splitlines():
        if line.startswith("["):
            found.append((line.strip("[]"), []))
        elif line.strip():
            key, _, value = line.strip().partition(" ")
            found[-1][1].append((key, value))
    return found


def values(destination: Destination = CLOUDWATCH, **changes: Any) -> dict[str, Any]:
    args = {"namespaces": ("team-research", "team-production"), **changes}
    return dict(plan(FluentBitArgs(destination=destination, **args)).values)


def filters(name: str, destination: Destination = CLOUDWATCH) -> list[list[tuple[str, str]]]:
    found = sections(values(destination)["config"]["filters"])
    return [settings for _, settings in found if ("Name", name) in settings]


def test_only_logs_of_the_configured_namespaces_are_read() -> None:
    [(_, settings)] = sections(values()["config"]["inputs"])
    assert dict(settings)["Path"].split(",") == [
        "/var/log/containers/*_team-production_*.log",
        "/var/log/containers/*_team-research_*.log",
    ]


def test_record_keeps_its_line_and_pod_identity_only() -> None:
    *_, last = filters("record_modifier")
    kept = [value for key, value in last if key == "Allowlist_key"]
    assert kept == ["log", "stream", "namespace", "pod", "container", "node", "team", "run_id"]
    [renaming] = filters("modify")
    assert ("Rename", f"label_{naming.RUN_ID} run_id") in renaming
    assert ("Rename", f"label_{naming.TEAM} team") in renaming


def test_pod_annotations_do_not_change_log_processing() -> None:
    [settings] = filters("kubernetes")
    assert dict(settings)["K8S-Logging.Exclude"] == "Off"
    assert dict(settings)["K8S-Logging.Parser"] == "Off"
    assert dict(settings)["Annotations"] == "Off"


@pytest.mark.parametrize("name", COUNTED)
def test_every_counted_pattern_has_the_name_that_alerts_use(name: str) -> None:
    [settings] = [s for s in filters("log_to_metrics") if ("Alias", f"count-{name}") in s]
    known = dict(settings)
    parts = [known[f"Metric_{part}"] for part in ("Namespace", "Subsystem", "Name")]
    assert "_".join(parts) == series.LOG_MATCHES.name
    # fluent-bit uses only the first of several expressions.
    expression = fluent_bit_pipeline.as_setting(LOG_PATTERNS[name].expression)
    assert [v for k, v in settings if k == "Regex"] == [f"log {expression}"]
    field = known["Add_Label"].removeprefix("pattern ")
    assert ("Record", f"{field} {name}") in filters("record_modifier")[0]
    labels = {"pattern"} | {value for key, value in settings if key == "Label_Field"}
    assert labels >= set(series.LOG_MATCHES.labels)
    assert labels <= {"pattern", *fluent_bit_pipeline.KEPT}


@pytest.mark.parametrize("name", COUNTED)
def test_expression_is_unchanged_by_helm_and_fluent_bit(name: str) -> None:
    expression = fluent_bit_pipeline.as_setting(LOG_PATTERNS[name].expression)
    # A template, a variable, a comment, delimiters, Python's own groups.
    assert not re.search(r"\{\{|\$\{|\n|\(\?P", expression)
    assert not expression.startswith(("/", " ", "#")) and not expression.endswith(" ")


@pytest.mark.parametrize("name", DESTINATIONS)
def test_output_is_buffered_on_disk_with_a_limit(name: str) -> None:
    (_, first), _ = sections(values(DESTINATIONS[name])["config"]["outputs"])
    settings = dict(first)
    assert settings["Match"] == "run.*"
    assert settings["storage.total_limit_size"] == "1G"
    assert settings["Retry_Limit"] == "no_limits"


def test_cloudwatch_gets_a_stream_per_container_in_the_group_of_the_stack() -> None:
    (_, first), _ = sections(values()["config"]["outputs"])
    settings = dict(first)
    assert settings["log_group_name"] == CLOUDWATCH.group
    assert settings["auto_create_group"] == "Off"
    assert settings["log_stream_template"] == "$namespace.$pod.$container"


def test_loki_gets_streams_by_run_and_its_tenant() -> None:
    (_, first), _ = sections(values(DESTINATIONS["loki inside"])["config"]["outputs"])
    settings = dict(first)
    assert settings["uri"] == "/loki/api/v1/push"
    assert settings["tenant_id"] == "training"
    assert "run_id=$run_id" in settings["labels"]
    assert "tls" not in settings


def test_credentials_come_from_an_existing_secret_and_not_from_values() -> None:
    found = values(DESTINATIONS["loki outside"])
    assert [e["valueFrom"]["secretKeyRef"] for e in found["env"]] == [
        {"name": "log-store", "key": "username"},
        {"name": "log-store", "key": "password"},
    ]
    (_, first), _ = sections(found["config"]["outputs"])
    assert dict(first)["http_passwd"] == "${LOGS_PASSWORD}"
    assert dict(first)["tls.verify"] == "On"
    assert values()["env"] == []


def test_shipper_reads_root_files_without_other_privileges() -> None:
    found = values()
    assert found["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert found["securityContext"]["allowPrivilegeEscalation"] is False
    assert found["securityContext"]["readOnlyRootFilesystem"] is True
    assert found["rbac"]["nodeAccess"] is False
    mounts = {m["mountPath"]: m.get("readOnly", False) for m in found["daemonSetVolumeMounts"]}
    assert mounts == {"/var/log": True, "/var/lib/fluent-bit": False}


def test_shipper_runs_on_the_nodes_of_every_pool() -> None:
    taint = {"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"}
    assert values(tolerations=(taint,))["tolerations"] == [taint]


def policy(destination: Destination) -> dict[str, Any]:
    args = FluentBitArgs(namespaces=("team-research",), destination=destination)
    deny, own = plan(args).before
    assert deny["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    found: dict[str, Any] = own["spec"]
    return found


def test_only_prometheus_reaches_the_metrics_port_of_the_shipper() -> None:
    [rule] = policy(CLOUDWATCH)["ingress"]
    [source] = rule["from"]
    assert source["namespaceSelector"]["matchLabels"] == {
        "kubernetes.io/metadata.name": "monitoring"
    }
    assert rule["ports"] == [{"protocol": "TCP", "port": 2021}]


@pytest.mark.parametrize(
    ("name", "sends"),
    [
        (
            "cloudwatch",
            {
                "to": [{"ipBlock": {"cidr": "169.254.170.23/32"}}],
                "ports": [{"protocol": "TCP", "port": 80}],
            },
        ),
        (
            "loki inside",
            {
                "to": [
                    {
                        "namespaceSelector": {
                            "matchLabels": {"kubernetes.io/metadata.name": "observing"}
                        }
                    }
                ]
            },
        ),
        ("loki outside", {"ports": [{"protocol": "TCP", "port": 8443}]}),
    ],
)
def test_shipper_reaches_only_its_destination_dns_and_the_api_server(
    name: str, sends: dict[str, Any]
) -> None:
    names, api, last = policy(DESTINATIONS[name])["egress"]
    assert {port["port"] for port in names["ports"]} == {53}
    assert {port["port"] for port in api["ports"]} == {443, 6443}
    assert last == sends


def test_log_metrics_keep_the_labels_of_the_source_pod() -> None:
    args = FluentBitArgs(namespaces=(), destination=CLOUDWATCH, monitored=True)
    [monitor] = plan(args).objects
    [endpoint] = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["honorLabels"] is True
    [port] = values()["extraPorts"]
    assert port["name"] == endpoint["port"]
    assert FLUENT_BIT.objects_need == ("kubePrometheusStack",) and not FLUENT_BIT.needs


def test_no_pod_monitor_without_the_prometheus_operator() -> None:
    found = plan(FluentBitArgs(namespaces=(), destination=CLOUDWATCH))
    assert found.objects == ()


def test_trailing_space_of_an_expression_is_kept() -> None:
    expression = fluent_bit_pipeline.as_setting("not written: ")
    assert not expression.endswith(" ")
    assert re.search(expression, "not written: disk") and not re.search(expression, "not written:x")


def test_every_config_value_is_on_one_line() -> None:
    for destination in DESTINATIONS.values():
        for text in fluent_bit_pipeline.config(("team-a",), destination).values():
            for line in text.splitlines():
                assert re.fullmatch(r"(\[[A-Z]+\]|    \S+ \S.*|)", line), line


def test_shipper_service_account_matches_the_pod_identity_association() -> None:
    assert values()["serviceAccount"]["name"] == fluent_bit.ACCOUNT == naming.LOG_SHIPPER
