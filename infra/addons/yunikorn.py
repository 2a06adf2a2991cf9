"""YuniKorn: a scheduler with one tree of queues for the whole cluster."""

from __future__ import annotations

from infra.addons import controllers
from infra.addons.model import Installable


def plan() -> Installable:
    """One scheduler: it cannot be more than one, and finds its state again in the pods when it comes back."""
    return Installable(
        add_on="yunikorn",
        values={
            # Its webhook would hand every pod of the cluster to YuniKorn; runs name it themselves.
            "embedAdmissionController": False,
            # A page that anybody who reaches it could read.
            "enableWebService": False,
            "service": {"type": "ClusterIP"},
            "priorityClassName": controllers.PRIORITY,
            "tolerations": list(controllers.TOLERATIONS),
            "resources": {
                "requests": {"cpu": "500m", "memory": "1Gi"},
                "limits": {"cpu": "4", "memory": "2Gi"},
            },
        },
        namespace_labels=controllers.pod_security("baseline"),
    )
