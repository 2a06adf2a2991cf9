"""Kubeflow Trainer: TrainJobs, which it turns into JobSets."""

from __future__ import annotations

from typing import Final

from infra.addons import controllers
from infra.addons.model import Installable
from infra.domain.addon_versions import ADD_ONS

LABELS: Final = {
    "app.kubernetes.io/name": "kubeflow-trainer",
    "app.kubernetes.io/component": "manager",
}
"""Of its pods."""


def plan() -> Installable:
    """Two managers, of which one leads.

    After JobSet: it watches JobSets from its start, and ends where there is no such API.
    """
    return Installable(
        add_on="kubeflowTrainer",
        values={
            # JobSet is a release of its own; two would fight over its CRDs.
            "jobset": {"install": False},
            "manager": {
                "replicas": controllers.REPLICAS,
                "resources": {
                    "requests": {"cpu": "100m", "memory": "256Mi"},
                    "limits": {"cpu": "1", "memory": "256Mi"},
                },
                "tolerations": list(controllers.TOLERATIONS),
                "affinity": controllers.apart(LABELS),
                # The chart sets all else that restricted pods need.
                "securityContext": {"readOnlyRootFilesystem": True},
            },
        },
        after=("jobset",),
        # The chart has no budget of its own.
        objects=(
            controllers.disruption_budget(
                "kubeflow-trainer", ADD_ONS["kubeflowTrainer"].namespace, LABELS
            ),
        ),
        namespace_labels=controllers.pod_security("restricted"),
    )
