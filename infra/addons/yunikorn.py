"""YuniKorn: a scheduler with one tree of queues per cluster."""

from __future__ import annotations

from typing import Final

from infra.addons import controllers
from infra.addons.isolation import isolation
from infra.addons.model import WHOLE, AddOn, Image, Installable, placed
from infra.queueing.yunikorn import NAMESPACE, PLACEHOLDER


def plan() -> Installable:
    """Return the release: a single scheduler, which recovers its state from the pods after a restart."""
    return Installable(
        add_on="yunikorn",
        values={
            # Its webhook would assign every pod of the cluster to YuniKorn; runs set `schedulerName` themselves.
            "embedAdmissionController": False,
            # It has no authentication.
            "enableWebService": False,
            "service": {"type": "ClusterIP"},
            "priorityClassName": controllers.PRIORITY,
            "resources": controllers.chart_resources("500m", "2Gi"),
        },
        before=(isolation("yunikorn", NAMESPACE, metrics=(9080,)),),
        namespace_labels=controllers.pod_security("baseline"),
    )


YUNIKORN: Final = AddOn(
    name="yunikorn",
    summary="Gang scheduler with a tree of queues.",
    chart="yunikorn",
    repository="https://apache.github.io/yunikorn-release",
    version="1.9.0",
    app_version="1.9.0",
    namespace=NAMESPACE,
    kubernetes=("1.24", ""),
    images=(
        Image(
            registry="docker.io",
            repository="apache/yunikorn",
            tag="scheduler-1.9.0",
            values={"image.repository": WHOLE},
        ),
        Image.parse(PLACEHOLDER),
    ),
    placed=placed(""),
    plan=plan,
)
