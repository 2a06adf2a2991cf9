"""Rules under promtool: it loads all of them and tests each with generated series."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any, Final

import pytest
from rich.console import Console

from infra.observability import alerts, dcgm, recording, series
from infra.observability.alerts import rule_file
from infra.observability.series import Series
from sandbox import toolchain
from tests.sandbox.rule_case import FACTS, GPU, NODE, POD, RUN
from tests.sandbox.rule_cases_runs import OF_RUNS
from tests.sandbox.rule_cases_stack import OF_STACK, holds
from tests.unit.infra import dashboard_files

PLACES: Final = (("hello-0", "n0", "spot"), ("hello-1", "n1", "on-demand"))
"""(pod, node, capacity)."""

_VALUES: Final = {
    "namespace": ("team-llm",),
    "run_id": (RUN,),
    "team": ("llm",),
    "event": ("notice", "checkpoint_commit"),
    "pattern": ("nccl-timeout",),
    "cluster_queue": ("team-llm",),
    "cohort": ("all",),
    "flavor": ("spot",),
    "priority_class": ("research",),
    "le": ("60", "+Inf"),
    "phase": ("Running", "Pending"),
    "container": ("trainer",),
    "unit": ("integer",),
    "reason": ("Preempted",),
    "condition": ("Ready", "DiskPressure"),
    "persistentvolumeclaim": ("checkpoints",),
    "label_trainyard_dev_run_id": (RUN,),
    "label_trainyard_dev_run": ("hello",),
    "label_trainyard_dev_team": ("llm",),
    "label_workload_type": ("gpu-training",),
    "label_node_kubernetes_io_instance_type": ("p5.48xlarge",),
    "gpu": ("0",),
    "modelName": ("H100",),
    "bucket": ("productive", "replayed", "idle"),
    "pool": ("spot",),
    "capacity": ("spot",),
    "symptom": ("hung", "corrupt-rank", "slow-rank"),
    "state": ("ok", "warned", "held", "drained", "overridden"),
}
"""Values by label; the default is `x`."""
_BY_SERIES: Final = {
    (series.PENDING.name, "status"): ("active", "inadmissible"),
    (series.QUEUE_STATUS.name, "status"): ("active",),
    (series.NODE_CONDITION.name, "status"): ("true",),
    (series.POD_REQUESTS.name, "resource"): (series.GPU_RESOURCE,),
    (series.NODE_ALLOCATABLE.name, "resource"): (series.GPU_RESOURCE,),
    (series.QUOTA_NOMINAL.name, "resource"): ("nvidia.com/gpu",),
    (series.QUOTA_USED.name, "resource"): ("nvidia.com/gpu",),
    (series.QUOTA_RESERVED.name, "resource"): ("nvidia.com/gpu",),
}
_OF_RULES: Final = ("trainyard:", "ALERTS")


def world() -> dict[str, str]:
    """Series as promtool reads them: all rise by one a minute, but for flags and for what one divides by."""
    found = {}
    exported = [one for one in series.ALL.values() if not one.name.startswith(_OF_RULES)]
    fields = [Series(name=field.name, labels=dcgm.LABELS) for field in dcgm.FIELDS]
    fields.append(Series(name=dcgm.XID_COUNT.name, labels=(*dcgm.LABELS, "xid")))
    for one in (*exported, *fields):
        for labels in _labels(one):
            found[f"{one.name}{{{', '.join(labels)}}}"] = _samples(one, labels)
    return found


def _labels(one: Series) -> Iterator[tuple[str, ...]]:
    for pod, node, capacity in PLACES:
        here: Mapping[str, tuple[str, ...]] = {
            "pod": (pod,),
            "node": (node,),
            "UUID": (f"GPU-{node}",),
            "label_trainyard_dev_capacity": (capacity,),
            "label_trainyard_dev_pool": (capacity,),
        }
        choices = [
            [f'{label}="{value}"' for value in _choices(one.name, label, here)]
            for label in one.labels
        ]
        yield from product(*choices)


def _choices(name: str, label: str, here: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    return _BY_SERIES.get((name, label)) or here.get(label) or _VALUES.get(label, ("x",))


def _samples(one: Series, labels: tuple[str, ...]) -> str:
    """A phase is one or the other; a GPU has its last XID; flags and requests are 1."""
    if 'phase="Pending"' in labels:
        return "0+0x60"
    if one.name == dcgm.XID.name:
        return "79+0x60"
    constant = one.name.endswith(("_labels", "_info", "_phase", "_condition", "_status", "_state"))
    return "1+0x60" if constant or one == series.POD_REQUESTS else "1+1x60"


pytestmark = pytest.mark.sandbox
CASES = (*OF_RUNS, *OF_STACK)
Trial = dict[str, Any]
Group = dict[str, Any]


@pytest.fixture(scope="module")
def promtool() -> Path:
    tools = toolchain.ensure(Console(force_terminal=False), "prometheus")
    return tools.binaries["promtool"]


def run(promtool: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(promtool), *map(str, arguments)], capture_output=True, text=True, check=False
    )


def needed(name: str) -> list[Group]:
    """Groups with the rule of a name and all that it reads: promtool evaluates every rule at every minute."""
    groups = rule_file(FACTS)["groups"]
    rules = [(r.get("alert") or r["record"], r) for group in groups for r in group["rules"]]
    wanted, waiting = set(), {name}
    while waiting:
        wanted |= waiting
        text = " ".join(rule["expr"] for one, rule in rules if one in waiting)
        waiting = {
            one for one, _ in rules if re.search(rf"(?<![\w:]){one}(?![\w:])", text)
        } - wanted
    kept = [
        {**group, "rules": [r for r in group["rules"] if (r.get("alert") or r["record"]) in wanted]}
        for group in groups
    ]
    return [group for group in kept if group["rules"]]


def tried(promtool: Path, folder: Path, tests: Mapping[str, list[Trial]]) -> str:
    """Return promtool's failures of rule tests by name; empty if all pass."""
    return verdict(promtool, folder, {name: (needed(name), t) for name, t in tests.items()})


def verdict(
    promtool: Path, folder: Path, suites: Mapping[str, tuple[list[Group], list[Trial]]]
) -> str:
    """Return promtool's failures of (groups, tests) by name."""
    files = []
    for name, (groups, tests) in suites.items():
        stem = name.replace(":", "-")
        (folder / f"{stem}-rules.yaml").write_text(json.dumps({"groups": groups}))
        document = {
            "rule_files": [f"{stem}-rules.yaml"],
            "evaluation_interval": "1m",
            "group_eval_order": [group["name"] for group in groups],
            "tests": tests,
        }
        files.append(folder / f"{stem}.yaml")
        files[-1].write_text(json.dumps(document))
    done = run(promtool, "test", "rules", *files)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def of_alert(name: str) -> list[Trial]:
    return [case.test() for case in CASES if case.alert == name]


def test_prometheus_loads_every_rule(promtool: Path, tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(json.dumps(rule_file(FACTS)))
    done = run(promtool, "check", "rules", "--lint=all", "--lint-fatal", file)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_fires_exactly_in_its_firing_cases(promtool: Path, tmp_path: Path) -> None:
    tests = {alert.name: of_alert(alert.name) for alert in alerts.ALERTS}
    assert tried(promtool, tmp_path, tests) == ""


def test_every_alert_has_a_firing_and_a_quiet_case() -> None:
    for fires in (True, False):
        tested = {case.alert for case in CASES if case.fires is fires}
        assert {alert.name for alert in alerts.ALERTS} - tested == set()


def recorded(expression: str, labels: str, value: float) -> dict[str, Any]:
    return {
        "expr": expression,
        "eval_time": "10m",
        "exp_samples": [{"labels": labels, "value": value}],
    }


def test_both_names_of_a_dcgm_field_are_recorded_in_one_unit(
    promtool: Path, tmp_path: Path
) -> None:
    """A value under the old name and the same value under the new one give the same sample."""
    wanted = f'{{{GPU}, run_id="{RUN}", team="llm"}}'
    tests = {}
    for target, field in recording.RECORDED.items():
        tests[target.name] = [
            {
                "name": name,
                "interval": "1m",
                "input_series": [
                    *({"series": s, "values": v} for s, v in POD.items()),
                    {"series": f"{name}{{{GPU}}}", "values": f"{42 / scale:.12g}+0x20"},
                ],
                "promql_expr_test": [recorded(f"round({target.name}, 0.001)", wanted, 42)],
            }
            for name, scale in zip(field.names, (field.scale, 1.0), strict=False)
        ]
    assert tried(promtool, tmp_path, tests) == ""


def test_run_cost_is_its_share_of_the_nodes_gpus(promtool: Path, tmp_path: Path) -> None:
    """Two of eight GPUs of a node of 16 USD: 4 for the run, 12 idle."""
    series = {**POD, **NODE, **holds(2)}
    cost, idle = "trainyard:run_cost:usd_per_hour", "trainyard:idle_cost:usd_per_hour"
    of_run = f'{{namespace="team-llm", run_id="{RUN}", team="llm", capacity="spot"}}'
    inputs = [{"series": s, "values": v} for s, v in series.items()]
    expected = {
        cost: recorded(cost, cost + of_run, 4),
        idle: recorded(idle, f'{idle}{{pool="spot", capacity="spot"}}', 12),
    }
    tests = {
        name: [{"interval": "1m", "input_series": inputs, "promql_expr_test": [one]}]
        for name, one in expected.items()
    }
    assert tried(promtool, tmp_path, tests) == ""


def test_every_dashboard_expression_parses(promtool: Path, tmp_path: Path) -> None:
    expressions = [re.sub(r"\$__range\b", "6h", text) for _, text in dashboard_files.expressions()]
    rules = [{"record": f"panel:{n}", "expr": e} for n, e in enumerate(expressions)]
    file = tmp_path / "panels.yaml"
    file.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    done = run(promtool, "check", "rules", "--lint=none", file)
    assert len(rules) > 50
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_panel_has_data_when_every_series_exists(promtool: Path, tmp_path: Path) -> None:
    """And so no expression joins what cannot be joined, or reads a label that its series lack."""
    chosen = {"$__range": "10m", "$run_id": RUN, "$team": "llm"}
    checks = []
    for where, expression in dashboard_files.expressions():
        text = expression
        for variable, value in chosen.items():
            text = text.replace(variable, value)
        seen = f'label_replace(count({text}) > bool 0, "panel", "{where}", "", "")'
        checks.append(recorded(seen, f'{{panel="{where}"}}', 1))
    inputs = [{"series": s, "values": v} for s, v in world().items()]
    test = {"interval": "1m", "input_series": inputs, "promql_expr_test": checks}
    groups = rule_file(FACTS)["groups"]
    assert verdict(promtool, tmp_path, {"all": (groups, [test])}) == ""


def test_fields_with_different_units_are_scaled_differently() -> None:
    """Of the eleven that change unit, those that we export."""
    changed = {f.name for f in dcgm.FIELDS if f.renamed and f.scale != 1}
    assert changed == {
        *("DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_MEM_CLOCK", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"),
        *("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_MEM_COPY_UTIL"),
        *("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"),
    }
