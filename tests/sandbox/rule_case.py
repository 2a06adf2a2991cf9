"""Test case of an alert: series with one sample per minute, and the expected alert.

`values` are as promtool has them: `1+0x60` is a 1 and sixty more, `_` no sample.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from infra.domain.prices import PURCHASE_LABELS
from infra.observability.alerts import ALERTS
from infra.observability.recording import Facts, NodePrice

RUN: Final = "hello-v1-0a1b2c3d"
FACTS: Final = Facts(
    prices=(
        NodePrice(instance_type="p5.48xlarge", capacity="on-demand", usd_per_hour=40.0),
        NodePrice(instance_type="p5.48xlarge", capacity="spot", usd_per_hour=16.0),
    ),
    purchase_labels=PURCHASE_LABELS,
    team_budgets={"llm": 10.0},
    costs=True,
    steering=True,
)
"""Facts of the stack for the rules under test."""

Series = Mapping[str, str]
OF_RUN: Final = {"namespace": "team-llm", "run_id": RUN, "team": "llm"}
TRAINER: Final = (
    f'namespace="team-llm", pod="hello-0", node="n0", run_id="{RUN}", team="llm", job="trainer"'
)
GPU: Final = (
    'gpu="0", UUID="GPU-0", modelName="H100", node="n0", namespace="team-llm", pod="hello-0"'
)

POD: Final[Series] = {
    f'kube_pod_labels{{namespace="team-llm", pod="hello-0", label_trainyard_dev_run_id="{RUN}",'
    ' label_trainyard_dev_run="hello", label_trainyard_dev_team="llm"}': "1+0x600",
    'kube_pod_info{namespace="team-llm", pod="hello-0", node="n0"}': "1+0x600",
    'kube_pod_status_phase{namespace="team-llm", pod="hello-0", phase="Running"}': "1+0x600",
    'kube_pod_status_phase{namespace="team-llm", pod="hello-0", phase="Pending"}': "0+0x600",
}
"""A pod of a run that runs."""
NODE: Final[Series] = {
    'kube_node_labels{node="n0", label_trainyard_dev_pool="spot", label_trainyard_dev_capacity="spot",'
    ' label_workload_type="gpu-training", label_node_kubernetes_io_instance_type="p5.48xlarge"}': (
        "1+0x600"
    ),
    'kube_node_labels{node="c0", label_trainyard_dev_pool="cpu",'
    ' label_trainyard_dev_capacity="on-demand"}': "1+0x600",
}
"""A GPU node and one without."""


@dataclass(frozen=True, kw_only=True)
class Case:
    alert: str
    what: str
    series: Series
    minutes: int = 60
    """When it is looked at."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Of the one alert that fires, besides owner and severity."""
    value: str = ""
    """As its description writes the value."""
    fires: bool = True

    def test(self) -> dict[str, Any]:
        expected = [self._expected()] if self.fires else []
        return {
            "name": f"{self.alert}: {self.what}",
            "interval": "1m",
            "input_series": [{"series": s, "values": v} for s, v in self.series.items()],
            "alert_rule_test": [
                {
                    "eval_time": f"{self.minutes}m",
                    "alertname": self.alert,
                    "exp_alerts": expected,
                }
            ],
        }

    def _expected(self) -> dict[str, Any]:
        alert = next(one for one in ALERTS if one.name == self.alert)
        rule = alert.rule()
        return {
            "exp_labels": {**rule["labels"], **self.labels},
            "exp_annotations": {
                name: self._filled(text) for name, text in rule["annotations"].items()
            },
        }

    def _filled(self, text: str) -> str:
        """A template as Prometheus fills it in."""
        text = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda m: self.labels.get(m[1], ""), text)
        return re.sub(r"\{\{ \$value[^}]*\}\}", self.value, text)


def quiet(alert: str, what: str, series: Series, minutes: int = 60) -> Case:
    return Case(alert=alert, what=what, series=series, minutes=minutes, fires=False)


def util(percent: int, labels: str = GPU) -> Series:
    return {f'DCGM_FI_DEV_GPU_UTIL{{{labels}, Hostname="n0"}}': f"{percent}+0x600"}


UNHELD: Final = 'gpu="1", UUID="GPU-1", modelName="H100", node="n0"'
