"""The add-on `costs` as it is rendered, on the sandbox's cluster, and what its pod serves."""

from __future__ import annotations

import contextlib
import copy
import json
import urllib.request
from collections.abc import Iterator

from infra.addons import cost_control
from infra.domain import naming
from infra.kubernetes.objects import Manifest
from infra.sections.programs import CostsConfig
from infra.tenancy import access
from sandbox import paths
from sandbox.node.images import REGISTRY
from tests.sandbox.conftest import Cluster
from training import source


def ops_image() -> str:
    """The commands as the working tree has them."""
    return f"{REGISTRY}/ops@sha256:{source.digest(paths.PROJECT, source.OPS)}"


def namespace(name: str, **labels: str) -> Manifest:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


@contextlib.contextmanager
def applied(cluster: Cluster, objects: list[Manifest]) -> Iterator[None]:
    """These objects, deleted at the end."""
    document = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    try:
        cluster.kubectl("apply", "--server-side", "-f", "-", stdin=document)
        yield
    finally:
        gone = ("delete", "--ignore-not-found", "--timeout=180s", "-f", "-")
        cluster.kubectl(*gone, stdin=document)


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
