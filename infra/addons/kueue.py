"""Kueue: queues runs and admits them when they fit their quota; its chart and its own configuration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import yaml

from infra.addons import controllers
from infra.addons.isolation import isolation
from infra.addons.model import WHOLE, AddOn, ChartSource, Image, Installable, placed
from infra.domain import naming
from infra.domain.launcher_support import KINDS
from infra.sections.scheduler import GangTimeoutsConfig

API: Final = "config.kueue.x-k8s.io/v1beta2"

STEERING_GATE: Final = "ConcurrentAdmission"
"""On where runs are steered: the scheduler then reads which flavors a Workload may have, see
docs/adr/15-costs-and-spot.md. None of our queues has a `concurrentAdmissionPolicy`, so nothing else of it acts."""

RECLAIM_GATE: Final = "ReclaimablePods"
"""Off: a gang holds all of its nodes until it ends, see docs/adr/05-scheduling.md."""

TOPOLOGY_CACHE_GATE: Final = "TASCacheTopologyTree"
"""On: the scheduler builds the tree of a pool's nodes after a change of these nodes, and not in every cycle; see
docs/adr/05-scheduling.md. Off by default in 0.19."""


PRODUCTION_TIMEOUTS: Final = GangTimeoutsConfig()
"""Those of a stack file that names none."""


RETRIES: Final = 400
"""Evictions of a gang that is not ready in time, in its whole life, after which Kueue deactivates it: three weeks
at 80 minutes each (start timeout and longest backoff), about as long as provisioning is retried (scale_up.py).
Preemptions do not count."""


def wait_for_pods_ready(timeouts: GangTimeoutsConfig) -> dict[str, Any]:
    """Return when a gang that does not start is evicted, and when it is retried."""
    return {
        "timeout": f"{timeouts.start_seconds}s",
        "recoveryTimeout": f"{timeouts.recovery_seconds}s",
        # A gang that does not start must not block others.
        "blockAdmission": False,
        "requeuingStrategy": {
            "timestamp": "Eviction",
            "backoffLimitCount": RETRIES,
            "backoffBaseSeconds": timeouts.backoff_seconds,
            "backoffMaxSeconds": timeouts.max_backoff_seconds,
        },
    }


def throughput_config() -> dict[str, Any]:
    """Return client limits and numbers of workers: the defaults of Kueue's chart since 0.19."""
    workers = {
        "Job.batch": 5,
        "Pod": 5,
        "Workload.kueue.x-k8s.io": 10,
        "LocalQueue.kueue.x-k8s.io": 5,
        "ClusterQueue.kueue.x-k8s.io": 5,
        "ResourceFlavor.kueue.x-k8s.io": 1,
    }
    return {
        "controller": {"groupKindConcurrency": workers},
        "clientConnection": {"qps": 300, "burst": 500},
    }


def scheduling_config(
    timeouts: GangTimeoutsConfig, frameworks: Sequence[str], *, steered: bool
) -> dict[str, Any]:
    """Return the part of Kueue's configuration that decides on admission and preemption.

    `steered`: whether a program moves runs between the flavors of their queue.
    """
    return {
        "manageJobsWithoutQueueName": False,
        "featureGates": {
            RECLAIM_GATE: False,
            TOPOLOGY_CACHE_GATE: True,
            **({STEERING_GATE: True} if steered else {}),
        },
        "waitForPodsReady": wait_for_pods_ready(timeouts),
        # Its presence enables fair sharing.
        "fairSharing": {
            "preemptionStrategies": ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]
        },
        "integrations": {
            "frameworks": list(frameworks),
            "labelKeysToCopy": [naming.RUN_ID, naming.TEAM, naming.GROUP, naming.GROUPS_MIN],
        },
    }


def chart_config(
    *,
    steered: bool = False,
    timeouts: GangTimeoutsConfig = PRODUCTION_TIMEOUTS,
    leader_elect: bool = True,
) -> dict[str, Any]:
    frameworks = [one.framework for one in KINDS]
    return {
        "apiVersion": API,
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": ":8081"},
        "metrics": {"bindAddress": ":8443", "enableClusterQueueResources": True},
        "webhook": {"port": 9443},
        "leaderElection": {"leaderElect": leader_elect, "resourceName": "c1f6bfd2.kueue.x-k8s.io"},
        **throughput_config(),
        **scheduling_config(timeouts, frameworks, steered=steered),
    }


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
    config = chart_config(steered=steered, timeouts=timeouts, leader_elect=replicas > 1)
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
