"""Kubeflow Trainer: TrainJobs, which it turns into JobSets."""

from __future__ import annotations

from typing import Final

from infra.addons import controllers
from infra.addons.isolation import isolation
from infra.addons.model import AddOn, ChartSource, Image, Installable, placed

LABELS: Final = {
    "app.kubernetes.io/name": "kubeflow-trainer",
    "app.kubernetes.io/component": "manager",
}
"""Labels of its pods."""

_NAMESPACE: Final = "kubeflow-system"
_API: Final = "trainer.kubeflow.org/v1alpha1"


def plan() -> Installable:
    """Return the release: two managers, one leading."""
    return Installable(
        add_on="kubeflowTrainer",
        values={
            # JobSet is a separate release; two would conflict over its CRDs.
            "jobset": {"install": False},
            "manager": {
                "replicas": controllers.REPLICAS,
                "resources": controllers.resources("100m", "256Mi"),
                "affinity": controllers.anti_affinity(LABELS),
                # The chart sets the rest of `restricted`.
                "securityContext": {"readOnlyRootFilesystem": True},
            },
        },
        before=(isolation("kubeflow-trainer", _NAMESPACE, called=(9443,), metrics=(8443,)),),
        # The chart has no PodDisruptionBudget.
        objects=(controllers.disruption_budget("kubeflow-trainer", _NAMESPACE, LABELS),),
        namespace_labels=controllers.pod_security("restricted"),
    )


KUBEFLOW_TRAINER: Final = AddOn(
    name="kubeflowTrainer",
    summary="Launcher `trainjob`.",
    chart="oci://ghcr.io/kubeflow/charts/kubeflow-trainer",
    version="2.3.0",
    app_version="v2.3.0",
    namespace=_NAMESPACE,
    kubernetes=("1.31", ""),
    apis=dict.fromkeys(("TrainJob", "TrainingRuntime"), _API),
    images=(
        Image(
            registry="ghcr.io",
            repository="kubeflow/trainer/trainer-controller-manager",
            tag="v2.3.0",
            values={"image.registry": "{registry}"},
        ),
    ),
    chart_source=ChartSource(
        module="github.com/kubeflow/trainer/v2", path="charts/kubeflow-trainer"
    ),
    # It watches JobSets from its start and exits where that API is missing.
    needs=("jobset",),
    toolchain="2.3.0",
    placed=placed("manager"),
    plan=plan,
)
