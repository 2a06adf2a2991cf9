"""The add-ons `costs` and `steering` as they are rendered, on the sandbox's cluster, and what their pods serve."""

from __future__ import annotations

import contextlib
import copy
import time
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from infra.addons import cost_control, steering
from infra.domain import naming
from infra.kubernetes.admission_policy import binding
from infra.kubernetes.objects import Manifest
from infra.queueing import kueue_admission
from infra.sections.programs import CostsConfig, SteeringConfig
from infra.tenancy import access
from ops.cluster import Cluster as Api
from ops.metrics import Sample
from sandbox import paths
from sandbox.node.images import REGISTRY
from tests.sandbox.conftest import Cluster
from training import source


def ops_image() -> str:
    return f"{REGISTRY}/ops@sha256:{source.digest(paths.PROJECT, source.OPS)}"


def namespace(name: str, **labels: str) -> Manifest:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


@contextlib.contextmanager
def applied(cluster: Cluster, objects: list[Manifest]) -> Iterator[None]:
    try:
        cluster.apply(*objects)
        yield
    finally:
        cluster.delete(*objects)


def objects(team: str, flavor: str, gpu_hours: float, storage_class: str) -> list[Manifest]:
    """What the add-on renders for a team with a budget, in the order of creation; it drains runs on the flavor."""
    budget = {
        "team": team,
        "usdPerMonth": None,
        "gpuHoursPerMonth": gpu_hours,
        "warnAt": 0.8,
        "action": "drain",
        "spotFlavors": [flavor],
        "usualPriority": 0,
    }
    section = CostsConfig.model_construct(image=ops_image(), volume="1Gi", every_seconds=1)
    found = copy.deepcopy(cost_control.plan(section, [budget], storage_class, prometheus=False))
    home = namespace(naming.COSTS_NAMESPACE, **found.namespace_labels)
    return [home, *access.costs_access(team), *found.before, *found.objects]


def on_node(manifests: list[Manifest], node: str) -> list[Manifest]:
    """The same without the volume's claim, and with the pod on a node."""
    kept = [one for one in manifests if one["kind"] != "PersistentVolumeClaim"]
    for one in kept:
        if one["kind"] == "Deployment":
            spec = one["spec"]["template"]["spec"]
            spec["nodeName"] = node
            claims = [v for v in spec["volumes"] if "persistentVolumeClaim" in v]
            for volume in claims:
                del volume["persistentVolumeClaim"]
                volume["emptyDir"] = {}
    return kept


def metrics(
    cluster: Cluster, home: str = naming.COSTS_NAMESPACE, port: int = naming.COSTS_METRICS_PORT
) -> str:
    """What the pod in a namespace serves now."""
    where = ("-n", home, "-o", "jsonpath={.items[*].status.podIP}")
    address = cluster.kubectl("get", "pods", *where).strip()
    url = f"http://{address}:{port}/metrics"
    with urllib.request.urlopen(url, timeout=60) as answer:
        text: str = answer.read().decode()
        return text


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
