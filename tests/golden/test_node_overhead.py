"""DaemonSet requests on a GPU node fit alongside the largest run of the committed stacks."""

from __future__ import annotations

from typing import Any, Final

import pytest

from infra.domain import catalog, quantity
from tests.committed import rendered

CHARTS: Final = {
    "gpuOperator": ("dcgm", "dcgmExporter", "devicePlugin", "gfd"),
    "efaDevicePlugin": ("",),
    "fluentBit": ("",),
    "kubePrometheusStack": ("prometheus-node-exporter",),
}
"""Where their values have the requests of a DaemonSet; empty: on top."""

OTHERS: Final = {
    "aws-node": (50, 0),
    "kube-proxy": (100, 0),
    "ebs-csi-node": (30, 120),
    "efs-csi-node": (30, 120),
    "fsx-csi-node": (30, 104),
    "eks-node-monitoring-agent": (10, 30),
    "node-feature-discovery-worker": (5, 64),
}
"""Millicores and MiB of DaemonSets with upstream requests, from the charts of 2026."""


def requests(stack: str) -> list[dict[str, Any]]:
    """Of each container whose requests are ours."""
    values = {
        record["name"].removeprefix("operators-"): record["inputs"]["values"]
        for record in rendered(stack)
        if record["type"].endswith(":Release")
    }
    return [
        (values[chart][part] if part else values[chart])["resources"]["requests"]
        for chart, parts in CHARTS.items()
        if chart in values
        for part in parts
    ]


@pytest.mark.parametrize("stack", ["dev", "prod"])
def test_largest_run_fits_alongside_every_daemonset(stack: str) -> None:
    ours = requests(stack)
    assert len(ours) >= 6
    cpu = sum(quantity.millicores(one["cpu"]) for one in ours)
    memory = sum(quantity.bytes_(one["memory"]) for one in ours)
    cpu += sum(milli for milli, _ in OTHERS.values())
    memory += sum(mib for _, mib in OTHERS.values()) * quantity.MIB
    node = catalog.load().types["p4d.24xlarge"]
    assert cpu <= node.allocatable_milli_cpu - node.training_milli_cpu
    assert memory <= node.allocatable_memory - node.training_memory
