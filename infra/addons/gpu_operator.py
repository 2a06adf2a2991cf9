"""NVIDIA's GPU operator: device plugin, GPU labels, MIG, DCGM and its exporter, as one release.

EKS's images contain driver and container toolkit; for images without them the operator installs both.

One DCGM engine per node: two conflict over the GPUs' single set of profiling counters and may hang the driver,
which upstream does not support (NVIDIA/DCGM issue 108). The exporter would embed another engine by default. So
the operator runs the engine standalone, and the exporter, EKS's node monitoring agent
(infra/sites/aws/node_health.py) and dcgmi are its clients.

The exporter gets the pod of a GPU from the kubelet, so that its series have namespace, pod and container. It has
no right to read pods: a recording rule joins run and team (infra/observability/recording.py).
"""

from __future__ import annotations

from typing import Any, Final

import yaml

from infra.addons import controllers, dcgm_exporter, gpu_nodes
from infra.addons.gpu_nodes import GpuNodesArgs
from infra.addons.isolation import isolation
from infra.addons.model import PARENT, WHOLE, AddOn, Image, Installable, placed
from infra.domain import naming
from infra.domain.gpu_sharing import SharingMode
from infra.domain.pools import NodePool, Nodes
from infra.kubernetes.objects import Manifest
from infra.observability import dcgm

NAME: Final = "gpuOperator"

DCGM_ADDRESS: Final = f"nvidia-dcgm.{naming.GPU_OPERATOR_NAMESPACE}.svc:5555"
"""The engine on the caller's node: the operator's Service has internalTrafficPolicy Local."""

COUNTERS: Final = "dcgm-counters"
COUNTERS_FILE: Final = "dcgm-metrics.csv"
"""Key that the operator mounts."""
MIG_CONFIG: Final = "mig-config"
NO_MIG: Final = "all-disabled"

_IGNORE_ENVIRONMENT: Final = (
    {"name": "ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED", "value": "false"},
)
"""The operator's own toolkit ignores NVIDIA_VISIBLE_DEVICES of unprivileged containers. EC2 nodes have a toolkit,
which infra/sites/aws/node_config.py sets."""

_UNUSED: Final = (
    *("sandboxDevicePlugin", "kataSandboxDevicePlugin", "vfioManager"),
    *("vgpuManager", "vgpuDeviceManager", "ccManager", "nodeStatusExporter"),
)
"""Operands for virtual machines and confidential computing, each a privileged DaemonSet."""


def plan(args: GpuNodesArgs) -> Installable:
    """Return the release, its counters, and the configurations of pools that share GPUs."""
    tolerated = gpu_nodes.tolerations(args.gpu_pools)
    shared, cut = gpu_nodes.plugin_config(args), args.shared(SharingMode.MIG)
    return Installable(
        add_on=NAME,
        values={
            "driver": {"enabled": args.operator_brings_driver},
            "toolkit": {"enabled": args.operator_brings_driver, "env": list(_IGNORE_ENVIRONMENT)},
            # The plugin names a container's devices to the runtime, not in a variable that an image can set, too.
            "cdi": {"enabled": True},
            "daemonsets": {
                "tolerations": tolerated,
                "priorityClassName": controllers.NODE_PRIORITY,
            },
            "node-feature-discovery": {
                "priorityClassName": controllers.NODE_PRIORITY,
                "worker": {"tolerations": tolerated},
            },
            "operator": {
                "resources": controllers.chart_resources("200m", "350Mi"),
                "priorityClassName": controllers.NODE_PRIORITY,
            },
            "devicePlugin": {
                "resources": controllers.resources("50m", "128Mi"),
                **({"config": _named_parts()} if shared else {}),
            },
            "gfd": {"enabled": True, "resources": controllers.resources("50m", "128Mi")},
            # Each instance counts as one `nvidia.com/gpu`; with `mixed`, pods would request resources that no
            # queue counts.
            "mig": {"strategy": "single"},
            "migManager": _mig_manager(cut),
            "dcgm": {"enabled": True, "resources": controllers.resources("100m", "512Mi")},
            "dcgmExporter": _exporter(),
            **{part: {"enabled": False} for part in _UNUSED},
        },
        # Drivers are fetched from anywhere, exporters ask the engine of their node.
        before=(
            isolation(
                "gpu-operator",
                naming.GPU_OPERATOR_NAMESPACE,
                metrics=(8080, dcgm_exporter.METRICS_PORT),
                each_other=True,
                egress=False,
            ),
            *_config_maps(shared, cut),
        ),
        namespace_labels=gpu_nodes.PRIVILEGED,
    )


def _named_parts() -> dict[str, str]:
    return {"name": gpu_nodes.PLUGIN_CONFIG, "default": gpu_nodes.WHOLE_GPUS}


def _exporter() -> dict[str, Any]:
    return {
        "enabled": True,
        "version": dcgm_exporter.IMAGE.tag,
        "config": {"name": COUNTERS},
        "resources": controllers.resources("100m", "512Mi"),
        # infra/observability/monitors.py has a PodMonitor that sets `job` and `node`.
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
        # MIG mode requires a GPU reset, which on EC2 requires a reboot.
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
    """Return the MIG manager's configuration: a geometry per pool, by the value of its nodes' label."""
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
    summary="Device plugin, GPU labels, MIG and DCGM in one; see `gpus`.",
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
    # Its hooks are Jobs, which Kueue's webhook must be there to admit.
    needs=("kueue",),
    placed=placed("operator", "node-feature-discovery.master", "node-feature-discovery.gc"),
    plan=plan,
)
