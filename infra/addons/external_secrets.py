"""External Secrets: creates Secrets in teams' namespaces from external stores."""

from __future__ import annotations

from typing import Final

from infra.addons import controllers
from infra.addons.isolation import isolation
from infra.addons.model import WHOLE, AddOn, Image, Installable, placed
from infra.domain import naming


def plan() -> Installable:
    """Return the release: two controllers, one leading, and two webhooks.

    It never writes to stores, and creates Secrets only in namespaces with an ExternalSecret.
    """
    requests = controllers.resources("50m", "256Mi")
    common = {
        "resources": requests,
        "priorityClassName": controllers.PRIORITY,
    }
    twice = {
        "replicaCount": controllers.REPLICAS,
        "podDisruptionBudget": controllers.DISRUPTION_BUDGET,
    }
    return Installable(
        add_on="externalSecrets",
        values={
            # On AWS the controller's role is associated with this account.
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
        # A store may listen on any port.
        before=(
            isolation(
                "external-secrets",
                naming.EXTERNAL_SECRETS,
                called=(10250,),
                metrics=(8080,),
                egress=False,
            ),
        ),
        namespace_labels=controllers.pod_security("restricted"),
    )


EXTERNAL_SECRETS: Final = AddOn(
    name="externalSecrets",
    summary="Fetches secrets that teams keep in a store.",
    chart="oci://ghcr.io/external-secrets/charts/external-secrets",
    version="2.13.0",
    app_version="v2.13.0",
    # The newest that is served as a Go module.
    toolchain="0.20.4",
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
    placed=placed("", "webhook", "certController"),
    plan=plan,
)
