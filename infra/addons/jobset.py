"""JobSet: gangs of Jobs."""

from __future__ import annotations

from infra.addons import controllers
from infra.addons.model import Installable

LABELS = {"app.kubernetes.io/name": "jobset"}
"""Of its pods."""


def plan() -> Installable:
    """Two controllers, of which one leads. What it makes is asked of Kueue only once there are runs."""
    return Installable(
        add_on="jobset",
        values={
            "image": {"pullPolicy": "IfNotPresent"},
            "controller": {
                "replicas": controllers.REPLICAS,
                "leaderElection": {"enable": True},
                "podDisruptionBudget": controllers.DISRUPTION_BUDGET,
                "resources": {
                    "requests": {"cpu": "500m", "memory": "512Mi"},
                    "limits": {"cpu": "2", "memory": "512Mi"},
                },
                "tolerations": list(controllers.TOLERATIONS),
                "affinity": controllers.apart(LABELS),
            },
        },
        namespace_labels=controllers.pod_security("restricted"),
    )
