"""The API server accepts the rules and monitors under prometheus-operator's definitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from infra.observability import component
from infra.observability.alerts import rule_file
from infra.observability.component import ObservabilityArgs
from infra.observability.monitors import GPU_EXPORTERS
from sandbox import toolchain
from tests.sandbox.conftest import Cluster

pytestmark = pytest.mark.sandbox

TOOL = "prometheus-operator"
KINDS = ("podmonitors", "servicemonitors", "prometheusrules")


@pytest.fixture(scope="module")
def watched(cluster: Cluster) -> Cluster:
    """The cluster with the definitions and the namespace of the objects."""
    tools = toolchain.ensure(Console(force_terminal=False), TOOL)
    folder: Path = tools.assets[TOOL] / "example" / "prometheus-operator-crd"
    for kind in KINDS:
        file = folder / f"monitoring.coreos.com_{kind}.yaml"
        cluster.kubectl("apply", "--server-side", "-f", str(file))
    names = [f"crd/{kind}.monitoring.coreos.com" for kind in KINDS]
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=180s", *names)
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": component.NAMESPACE},
    }
    cluster.apply(namespace)
    return cluster


def manifests(exporter: str = "gpuOperator") -> list[dict[str, Any]]:
    args = ObservabilityArgs(
        groups=rule_file()["groups"],
        dashboards={"run": "{}"},
        scrape_seconds=30,
        gpu_exporter=exporter,
    )
    return component.manifests(args)


def applied(cluster: Cluster, objects: list[dict[str, Any]]) -> str:
    return cluster.kubectl(
        *("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-"),
        stdin=yaml.safe_dump_all(objects),
    )


@pytest.mark.parametrize("exporter", sorted(GPU_EXPORTERS))
def test_every_object_is_accepted_field_by_field(watched: Cluster, exporter: str) -> None:
    objects = manifests(exporter)
    assert len(applied(watched, objects).splitlines()) == len(objects)
