"""External Secrets: makes Secrets of teams' namespaces from what they keep in a store."""

from __future__ import annotations

from infra.addons import controllers
from infra.addons.model import Installable
from infra.domain import naming


def plan() -> Installable:
    """Two controllers, of which one leads, and two webhooks.

    It reads stores and never writes to them, and makes no Secret in namespaces that did not ask for one.
    """
    requests = controllers.resources("50m", "256Mi")
    common = {"resources": requests, "tolerations": list(controllers.TOLERATIONS)}
    twice = {
        "replicaCount": controllers.REPLICAS,
        "podDisruptionBudget": controllers.DISRUPTION_BUDGET,
    }
    return Installable(
        add_on="externalSecrets",
        values={
            # On AWS the controller's role is handed to this account.
            "serviceAccount": {"name": naming.EXTERNAL_SECRETS},
            "leaderElect": True,
            "processClusterExternalSecret": False,
            "processClusterPushSecret": False,
            "processPushSecret": False,
            **twice,
            **common,
            "webhook": {**twice, **common},
            "certController": common,
        },
        namespace_labels=controllers.pod_security("restricted"),
    )
