"""Volcano: a scheduler of gangs with queues of its own."""

from __future__ import annotations

from infra.addons import controllers
from infra.addons.model import Installable
from infra.domain.addon_versions import ADD_ONS
from infra.queueing.volcano import SCHEDULER_CONFIG

PARTS = ("admission", "controller", "scheduler")
"""Deployments of the chart; the label `app` of their pods is volcano-PART."""


def plan() -> Installable:
    """Two of each part, of which one leads. Which queues there are is no business of the chart's.

    Its containers keep the capability DAC_OVERRIDE, so that its namespace cannot be restricted.
    """
    resources = {
        "requests": {"cpu": "500m", "memory": "512Mi"},
        "limits": {"cpu": "2", "memory": "512Mi"},
    }
    scheduler = {
        "requests": {"cpu": "1", "memory": "1Gi"},
        "limits": {"cpu": "4", "memory": "1Gi"},
    }
    namespace = ADD_ONS["volcano"].namespace
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
                "default_tolerations": list(controllers.TOLERATIONS),
            },
        },
        objects=tuple(
            controllers.disruption_budget(f"volcano-{part}", namespace, {"app": f"volcano-{part}"})
            for part in PARTS
        ),
        namespace_labels=controllers.pod_security("baseline"),
    )
