"""NVIDIA's device plugin alone: the minimum for schedulable GPUs, on nodes whose image has the driver."""

from __future__ import annotations

from typing import Any, Final

from infra.addons import controllers, gpu_nodes
from infra.addons.gpu_nodes import GpuNodesArgs
from infra.addons.isolation import isolation
from infra.addons.model import WHOLE, AddOn, ChartSource, Image, Installable
from infra.domain import naming
from infra.domain.pools import Nodes

NAME: Final = "devicePlugin"


def plan(args: GpuNodesArgs) -> Installable:
    """Return the release; the plugin fails on a node without a working GPU instead of offering none."""
    shared = gpu_nodes.plugin_config(args)
    values: dict[str, Any] = {
        "affinity": gpu_nodes.gpu_node_affinity(),
        "tolerations": gpu_nodes.tolerations(args.gpu_pools),
        "resources": controllers.resources("50m", "128Mi"),
        "priorityClassName": controllers.NODE_PRIORITY,
        "failOnInitError": True,
    }
    if shared:
        values["config"] = {"map": shared, "default": gpu_nodes.WHOLE_GPUS}
    return Installable(
        add_on=NAME,
        # MIG requires geometries that only the GPU operator configures.
        values=values | {"migStrategy": "none", "deviceListStrategy": _strategy(args)},
        before=(isolation("device-plugin", naming.GPU_OPERATOR_NAMESPACE, egress=False),),
        namespace_labels=gpu_nodes.PRIVILEGED,
    )


def _strategy(args: GpuNodesArgs) -> str:
    """Return how the plugin tells the container toolkit which GPUs a container gets.

    The toolkit of EC2 nodes ignores NVIDIA_VISIBLE_DEVICES of unprivileged containers, so the chart gives the
    plugin's own container SYS_ADMIN (infra/sites/aws/node_config.py). Existing nodes have the toolkit's default.
    """
    on_ec2 = any(pool.nodes is not Nodes.EXISTING for pool in args.gpu_pools)
    return "volume-mounts" if on_ec2 else "envvar"


DEVICE_PLUGIN: Final = AddOn(
    name=NAME,
    summary="Device plugin alone, instead of the GPU operator.",
    chart="nvidia-device-plugin",
    repository="https://nvidia.github.io/k8s-device-plugin",
    version="0.19.1",
    app_version="0.19.1",
    namespace=naming.GPU_OPERATOR_NAMESPACE,
    kubernetes=("1.10", ""),
    images=(
        Image(
            registry="nvcr.io",
            repository="nvidia/k8s-device-plugin",
            tag="v0.19.1",
            values={"image.repository": WHOLE},
        ),
    ),
    chart_source=ChartSource(
        module="github.com/NVIDIA/k8s-device-plugin", path="deployments/helm/nvidia-device-plugin"
    ),
    plan=plan,
)
