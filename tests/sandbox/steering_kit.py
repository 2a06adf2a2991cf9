"""What tests of `spot steer` share: its objects and rights, and runs that name a rank."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from infra.addons import steering
from infra.domain import naming
from infra.kubernetes.admission_policy import binding
from infra.kubernetes.objects import Manifest
from infra.queueing import kueue_admission
from infra.sections.programs import SteeringConfig
from infra.tenancy import access
from ops.cluster import Cluster as Api
from ops.metrics import Sample
from tests.sandbox.conftest import Cluster
from tests.sandbox.costs_kit import namespace


def add_on(settings: Mapping[str, Any], *teams: str) -> list[Manifest]:
    """What the add-on renders, without its pod, and the policy that keeps others from Workloads."""
    cordons = bool(settings.get("cordonNamedNodes"))
    section = SteeringConfig.model_construct(image="none", cordon_named_nodes=cordons)
    found = copy.deepcopy(steering.plan(section, settings, prometheus=False))
    policy = kueue_admission.workloads_written_by_kueue()
    home = namespace(naming.STEERING_NAMESPACE, **found.namespace_labels)
    roles = [role for team in teams for role in access.steering_access(team)]
    return [home, policy, binding(policy), *found.before, *roles]


def api(cluster: Cluster, folder: Path) -> Api:
    """Return the API server as the add-on's service account sees it."""
    file, home = folder / "kubeconfig", naming.STEERING_NAMESPACE
    return Api(cluster.kubeconfig_as(file, steering.NAME, home))


@dataclass
class Named:
    """A Prometheus in which one run of a team names one rank. `at`: the sample's value, seconds since 1970."""

    team: str
    run: str
    node: str
    symptom: str
    at: float = field(default_factory=time.time)

    def query(self, expression: object) -> list[Sample]:
        labels = {"namespace": naming.namespace(self.team), "run_id": self.run}
        labels |= {"symptom": self.symptom, "culprit_node": self.node, "culprit_rank": "0"}
        return [Sample(labels=labels, value=self.at)] if "culprit" in str(expression) else []
