"""Alerts, rules and panels: existing series, owners and runbooks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from infra.observability import alerts, dcgm, recording, series
from infra.observability.alerts import rule_file
from infra.observability.recording import Facts, NodePrice
from tests.unit.infra import dashboard_files

ROOT = Path(__file__).resolve().parents[3]
FACTS = Facts(
    prices=(NodePrice(instance_type="p5.48xlarge", capacity="spot", usd_per_hour=16.5),),
    team_budgets={"llm": 30.0},
    costs=True,
    steering=True,
)
OF_OURS = re.compile(r"\b(?:trainyard[_:]|DCGM_|kueue_|kube_|kubelet_|apiserver_)[\w:]*|\bup\b")


def expressions() -> Iterator[tuple[str, str]]:
    """(where, expression) of every rule and of every panel."""
    for group in rule_file(FACTS)["groups"]:
        for rule in group["rules"]:
            yield rule.get("alert") or rule["record"], rule["expr"]
    yield from dashboard_files.expressions()


def unknown(expression: str) -> set[str]:
    """Names of series in an expression that nothing exports or records."""
    return set(OF_OURS.findall(re.sub(r'"[^"]*"', '""', expression))) - series.KNOWN


def test_every_expression_uses_existing_series() -> None:
    assert {where: names for where, text in expressions() if (names := unknown(text))} == {}


def test_misspelt_series_is_found() -> None:
    assert unknown('rate(trainyard_lodaer_seconds_total{run_id="kube_x"}[5m])') == {
        "trainyard_lodaer_seconds_total"
    }


def test_dcgm_fields_are_used_in_recording_rules_only() -> None:
    recorded = {rule["record"] for group in recording.groups() for rule in group["rules"]}
    assert [w for w, text in expressions() if "DCGM_" in text and w not in recorded] == []


def test_every_series_is_recorded_once() -> None:
    found = [rule["record"] for group in recording.groups(FACTS) for rule in group["rules"]]
    named = {one.name for one in series.ALL.values() if one.name.startswith("trainyard:")}
    assert sorted(found) == sorted(named)


def test_required_alerts_exist() -> None:
    assert {alert.name for alert in alerts.ALERTS} >= {
        "LowGpuUtilization",
        "CheckpointSlow",
        "PodRestartLoop",
        "TrainingPodPending",
        "NcclTimeout",
        "NodePressure",
    }


def runbooks() -> dict[str, str]:
    """The sections of the page by title."""
    _, *found = (ROOT / alerts.RUNBOOKS).read_text().split("\n## ")
    return dict(text.split("\n", 1) for text in found)


def test_every_alert_has_owner_severity_and_a_runbook_with_commands() -> None:
    assert [alert.name for alert in alerts.ALERTS] == [*runbooks()]
    for alert in alerts.ALERTS:
        assert alert.owner in ("platform", "team") and alert.severity in ("page", "ticket")
        assert "```" in runbooks()[alert.name], f"{alert.name}: nothing to run"


def test_runbooks_use_existing_series() -> None:
    for name, text in runbooks().items():
        blocks = re.findall(r"^```\w*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        assert set().union(*map(unknown, blocks)) == set(), name


def test_runbooks_begin_with_a_row_per_alert() -> None:
    text = (ROOT / alerts.RUNBOOKS).read_text()
    row = r"^\| \[(\w+)\]\(#(\w+)\) \| .* \| (\w+) \| (\w+) \|$"
    assert re.findall(row, text, re.M) == [
        (alert.name, alert.name.lower(), alert.owner, alert.severity) for alert in alerts.ALERTS
    ]


def test_every_named_threshold_and_part_is_used_and_an_unknown_name_is_an_error() -> None:
    text = Path(alerts.__file__).with_name("alerts.yaml").read_text()
    named = yaml.safe_load(text)
    unused = [n for n in named["thresholds"] | named["parts"] if not re.search(rf"\${n}\b", text)]
    assert unused == []
    assert alerts.expanded('x < $restarts or y{a="$1"}') == 'x < 3 or y{a="$1"}'
    with pytest.raises(KeyError, match="restart"):
        alerts.expanded("x < $restart")


def test_runbook_url_is_base_plus_path() -> None:
    one = alerts.ALERTS[0]
    found = one.rule("https://git.example.com/trainyard/")["annotations"]["runbook"]
    assert found == f"https://git.example.com/trainyard/{one.runbook}"
    assert one.rule()["annotations"]["runbook"] == one.runbook


def test_dcgm_counters_file_has_a_line_per_field() -> None:
    lines = dcgm.counters_csv().splitlines()
    assert len(lines) == len(dcgm.FIELDS) + 1
    assert "DCGM_FI_DEV_GPU_UTIL, gauge, GPU utilization (in %)." in lines
    for line in lines:
        name, kind, text = line.split(", ", 2)
        assert re.fullmatch(r"DCGM_(FI_DEV|FI_PROF|EXP)_[A-Z0-9_]+", name)
        assert kind in ("gauge", "counter") and "," not in text


def test_kube_state_metrics_exposes_the_labels_that_rules_read() -> None:
    shown = {series.state_label(key) for key in (*series.POD_LABELS, *series.NODE_LABELS)}
    used = {name for _, text in expressions() for name in re.findall(r"\blabel_[a-z_]\w*", text)}
    assert used - {"label_replace"} <= shown
