"""External Secrets: makes Secrets of teams' namespaces from what they keep in a store."""

from __future__ import annotations

from typing import Final

from infra.addons import controllers
from infra.addons.model import WHOLE, AddOn, Image, Installable
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


EXTERNAL_SECRETS: Final = AddOn(
    name="externalSecrets",
    chart="oci://ghcr.io/external-secrets/charts/external-secrets",
    version="2.13.0",
    app_version="v2.13.0",
    namespace=naming.EXTERNAL_SECRETS,
    # Upstream tests the newest versions only; 1.33 left its table with 0.20.
    kubernetes=("1.34", ""),
    apis=dict.fromkeys(("ExternalSecret", "SecretStore"), naming.EXTERNAL_SECRETS_API),
    images=(
        Image(
            registry="ghcr.io",
            repository="external-secrets/external-secrets",
            tag="v2.13.0",
            values={
                f"{part}image.repository": WHOLE for part in ("", "webhook.", "certController.")
            },
        ),
    ),
    plan=plan,
)
