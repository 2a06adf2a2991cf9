"""Kueue: holds runs back until they fit."""

from __future__ import annotations

from typing import Final

import yaml

from infra.addons import controllers, kueue_config
from infra.addons.model import Installable

LABELS: Final = {"app.kubernetes.io/name": "kueue", "control-plane": "controller-manager"}
"""Of its pods."""


def plan() -> Installable:
    """Two managers, of which one leads; both answer the webhook, without which no Job is created."""
    return Installable(
        add_on="kueue",
        values={
            "controllerManager": {
                "replicas": controllers.REPLICAS,
                "podDisruptionBudget": controllers.DISRUPTION_BUDGET,
                "tolerations": list(controllers.TOLERATIONS),
                "topologySpreadConstraints": controllers.spread(LABELS),
                "manager": {
                    "priorityClassName": controllers.PRIORITY,
                    "image": {"pullPolicy": "IfNotPresent"},
                    # It keeps every Workload, pod and node of the cluster in memory.
                    "resources": {
                        "requests": {"cpu": "500m", "memory": "1Gi"},
                        "limits": {"cpu": "2", "memory": "1Gi"},
                    },
                },
            },
            "managerConfig": {
                # The chart wants it as text.
                "controllerManagerConfigYaml": yaml.safe_dump(
                    kueue_config.of_chart(), sort_keys=False
                )
            },
        },
        namespace_labels=controllers.pod_security("restricted"),
    )
