"""Kueue: queues runs and admits them when they fit their quota."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import yaml

from infra.addons import controllers, kueue_config
from infra.addons.isolation import isolation
from infra.addons.model import WHOLE, AddOn, ChartSource, Image, Installable
from infra.domain import naming

LABELS: Final = {"app.kubernetes.io/name": "kueue", "control-plane": "controller-manager"}
"""Labels of its pods."""


@dataclass(frozen=True, kw_only=True)
class KueueArgs:
    """Settings of Kueue."""

    steered: bool = False
    """Whether a program moves runs between the flavors of their queue (infra/addons/steering.py)."""
    replicas: int = controllers.REPLICAS
    timeouts: kueue_config.Timeouts = kueue_config.PRODUCTION_TIMEOUTS
    after_jobset: bool = False
    """Whether it is installed after JobSet. It looks for kinds of jobs when it starts, then every two minutes.

    A minute's wait, which pays where nodes are there already and runs start at once.
    """


def plan(args: KueueArgs) -> Installable:
    """Return the release: managers of which one leads; all serve the webhook that every Job passes."""
    config = kueue_config.chart_config(
        steered=args.steered, timeouts=args.timeouts, leader_elect=args.replicas > 1
    )
    return Installable(
        add_on="kueue",
        needs=("jobset",) if args.after_jobset else (),
        values={
            "controllerManager": {
                "replicas": args.replicas,
                "podDisruptionBudget": controllers.DISRUPTION_BUDGET,
                "tolerations": list(controllers.TOLERATIONS),
                "topologySpreadConstraints": controllers.topology_spread(LABELS),
                "manager": {
                    "priorityClassName": controllers.PRIORITY,
                    "image": {"pullPolicy": "IfNotPresent"},
                    # It caches every Workload, pod and node of the cluster.
                    "resources": controllers.chart_resources("500m", "1Gi"),
                },
            },
            "managerConfig": {
                # The chart expects a string.
                "controllerManagerConfigYaml": yaml.safe_dump(config, sort_keys=False)
            },
        },
        # Webhook and visibility API.
        before=(isolation("kueue", naming.KUEUE_NAMESPACE, called=(9443, 8082), metrics=(8443,)),),
        namespace_labels=controllers.pod_security("restricted"),
    )


_KINDS: Final = (
    *("AdmissionCheck", "ClusterQueue", "Cohort", "LocalQueue", "ProvisioningRequestConfig"),
    *("ResourceFlavor", "Topology", "Workload", "WorkloadPriorityClass"),
)

KUEUE: Final = AddOn(
    name="kueue",
    summary="Queues runs and admits gangs.",
    chart="oci://registry.k8s.io/kueue/charts/kueue",
    version="0.19.2",
    app_version="v0.19.2",
    namespace=naming.KUEUE_NAMESPACE,
    kubernetes=("1.29", ""),
    apis=dict.fromkeys(_KINDS, naming.KUEUE_API),
    images=(
        Image(
            registry="registry.k8s.io",
            repository="kueue/kueue",
            tag="v0.19.2",
            values={"controllerManager.manager.image.repository": WHOLE},
        ),
    ),
    toolchain="0.19.2",
    chart_source=ChartSource(module="sigs.k8s.io/kueue", path="charts/kueue"),
    settings=KueueArgs,
    plan=plan,
)
