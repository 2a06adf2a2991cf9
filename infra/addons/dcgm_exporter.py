"""DCGM's exporter by itself, beside the plain device plugin; the GPU operator brings its own.

One engine per node: where EKS' node monitoring agent runs one already, the exporter is its client, else it starts
the engine inside of itself. See gpu_operator.py for why two must not meet.
"""

from __future__ import annotations

from typing import Any, Final

from infra.addons import controllers, gpu_nodes
from infra.addons.gpu_nodes import GpuNodesArgs
from infra.addons.model import Installable
from infra.observability import dcgm

NAME: Final = "dcgmExporter"

ENGINE_PORT: Final = 5555
"""Of the node: DCGM's own port."""

_ENGINE_OF_NODE: Final[list[dict[str, Any]]] = [
    {"name": "HOST_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}},
    {"name": "DCGM_REMOTE_HOSTENGINE_INFO", "value": f"$(HOST_IP):{ENGINE_PORT}"},
]


def plan(args: GpuNodesArgs) -> Installable:
    """The release with our counters, on nodes with GPUs."""
    return Installable(
        add_on=NAME,
        values={
            "affinity": gpu_nodes.on_gpu_nodes(),
            "tolerations": gpu_nodes.tolerations(args.gpu_pools),
            "resources": controllers.resources("100m", "512Mi"),
            "customMetrics": dcgm.counters_csv(),
            # The kubelet tells which pod holds a GPU; run and team are joined by a recording rule.
            "kubernetes": {"enablePodLabels": False},
            "serviceMonitor": {"enabled": False},
            **({"extraEnv": _ENGINE_OF_NODE} if args.engine_on_nodes else {}),
        },
        after=("devicePlugin",),
        namespace_labels=gpu_nodes.PRIVILEGED,
    )
