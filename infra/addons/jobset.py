"""JobSet: gangs of Jobs."""

from __future__ import annotations

from typing import Final

from infra.addons import controllers
from infra.addons.isolation import isolation
from infra.addons.model import WHOLE, AddOn, ChartSource, Image, Installable, placed
from infra.domain import naming

LABELS: Final = {"app.kubernetes.io/name": "jobset"}
"""Labels of its pods."""


def plan() -> Installable:
    """Return the release: two controllers, one leading."""
    return Installable(
        add_on="jobset",
        values={
            "image": {"pullPolicy": "IfNotPresent"},
            "controller": {
                "replicas": controllers.REPLICAS,
                "leaderElection": {"enable": True},
                "podDisruptionBudget": controllers.DISRUPTION_BUDGET,
                "resources": controllers.chart_resources("500m", "512Mi"),
                "affinity": controllers.anti_affinity(LABELS),
            },
        },
        before=(isolation("jobset", naming.JOBSET_NAMESPACE, called=(9443,), metrics=(8443,)),),
        namespace_labels=controllers.pod_security("restricted"),
    )


JOBSET: Final = AddOn(
    name="jobset",
    summary="Launcher `jobset`.",
    chart="oci://registry.k8s.io/jobset/charts/jobset",
    version="0.12.0",
    app_version="v0.12.0",
    namespace=naming.JOBSET_NAMESPACE,
    kubernetes=("1.29", ""),
    apis={"JobSet": "jobset.x-k8s.io/v1alpha2"},
    images=(
        Image(
            registry="registry.k8s.io",
            repository="jobset/jobset",
            tag="v0.12.0",
            values={"image.repository": WHOLE},
        ),
    ),
    toolchain="0.12.0",
    chart_source=ChartSource(module="sigs.k8s.io/jobset", path="charts/jobset"),
    placed=placed("controller"),
    plan=plan,
)
