"""Add-ons on GPU nodes: one driver, one DCGM engine, tolerations, and GPU sharing by pool."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml

from infra.addons import dcgm_exporter, device_plugin, efa_device_plugin, gpu_nodes, gpu_operator
from infra.addons.gpu_nodes import GpuNodesArgs
from infra.addons.model import Installable
from infra.domain.pools import NodePool, Nodes
from infra.observability import dcgm
from tests.unit.infra.gpu_pools import CPU, CUT, SERVED, SLICED, SPOT, gpu_pool

ALL = (device_plugin, dcgm_exporter, efa_device_plugin, gpu_operator)

TAINTS = [
    {"key": "dedicated", "operator": "Equal", "value": "gpu-training", "effect": "NoSchedule"},
    {"key": "spot", "operator": "Equal", "value": "true", "effect": "NoSchedule"},
]


def args(*pools: NodePool, **changes: Any) -> GpuNodesArgs:
    return GpuNodesArgs(pools=pools or (gpu_pool(), SPOT, CPU), **changes)


def operator(*pools: NodePool, **changes: Any) -> Installable:
    return gpu_operator.plan(args(*pools, **changes))


def data_of(plan: Installable, name: str) -> dict[str, str]:
    """Data of the ConfigMap of this name."""
    [found] = [one for one in plan.before if one["metadata"]["name"] == name]
    data: dict[str, str] = found["data"]
    return data


@pytest.mark.parametrize("module", ALL)
def test_each_add_on_tolerates_the_taints_of_its_pools_and_no_others(module: Any) -> None:
    values = module.plan(args(gpu_pool(), CPU)).values
    own = values["daemonsets"] if module is gpu_operator else values
    assert own["tolerations"] == TAINTS[:1]


def test_simulated_nodes_do_not_affect_gpu_add_ons() -> None:
    kwok = gpu_pool(name="fleet", nodes=Nodes.KWOK, taint_key="simulated")
    assert args(gpu_pool(), kwok).gpu_pools == (gpu_pool(),)


@pytest.mark.parametrize("brings", [False, True])
def test_operator_installs_driver_and_toolkit_together_or_neither(brings: bool) -> None:
    values = operator(operator_brings_driver=brings).values
    assert (values["driver"]["enabled"], values["toolkit"]["enabled"]) == (brings, brings)


def test_devices_are_allocated_by_the_plugin_and_not_named_by_images() -> None:
    values = operator(CUT, operator_brings_driver=True).values
    assert values["cdi"] == {"enabled": True}
    assert values["toolkit"]["env"] == [
        {"name": "ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED", "value": "false"}
    ]


@pytest.mark.parametrize(
    ("nodes", "strategy"),
    [
        (Nodes.MANAGED, "volume-mounts"),
        (Nodes.KARPENTER, "volume-mounts"),
        (Nodes.EXISTING, "envvar"),
    ],
)
def test_plugin_lists_devices_as_the_nodes_accept_them(nodes: Nodes, strategy: str) -> None:
    values = device_plugin.plan(args(gpu_pool(nodes=nodes))).values
    assert values["deviceListStrategy"] == strategy


def test_standalone_exporter_uses_the_dcgm_engine_of_the_node() -> None:
    alone = dcgm_exporter.plan(args()).values
    assert "extraEnv" not in alone
    client = dcgm_exporter.plan(args(engine_on_nodes=True)).values
    assert client["extraEnv"][1] == {
        "name": "DCGM_REMOTE_HOSTENGINE_INFO",
        "value": "$(HOST_IP):5555",
    }


def test_both_exporters_export_exactly_the_configured_fields() -> None:
    ours = dcgm.counters_csv()
    assert data_of(operator(), "dcgm-counters") == {"dcgm-metrics.csv": ours}
    assert operator().values["dcgmExporter"]["config"] == {"name": "dcgm-counters"}
    assert dcgm_exporter.plan(args()).values["customMetrics"] == ours


def test_shared_pools_have_their_own_config_and_other_pools_whole_gpus() -> None:
    plan = operator(gpu_pool(), SLICED, SERVED)
    assert plan.values["devicePlugin"]["config"] == {
        "name": "device-plugin-config",
        "default": "whole-gpus",
    }
    parts = {
        name: yaml.safe_load(text) for name, text in data_of(plan, "device-plugin-config").items()
    }
    assert parts == {
        "whole-gpus": {"version": "v1"},
        "notebooks": {
            "version": "v1",
            "sharing": {
                "timeSlicing": {
                    "failRequestsGreaterThanOne": True,
                    "resources": [{"name": "nvidia.com/gpu", "replicas": 4}],
                }
            },
        },
        "served": {
            "version": "v1",
            "sharing": {"mps": {"resources": [{"name": "nvidia.com/gpu", "replicas": 2}]}},
        },
    }


def test_standalone_device_plugin_has_the_same_sharing_configs() -> None:
    values = device_plugin.plan(args(gpu_pool(), SLICED)).values
    assert values["config"]["default"] == gpu_nodes.WHOLE_GPUS
    assert set(values["config"]["map"]) == {"whole-gpus", "notebooks"}
    assert "config" not in device_plugin.plan(args()).values
    assert values["migStrategy"] == "none"


def test_every_mig_pool_has_the_geometry_that_its_label_names() -> None:
    plan = operator(gpu_pool(), CUT)
    config = yaml.safe_load(data_of(plan, "mig-config")["config.yaml"])
    assert config == {
        "version": "v1",
        "mig-configs": {
            "all-disabled": [{"devices": "all", "mig-enabled": False}],
            "small": [{"devices": "all", "mig-enabled": True, "mig-devices": {"1g.5gb": 7}}],
        },
    }
    assert plan.values["migManager"]["config"] == {"name": "mig-config", "default": "all-disabled"}
    assert plan.values["mig"] == {"strategy": "single"}


def test_mig_geometry_on_ec2_changes_by_a_reboot() -> None:
    reboot = [{"name": "WITH_REBOOT", "value": "true"}]
    assert operator(CUT).values["migManager"]["env"] == reboot
    own = gpu_pool(name="own", nodes=Nodes.EXISTING, sharing=CUT.sharing)
    assert "env" not in operator(own).values["migManager"]


def test_efa_device_plugin_runs_on_efa_pools_only() -> None:
    values = efa_device_plugin.plan(args(gpu_pool(), SPOT, SLICED)).values
    assert values["supportedInstanceLabels"]["values"] == ["p4d.24xlarge"]
    assert values["tolerations"] == TAINTS[:1]


def _requests(values: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for key, value in values.items():
        if key == "resources":
            yield value
        elif isinstance(value, dict):
            yield from _requests(value)


@pytest.mark.parametrize("module", ALL)
def test_every_configurable_container_has_cpu_and_memory_requests(module: Any) -> None:
    found = list(_requests(module.plan(args(gpu_pool(), CUT)).values))
    assert found
    for one in found:
        assert one["requests"].keys() == {"cpu", "memory"}
        assert one["limits"]["memory"] == one["requests"]["memory"]
