"""Volcano: a gang scheduler with queues."""

from __future__ import annotations

from typing import Final

from infra.addons import controllers
from infra.addons.isolation import isolation
from infra.addons.model import AddOn, ChartSource, Image, Installable, PlacedBy
from infra.queueing.volcano import API, SCHEDULER_CONFIG

PARTS: Final = ("admission", "controller", "scheduler")
"""Deployments of the chart; the label `app` of their pods is volcano-PART."""

_NAMESPACE: Final = "volcano-system"


def plan() -> Installable:
    """Return the release: two replicas of each part, one leading, without queues.

    Its containers keep the capability DAC_OVERRIDE, so the namespace cannot be restricted.
    """
    resources = {
        "requests": {"cpu": "500m", "memory": "512Mi"},
        "limits": {"memory": "512Mi"},
    }
    scheduler = {
        "requests": {"cpu": "1", "memory": "1Gi"},
        "limits": {"memory": "1Gi"},
    }
    return Installable(
        add_on="volcano",
        values={
            "basic": {"image_pull_policy": "IfNotPresent"},
            "custom": {
                "scheduler_config_override": SCHEDULER_CONFIG,
                "leader_elect_enable": True,
                **{f"{part}_replicas": controllers.REPLICAS for part in PARTS},
                "admission_resources": resources,
                "controller_resources": resources,
                "scheduler_resources": scheduler,
            },
        },
        before=(isolation("volcano", _NAMESPACE, called=(8443,), metrics=(8080, 8081)),),
        objects=tuple(
            controllers.disruption_budget(f"volcano-{part}", _NAMESPACE, {"app": f"volcano-{part}"})
            for part in PARTS
        ),
        namespace_labels=controllers.pod_security("baseline"),
    )


def _image(part: str) -> Image:
    return Image(
        registry="docker.io",
        repository=f"volcanosh/vc-{part}",
        tag="v1.15.1",
        values={"basic.image_registry": "{registry}"},
    )


VOLCANO: Final = AddOn(
    name="volcano",
    summary="Gang scheduler with queues.",
    chart="volcano",
    repository="https://volcano-sh.github.io/helm-charts",
    version="1.15.1",
    app_version="v1.15.1",
    namespace=_NAMESPACE,
    kubernetes=("1.23", "1.35"),
    apis=dict.fromkeys(("PodGroup", "Queue"), API),
    images=tuple(_image(part) for part in ("controller-manager", "scheduler", "webhook-manager")),
    chart_source=ChartSource(module="volcano.sh/volcano", path="installer/helm/chart/volcano"),
    placed=(PlacedBy(tolerations="custom.default_tolerations", node_selector="custom.default_ns"),),
    plan=plan,
)
