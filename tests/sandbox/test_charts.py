"""Real charts, rendered by Helm with the values of a stack, and their objects on a real API server."""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from rich.console import Console

from infra.addons import device_plugin, mirror, volcano
from infra.addons.component import place
from infra.addons.controllers import NODE_PRIORITY, PRIORITY
from infra.addons.gpu_nodes import GpuNodesArgs
from infra.addons.model import Installable
from infra.addons.registry import ADD_ONS, CHART_SOURCES
from infra.config import add_ons, parse
from infra.domain.pools import Nodes
from infra.kubernetes import system_nodes
from infra.kubernetes.helm import merged
from infra.observability import monitors
from sandbox import paths, toolchain
from tests import committed
from tests.unit.infra.example_eks import stack_values
from tests.unit.infra.gpu_pools import SLICED, gpu_pool
from tests.unit.infra.network_model import Peer, admits

if TYPE_CHECKING:
    from tests.sandbox.conftest import Cluster

pytestmark = [pytest.mark.sandbox, pytest.mark.timeout(600), pytest.mark.long(61)]

CHARTS = {
    "kueue": "kueue-chart",
    "jobset": "jobset-chart",
    "kubeflowTrainer": "kubeflow-trainer-chart",
    "devicePlugin": "nvidia-device-plugin-chart",
    "karpenter": "karpenter-chart",
    "volcano": "volcano-chart",
}
"""Tool with the chart, by add-on."""
KEPT = {"karpenter": {("serviceAccount", "name"), ("settings", "clusterName")}}
"""Values that stay: the chart computes the same name, which other objects have; and it renders nothing without
the cluster's."""
MIRROR = "registry.example.com/mirror"

Json = dict[str, Any]


@functools.cache
def plans() -> dict[str, Installable]:
    """What a stack with all of these add-ons installs."""
    values = copy.deepcopy(stack_values())
    names = {*CHARTS, "efaDevicePlugin"} - {"karpenter", "volcano"}
    values["operators"] = {name: {"provided": False} for name in names}
    found = {plan.add_on: plan for plan in add_ons.args(parse(values)).plans}
    # Volcano stands where Kueue does. Karpenter is a release of the AWS component.
    return found | {"volcano": place(volcano.plan(), selected=True)}


@functools.cache
def own_values(add_on: str) -> Json:
    """The values that the project sets."""
    if add_on != "karpenter":
        return dict(plans()[add_on].values)
    (release,) = [
        one for one in committed.rendered("prod") if one["name"] == "aws-karpenter-controller"
    ]
    # Pulumi's mocks make floats of numbers.
    values: Json = json.loads(json.dumps(release["inputs"]["values"]), parse_float=_whole)
    return values


def _whole(text: str) -> float:
    return int(float(text)) if float(text).is_integer() else float(text)


@dataclass(frozen=True)
class Helm:
    program: Path
    chart: Path
    add_on: str
    others: list[str]
    """Charts that this one may install, too: their values mean nothing here."""

    @property
    def namespace(self) -> str:
        """Of this test: a namespace that is deleted takes no new objects for a while."""
        return f"chart-{self.add_on.lower()}"

    def render(self, values: Mapping[str, Any], folder: Path) -> list[Json]:
        """Return the objects of the release as production makes it; fails with what Helm says."""
        found = yaml.load_all(self.text(values, folder, "--include-crds"), yaml.CSafeLoader)
        return [one for one in found if one]

    def text(self, values: Mapping[str, Any], folder: Path, *options: str) -> str:
        """Return the release as text, by default without the chart's folder of CRDs."""
        file = folder / "values.yaml"
        file.write_text(yaml.safe_dump(json.loads(json.dumps(values))))
        made = ADD_ONS[self.add_on]
        done = subprocess.run(
            [
                *(str(self.program), "template", made.release_name, str(self.chart)),
                *("--namespace", self.namespace, "--values", str(file), *options),
                *("--kube-version", "1.36", "--api-versions", "monitoring.coreos.com/v1"),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(params=CHARTS, ids=list(CHARTS))
def helm(request: pytest.FixtureRequest, tmp_path: Path) -> Helm:
    console, name = Console(force_terminal=False), CHARTS[request.param]
    program = toolchain.ensure(console, "helm").binaries["helm"]
    assets = toolchain.ensure(console, name).assets[name]
    chart = tmp_path / "chart"
    shutil.copytree(assets / CHART_SOURCES[request.param].path, chart)
    about = yaml.safe_load((chart / "Chart.yaml").read_text())
    # Some charts that it may install, too, lie in the published archive only; a stack's values turn them off.
    needs = about.get("dependencies", [])
    others = [one for one in needs if not [*chart.glob(f"charts/{one['name']}*")]]
    about["dependencies"] = [one for one in needs if one not in others]
    (chart / "Chart.yaml").write_text(yaml.safe_dump(about))
    return Helm(program, chart, request.param, [one["name"] for one in others])


def values_of(add_on: str) -> Json:
    """As the release gets them: images from the chart's registries."""
    return merged(own_values(add_on), mirror.chart(add_on, "").image_values)


def leaves(values: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Paths of all values that are no mappings with content."""
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key)


def without(values: Mapping[str, Any], path: tuple[str, ...]) -> Json:
    found = copy.deepcopy(dict(values))
    below = found
    for key in path[:-1]:
        below = below[key]
    del below[path[-1]]
    return found


def default(chart: Path, path: tuple[str, ...]) -> Any:
    found: Any = yaml.safe_load((chart / "values.yaml").read_text())
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def test_every_value_changes_what_the_chart_makes_of_it(helm: Helm, tmp_path: Path) -> None:
    values = values_of(helm.add_on)
    rendered = helm.text(values, tmp_path)
    assert rendered
    dead = [
        ".".join(path)
        for path in leaves(values)
        if path[0] not in helm.others
        and path not in KEPT.get(helm.add_on, ())
        and default(helm.chart, path) != functools.reduce(lambda at, key: at[key], path, values)
        and helm.text(without(values, path), tmp_path) == rendered
    ]
    assert not dead, "these values change nothing: misspelt, or overridden"


def test_all_images_come_from_the_mirror(helm: Helm, tmp_path: Path) -> None:
    values = merged(own_values(helm.add_on), mirror.chart(helm.add_on, MIRROR).image_values)
    images = set(images_of(helm.render(values, tmp_path)))
    assert images and all(image.startswith(f"{MIRROR}/") for image in images)


def pods_of(objects: list[Json]) -> Iterator[Json]:
    for one in objects:
        if pod := one.get("spec", {}).get("template", {}).get("spec"):
            yield pod


def test_controllers_have_a_memory_limit_and_no_cpu_limit(helm: Helm, tmp_path: Path) -> None:
    pods = list(pods_of(helm.render(values_of(helm.add_on), tmp_path)))
    limits = [c["resources"]["limits"] for pod in pods for c in pod["containers"]]
    assert limits and all(list(one) == ["memory"] for one in limits)


def test_controllers_have_a_system_priority_class(helm: Helm, tmp_path: Path) -> None:
    pods = pods_of(helm.render(values_of(helm.add_on), tmp_path))
    # The charts of JobSet and of the trainer have no value for it.
    none = helm.add_on in ("jobset", "kubeflowTrainer")
    given = {pod.get("priorityClassName") for pod in pods}
    assert given and given <= ({None} if none else {PRIORITY, NODE_PRIORITY})


def test_controllers_run_on_system_nodes(helm: Helm, tmp_path: Path) -> None:
    made = helm.render(values_of(helm.add_on), tmp_path)
    pods = list(pods_of([one for one in made if one["kind"] != "DaemonSet"]))
    assert pods or helm.add_on == "devicePlugin"
    for pod in pods:
        assert pod["nodeSelector"].items() >= system_nodes.LABELS.items()
        assert system_nodes.TOLERATIONS[0] in pod["tolerations"]


def test_crds_that_helm_never_updates_are_named_in_the_upgrade_page(helm: Helm) -> None:
    rows = (paths.PROJECT / "docs/operate.md").read_text().splitlines()
    (by_hand,) = [row.split("|")[1] for row in rows if "helm show crds" in row]
    named = helm.add_on.lower() in by_hand.lower()
    # Karpenter's have a release of their own.
    assert named is any(helm.chart.rglob("crds/*.yaml")) or helm.add_on == "karpenter"


@pytest.mark.parametrize("helm", ["kueue"], indirect=True)
def test_kueues_monitor_keeps_the_service_of_its_metrics_only(helm: Helm, tmp_path: Path) -> None:
    spec = monitors.kueue(15)["spec"]
    (endpoint,) = spec["endpoints"]
    keep = next(one for one in endpoint["relabelings"] if one.get("action") == "keep")
    wanted = spec["selector"]["matchLabels"].items()
    kept = [
        [
            port["targetPort"]
            for port in one["spec"]["ports"]
            if port.get("name") == endpoint["port"]
        ]
        for one in helm.render(values_of(helm.add_on), tmp_path)
        if one["kind"] == "Service"
        and wanted <= one["metadata"]["labels"].items()
        and re.fullmatch(keep["regex"], one["metadata"]["name"])
    ]
    assert kept == [[8443]]


@pytest.mark.parametrize(
    ("nodes", "capabilities"), [(Nodes.EXISTING, []), (Nodes.MANAGED, ["SYS_ADMIN"])]
)
@pytest.mark.parametrize("helm", ["devicePlugin"], indirect=True)
def test_a_device_plugin_has_a_capability_only_where_nodes_ignore_variables(
    helm: Helm, tmp_path: Path, nodes: Nodes, capabilities: list[str]
) -> None:
    """On EC2 nodes the toolkit shows GPUs to a container with that capability, or whose pod requested them."""
    shared = dataclasses.replace(SLICED, nodes=nodes)
    gpus = GpuNodesArgs(pools=(gpu_pool(nodes=nodes), shared))
    containers = [
        container
        for pod in pods_of(helm.render(device_plugin.plan(gpus).values, tmp_path))
        for container in pod["containers"]
    ]
    assert containers
    for container in containers:
        added = container.get("securityContext", {}).get("capabilities", {}).get("add")
        assert (added or []) == (capabilities if "plugin" in container["name"] else [])
    (plugin,) = (one for one in containers if one["name"] == "nvidia-device-plugin-ctr")
    env = {one["name"]: one.get("value") for one in plugin["env"]}
    strategy = "volume-mounts" if capabilities else "envvar"
    assert env["DEVICE_LIST_STRATEGY"] == strategy


def called_ports(objects: list[Json]) -> set[int]:
    """Ports of pods behind the Services that webhooks and APIs of these objects name."""
    services = {one["metadata"]["name"]: one["spec"] for one in objects if one["kind"] == "Service"}
    named = {
        port["name"]: port["containerPort"]
        for pod in pods_of(objects)
        for container in pod["containers"]
        for port in container.get("ports", [])
    }
    found: set[int] = set()
    for one in objects:
        hooks = [hook["clientConfig"] for hook in one.get("webhooks", [])]
        if one["kind"] == "APIService":
            hooks = [one["spec"]]
        if "conversion" in one.get("spec", {}):
            hooks = [one["spec"]["conversion"]["webhook"]["clientConfig"]]
        for hook in hooks:
            asked = hook["service"].get("port", 443)
            ports = services[hook["service"]["name"]]["ports"]
            [target] = [port["targetPort"] for port in ports if port["port"] == asked]
            found.add(named.get(target, target))
    return found


@pytest.mark.parametrize("helm", [one for one in CHARTS if one != "karpenter"], indirect=True)
def test_the_network_policy_opens_what_the_api_server_calls(helm: Helm, tmp_path: Path) -> None:
    ports = called_ports(helm.render(values_of(helm.add_on), tmp_path))
    assert bool(ports) == (helm.add_on != "devicePlugin")
    policies = [one for one in plans()[helm.add_on].before if one["kind"] == "NetworkPolicy"]
    pod = Peer(namespace=ADD_ONS[helm.add_on].namespace)
    run = Peer(namespace="team-research")
    for port in ports:
        assert admits(policies, pod, Peer(), port, "Ingress"), port
    assert not admits(policies, pod, run, 8081, "Ingress")


def images_of(tree: Any) -> Iterator[str]:
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            if key == "image" and isinstance(value, str):
                yield value
            else:
                yield from images_of(value)
    elif isinstance(tree, list):
        for one in tree:
            yield from images_of(one)


def test_the_api_server_accepts_what_the_chart_makes(
    helm: Helm, cluster: Cluster, tmp_path: Path
) -> None:
    rendered = helm.render(values_of(helm.add_on), tmp_path)
    # Objects of CRDs that come with the chart can be tried only where these are installed.
    kinds = {
        one["spec"]["names"]["kind"]
        for one in rendered
        if one["kind"] == "CustomResourceDefinition"
    }
    foreign = {"ServiceMonitor", "PodMonitor", "Certificate", "Issuer"}
    tried = [one for one in rendered if one["kind"] not in kinds | foreign]
    home = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": helm.namespace}}
    cluster.apply(home)
    try:
        listed = {"apiVersion": "v1", "kind": "List", "items": tried}
        options = ("--server-side", "--dry-run=server", "--force-conflicts", "--validate=strict")
        cluster.kubectl("apply", *options, "-f", "-", stdin=json.dumps(listed))
    finally:
        cluster.kubectl("delete", "namespace", helm.namespace, "--wait=false")
