"""DCGM exporter without the GPU operator, which contains its own; used with the plain device plugin.

One DCGM engine per node: where EKS's node monitoring agent runs one, the exporter is its client, else it starts an
embedded engine. See gpu_operator.py for why two engines conflict.
"""

from __future__ import annotations

from typing import Any, Final

from infra.addons import controllers, gpu_nodes
from infra.addons.gpu_nodes import GpuNodesArgs
from infra.addons.isolation import isolation
from infra.addons.model import WHOLE, AddOn, Image, Installable
from infra.domain import naming
from infra.observability import dcgm

NAME: Final = "dcgmExporter"

ENGINE_PORT: Final = 5555
"""DCGM's default port, on the node."""

METRICS_PORT: Final = 9400

_ENGINE_OF_NODE: Final[list[dict[str, Any]]] = [
    {"name": "HOST_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}},
    {"name": "DCGM_REMOTE_HOSTENGINE_INFO", "value": f"$(HOST_IP):{ENGINE_PORT}"},
]


def plan(args: GpuNodesArgs) -> Installable:
    """Return the release with the platform's counters, on GPU nodes."""
    return Installable(
        add_on=NAME,
        values={
            "affinity": gpu_nodes.gpu_node_affinity(),
            "tolerations": gpu_nodes.tolerations(args.gpu_pools),
            "resources": controllers.chart_resources("100m", "512Mi"),
            "priorityClassName": controllers.NODE_PRIORITY,
            "customMetrics": dcgm.counters_csv(),
            # The kubelet reports which pod holds a GPU; a recording rule joins run and team.
            "kubernetes": {"enablePodLabels": False},
            "serviceMonitor": {"enabled": False},
            **({"extraEnv": _ENGINE_OF_NODE} if args.engine_on_nodes else {}),
        },
        before=(
            isolation(
                "dcgm-exporter",
                naming.GPU_OPERATOR_NAMESPACE,
                metrics=(METRICS_PORT,),
                egress=False,
            ),
        ),
        namespace_labels=gpu_nodes.PRIVILEGED,
    )


IMAGE: Final = Image(
    registry="nvcr.io",
    repository="nvidia/k8s/dcgm-exporter",
    tag="4.6.0-4.8.3-distroless",
    values={"image.repository": WHOLE},
)
"""The tag names DCGM's version, the exporter's and the kind of image. 4.9 renames series that rules read."""

DCGM_EXPORTER: Final = AddOn(
    name=NAME,
    summary="GPU metrics, with the device plugin alone.",
    chart="dcgm-exporter",
    repository="https://nvidia.github.io/dcgm-exporter/helm-charts",
    version="4.8.3",
    app_version="4.6.0-4.8.3",
    namespace=naming.GPU_OPERATOR_NAMESPACE,
    kubernetes=("1.19", ""),
    images=(IMAGE,),
    needs=("devicePlugin",),
    plan=plan,
)
