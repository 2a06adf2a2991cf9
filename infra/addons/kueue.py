"""Kueue: queues runs and admits them when they fit their quota."""

from __future__ import annotations

from typing import Final

import yaml

from infra.addons import controllers, kueue_config
from infra.addons.isolation import isolation
from infra.addons.kueue_config import PRODUCTION_TIMEOUTS
from infra.addons.model import WHOLE, AddOn, ChartSource, Image, Installable, placed
from infra.domain import naming
from infra.sections.scheduler import GangTimeoutsConfig

LABELS: Final = {"app.kubernetes.io/name": "kueue", "control-plane": "controller-manager"}
"""Labels of its pods."""


def plan(
    timeouts: GangTimeoutsConfig = PRODUCTION_TIMEOUTS,
    *,
    steered: bool = False,
    after_jobset: bool = False,
    replicas: int = controllers.REPLICAS,
) -> Installable:
    """Return the release: managers of which one leads; all serve the webhook that every Job passes.

    `steered`: whether a program moves runs between the flavors of their queue (infra/addons/steering.py).
    `after_jobset`: install it after JobSet. It looks for kinds of jobs when it starts, then every two minutes: a
    minute's wait, which pays where nodes are there already and runs start at once.
    """
    config = kueue_config.chart_config(
        steered=steered, timeouts=timeouts, leader_elect=replicas > 1
    )
    return Installable(
        add_on="kueue",
        needs=("jobset",) if after_jobset else (),
        values={
            "controllerManager": {
                "replicas": replicas,
                "podDisruptionBudget": controllers.DISRUPTION_BUDGET,
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
    placed=placed("controllerManager"),
    plan=plan,
)
