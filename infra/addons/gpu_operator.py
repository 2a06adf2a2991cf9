"""NVIDIA's GPU operator: device plugin, labels of GPUs, MIG, DCGM and its exporter, as one release.

On EKS' images driver and container toolkit are there already; where an image has none, the operator brings both.

One DCGM engine per node. Two would fight over the GPUs' profiling counters, of which there is one set, and the
driver may lock up; DCGM's makers do not support it (NVIDIA/DCGM issue 108). The exporter would start its own by
default. So the operator runs the engine by itself, and everybody is its client: the exporter, EKS' node
monitoring agent (infra/sites/aws/node_health.py), and whoever calls dcgmi.

The exporter asks the kubelet which pod holds a GPU, so that its series name namespace, pod and container. It gets
no right to read pods: the run and its team are joined by a recording rule (infra/observability/recording.py).
"""

from __future__ import annotations

from typing import Any, Final

import yaml

from infra.addons import controllers, dcgm_exporter, gpu_nodes
from infra.addons.gpu_nodes import GpuNodesArgs
from infra.addons.model import PARENT, WHOLE, AddOn, Image, Installable
from infra.domain import naming
from infra.domain.gpu_sharing import SharingMode
from infra.domain.pools import NodePool, Nodes
from infra.kubernetes.objects import Manifest
from infra.observability import dcgm

NAME: Final = "gpuOperator"

DCGM_ADDRESS: Final = f"nvidia-dcgm.{naming.GPU_OPERATOR_NAMESPACE}.svc:5555"
"""The engine on the caller's own node: the operator's Service never leads to another one."""

COUNTERS: Final = "dcgm-counters"
COUNTERS_FILE: Final = "dcgm-metrics.csv"
"""The key that the operator mounts."""
MIG_CONFIG: Final = "mig-config"
NO_MIG: Final = "all-disabled"

_UNUSED: Final = (
    *("sandboxDevicePlugin", "kataSandboxDevicePlugin", "vfioManager"),
    *("vgpuManager", "vgpuDeviceManager", "ccManager", "nodeStatusExporter"),
)
"""For virtual machines and confidential computing: each would be one more privileged DaemonSet."""


def plan(args: GpuNodesArgs) -> Installable:
    """The release, its counters, and the configurations of pools that share GPUs."""
    tolerated = gpu_nodes.tolerations(args.gpu_pools)
    shared, cut = gpu_nodes.plugin_config(args), args.shared(SharingMode.MIG)
    return Installable(
        add_on=NAME,
        values={
            "driver": {"enabled": args.operator_brings_driver},
            "toolkit": {"enabled": args.operator_brings_driver},
            "daemonsets": {"tolerations": tolerated},
            "node-feature-discovery": {"worker": {"tolerations": tolerated}},
            "operator": {"resources": _OPERATOR},
            "devicePlugin": {
                "resources": controllers.resources("50m", "128Mi"),
                **({"config": _named_parts()} if shared else {}),
            },
            "gfd": {"enabled": True, "resources": controllers.resources("50m", "128Mi")},
            # A pool is cut alike, so that an instance counts as one `nvidia.com/gpu`; with `mixed` pods would
            # ask for resources that no queue counts.
            "mig": {"strategy": "single"},
            "migManager": _mig_manager(cut),
            "dcgm": {"enabled": True, "resources": controllers.resources("100m", "512Mi")},
            "dcgmExporter": _exporter(),
            **{part: {"enabled": False} for part in _UNUSED},
        },
        before=tuple(_config_maps(shared, cut)),
        namespace_labels=gpu_nodes.PRIVILEGED,
    )


_OPERATOR: Final = {
    "requests": {"cpu": "200m", "memory": "350Mi"},
    "limits": {"cpu": "500m", "memory": "350Mi"},
}


def _named_parts() -> dict[str, str]:
    return {"name": gpu_nodes.PLUGIN_CONFIG, "default": gpu_nodes.WHOLE_GPUS}


def _exporter() -> dict[str, Any]:
    return {
        "enabled": True,
        "version": dcgm_exporter.IMAGE.tag,
        "config": {"name": COUNTERS},
        "resources": controllers.resources("100m", "512Mi"),
        # Ours is a PodMonitor that gives jobs and nodes their names (infra/observability/monitors.py).
        "serviceMonitor": {"enabled": False},
    }


def _mig_manager(cut: tuple[NodePool, ...]) -> dict[str, Any]:
    if not cut:
        return {"enabled": False}
    on_ec2 = any(pool.nodes is not Nodes.EXISTING for pool in cut)
    return {
        "enabled": True,
        "config": {"name": MIG_CONFIG, "default": NO_MIG},
        "resources": controllers.resources("50m", "128Mi"),
        # MIG mode takes a reset of the GPU, which EC2's instances do by a reboot.
        **({"env": [{"name": "WITH_REBOOT", "value": "true"}]} if on_ec2 else {}),
    }


def _config_maps(shared: dict[str, str], cut: tuple[NodePool, ...]) -> list[Manifest]:
    found = [gpu_nodes.config_map(COUNTERS, {COUNTERS_FILE: dcgm.counters_csv()})]
    if shared:
        found.append(gpu_nodes.config_map(gpu_nodes.PLUGIN_CONFIG, shared))
    if cut:
        text = yaml.safe_dump(mig_configs(cut), sort_keys=False)
        found.append(gpu_nodes.config_map(MIG_CONFIG, {"config.yaml": text}))
    return found


def mig_configs(cut: tuple[NodePool, ...]) -> dict[str, Any]:
    """The MIG manager's configuration: a geometry per pool, by the name that its nodes' label has."""
    geometries = {NO_MIG: [{"devices": "all", "mig-enabled": False}]}
    for pool in cut:
        assert pool.sharing
        devices = {pool.sharing.profile: pool.sharing.shares}
        geometries[pool.name] = [{"devices": "all", "mig-enabled": True, "mig-devices": devices}]
    return {"version": "v1", "mig-configs": geometries}


def _operand(key: str, repository: str, tag: str = "") -> Image:
    """An operand, whose registry folder and image name are separate values of the chart."""
    return Image(
        registry="nvcr.io", repository=repository, tag=tag, values={f"{key}.repository": PARENT}
    )


GPU_OPERATOR: Final = AddOn(
    name=NAME,
    chart="gpu-operator",
    repository="https://helm.ngc.nvidia.com/nvidia",
    version="v26.7.0",
    app_version="v26.7.0",
    namespace=naming.GPU_OPERATOR_NAMESPACE,
    kubernetes=("1.32", ""),
    apis={"ClusterPolicy": "nvidia.com/v1"},
    images=(
        # The validator has been a part of the operator's image since 25.10.
        Image(
            registry="nvcr.io",
            repository="nvidia/gpu-operator",
            tag="v26.7.0",
            values={"operator.repository": PARENT, "validator.repository": PARENT},
        ),
        _operand("driver", "nvidia/driver"),
        _operand("driver.manager", "nvidia/cloud-native/k8s-driver-manager"),
        _operand("toolkit", "nvidia/k8s/container-toolkit"),
        _operand("devicePlugin", "nvidia/k8s-device-plugin"),
        _operand("gfd", "nvidia/k8s-device-plugin"),
        _operand("migManager", "nvidia/cloud-native/k8s-mig-manager"),
        _operand("dcgm", "nvidia/cloud-native/dcgm"),
        _operand("dcgmExporter", dcgm_exporter.IMAGE.repository, dcgm_exporter.IMAGE.tag),
        Image(
            registry="registry.k8s.io",
            repository="nfd/node-feature-discovery",
            values={"node-feature-discovery.image.repository": WHOLE},
        ),
    ),
    settings=GpuNodesArgs,
    plan=plan,
)
