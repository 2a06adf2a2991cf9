"""A real Karpenter whose nodes are simulated, with NodePools as stacks render them.

Karpenter's KWOK provider creates a Node object where its AWS provider would start an instance. Everything before
that is Karpenter itself: which pods need a node, which type and purchase it gets, limits, budgets, drift, repair.
The instance types are the catalog's. An EC2NodeClass has no counterpart here.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from infra.config import stack_values
from infra.domain import catalog, naming, prices, quantity
from infra.domain.catalog import InstanceType
from infra.domain.pools import NodePool
from infra.domain.prices import Purchase
from infra.sites.aws import karpenter_manifests, node_health
from sandbox import paths, toolchain
from sandbox.node.api import object_path
from sandbox.ports import LOOPBACK, free_port
from tests.sandbox.conftest import Cluster
from tests.sandbox.node_kit import until
from tests.sandbox.queue_kit import Fleet

Json = dict[str, Any]

NODE_POOLS: Final = f"/apis/{naming.KARPENTER_NODE_POOL_API}"
ZONE: Final = "us-east-1a"
DEADLINE_S: Final = 300.0
"""For nodes to come or go: Karpenter waits 1 s for more pods, looks for nodes to disrupt every 10 s, and looks
again at empty ones after 15 s. The rest is for a busy machine."""
EMPTY_FOR: Final = "1s"
"""Instead of the pools' five minutes."""

_NODE_CLASS: Final = {
    "apiVersion": "karpenter.kwok.sh/v1alpha1",
    "kind": "KWOKNodeClass",
    "metadata": {"name": "simulated"},
    "spec": {},
}
_RESERVED: Final = {"cpu": 100, "memory": 10 * 2**20}
"""What the KWOK provider subtracts from every node, in millicores and bytes."""
_FINALIZED: Final = ("nodeclaims.karpenter.sh", "nodes")


def instance_types(names: Collection[str], without_spot: Collection[str]) -> list[Json]:
    """Return the catalog's types as the KWOK provider reads them; some have no spot capacity at the moment."""
    return [
        {
            "name": name,
            "architecture": "amd64",
            "operatingSystems": ["linux"],
            "resources": _resources(catalog.load().types[name]),
            "offerings": [
                _offering(name, purchase)
                for purchase in (Purchase.SPOT, Purchase.ON_DEMAND)
                if purchase is Purchase.ON_DEMAND or name not in without_spot
            ],
        }
        for name in names
    ]


def _resources(one: InstanceType) -> dict[str, str]:
    return {
        "cpu": quantity.cpu(one.allocatable_milli_cpu + _RESERVED["cpu"]),
        "memory": quantity.memory(one.allocatable_memory + _RESERVED["memory"]),
        "ephemeral-storage": "300Gi",
        "pods": str(one.max_pods),
        naming.GPU: str(one.gpus),
        naming.EFA: str(one.efa_cards),
    }


def _offering(name: str, purchase: Purchase) -> Json:
    wanted = {naming.KARPENTER_CAPACITY: purchase.value, naming.ZONE: ZONE}
    return {
        "Price": prices.usd_per_hour(name, purchase),
        "Available": True,
        "Requirements": [
            {"key": key, "operator": "In", "values": [value]} for key, value in wanted.items()
        ],
    }


class KarpenterFleet(Fleet):
    """The queues of a stack on EKS whose pools are Karpenter's."""

    metrics: str = ""
    """URL of Karpenter's metrics."""

    def values(self) -> Json:
        values = stack_values(paths.PROJECT / "Pulumi.prod.yaml")
        for unused in ("validation", "runs", "observability", "logs", "steering"):
            del values[unused]
        values["cluster"] = dict(values["cluster"]) | {"name": self.name}
        for unused in ("externalSecrets", "fluentBit", "kubePrometheusStack"):
            del values["operators"][unused]
        own = {"cohort": self.name, "nodePools": list(self.pools), "teams": list(self.teams)}
        return dict(values) | own

    def node_objects(self) -> list[Json]:
        """Return the NodePools; as rendered, but for their class of nodes and a shorter wait."""
        return [_NODE_CLASS, *map(self.node_pool, self.config.pools)]

    def node_pool(self, pool: NodePool) -> Json:
        made = json.loads(json.dumps(karpenter_manifests.node_pool(pool)))
        group, _, _ = str(_NODE_CLASS["apiVersion"]).partition("/")
        reference = {"group": group, "kind": "KWOKNodeClass", "name": "simulated"}
        made["spec"]["template"]["spec"]["nodeClassRef"] = reference
        made["spec"]["disruption"]["consolidateAfter"] = EMPTY_FOR
        result: Json = made
        return result

    def await_nodes(self) -> None:
        """Wait until Karpenter accepts the pools, which have no nodes yet."""
        pools = [f"nodepool.karpenter.sh/{p.name}" for p in self.config.pools]
        self.cluster.kubectl("wait", *pools, "--for=condition=Ready", "--timeout=180s")

    def nodes(self, pool: str) -> dict[str, Json]:
        query = {"labelSelector": f"{naming.POOL}={pool}"}
        found = self.client.get(object_path("/api/v1", None, "nodes"), **query)["items"]
        return {node["metadata"]["name"]: node for node in found}

    def claims(self, pool: str) -> dict[str, Json]:
        """Return the NodeClaims of a pool, by name: what Karpenter has bought or is about to buy."""
        query = {"labelSelector": f"karpenter.sh/nodepool={pool}"}
        found = self.client.get(object_path(NODE_POOLS, None, "nodeclaims"), **query)["items"]
        return {claim["metadata"]["name"]: claim for claim in found}

    def running(self, run_id: str) -> dict[str, str]:
        return {
            pod["metadata"]["name"]: pod["spec"]["nodeName"]
            for pod in self.pods(run_id)
            if pod["status"]["phase"] == "Running" and "nodeName" in pod["spec"]
        }

    def await_running(self, run_id: str, nodes: int) -> set[str]:
        """Wait until as many pods of a run are running, each on a node of its own; return the nodes."""

        def complete() -> set[str] | None:
            where = self.running(run_id)
            return set(where.values()) if len(where) == len(set(where.values())) == nodes else None

        try:
            return until(complete, f"{run_id} runs on {nodes} nodes", DEADLINE_S, every_s=0.5)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.describe()}") from None

    def await_empty(self, pool: str) -> None:
        gone = lambda: not self.claims(pool) and not self.nodes(pool)  # noqa: E731
        until(gone, f"pool {pool} is empty", DEADLINE_S, every_s=1.0)

    def await_event(self, reason: str, about: str | None, text: str) -> str:
        """Wait until Karpenter reports something about an object, or any; return the message."""

        def found() -> str | None:
            events = self.client.get(object_path("/api/v1", None, "events"))["items"]
            return next(
                (
                    event["message"]
                    for event in events
                    if event["reason"] == reason
                    and about in (None, event["involvedObject"]["name"])
                    and text in event["message"]
                ),
                None,
            )

        return until(found, f"event {reason} of {about}: {text}", DEADLINE_S, every_s=0.5)

    def await_decisions(self) -> None:
        """Wait until Karpenter has twice decided anew whether nodes in use could be saved."""
        before = _decisions(self.metrics)
        until(
            lambda: _decisions(self.metrics) >= before + 2,
            "two decisions about nodes in use",
            DEADLINE_S,
            every_s=1.0,
        )

    def describe(self) -> str:
        return "\n".join(
            self.cluster.kubectl("get", *what)
            for what in (
                ("nodeclaims.karpenter.sh", "-o", "wide"),
                ("pods", "-A", "-o", "wide"),
                ("events", "-A", "--sort-by=.lastTimestamp"),
            )
        )[-12_000:]


def _decisions(metrics: str) -> int:
    with urllib.request.urlopen(metrics, timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    name = "karpenter_voluntary_disruption_decision_evaluation_duration_seconds_count"
    counts = (line for line in lines if line.startswith(name) and '"single"' in line)
    return sum(int(float(line.rpartition(" ")[2])) for line in counts)


@contextmanager
def karpenter(cluster: Cluster, folder: Path, types: Sequence[Json]) -> Iterator[str]:
    """Karpenter with its CRDs, built at first use; URL of its metrics. Nothing of it is left at the end."""
    tools = toolchain.ensure(Console(force_terminal=False), "karpenter")
    files = sorted((tools.assets["karpenter"] / "kwok").rglob("*.yaml"))
    crds = [word for path in files for word in ("-f", str(path))]
    cluster.kubectl("apply", "--server-side", *crds)
    cluster.kubectl("wait", "--for=condition=Established", *crds, "--timeout=180s")
    catalog_file = folder / "instance-types.json"
    catalog_file.write_text(json.dumps(types))
    try:
        with _process(cluster, tools.binaries["karpenter-kwok"], folder, catalog_file) as metrics:
            yield metrics
    finally:
        _drop_finalizers(cluster)
        cluster.kubectl("delete", "--ignore-not-found", "--timeout=180s", *crds)


@contextmanager
def _process(cluster: Cluster, binary: Path, folder: Path, types: Path) -> Iterator[str]:
    """Karpenter's process; it listens on every interface, so it gets a loopback interface of its own."""
    port, metrics = free_port(), free_port()
    log = folder / "karpenter.log"
    argv = [
        *(sys.executable, "-m", "tests.sandbox.isolated"),
        f"--sockets={folder / 'sockets'}",
        *(f"--visible={path}" for path in (cluster.state.home, types)),
        *(f"--publish={port}=8081", f"--publish={metrics}=8080"),
        f"--reach={cluster.settings.ports['apiserver']}",
        *("--", str(binary)),
    ]
    gates = node_health.KARPENTER_FEATURES.items()
    env = os.environ | {
        "KUBECONFIG": str(cluster.kubeconfig),
        "PYTHONPATH": str(paths.PROJECT),
        "DISABLE_LEADER_ELECTION": "true",
        "FEATURE_GATES": ",".join(f"{gate[0].upper()}{gate[1:]}={on}" for gate, on in gates),
        "INSTANCE_TYPES_FILE_PATH": str(types),
        "HEALTH_PROBE_PORT": "8081",
        "METRICS_PORT": "8080",
    }
    with log.open("w") as out:
        process = subprocess.Popen(
            argv,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        until(lambda: _ready(process, port, log), "Karpenter is ready", DEADLINE_S, every_s=0.2)
        yield f"http://{LOOPBACK}:{metrics}/metrics"
    finally:
        # bubblewrap does not pass the signal on to what it runs.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)


def _ready(process: subprocess.Popen[bytes], port: int, log: Path) -> bool:
    assert process.poll() is None, log.read_text()[-4000:]
    try:
        with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _drop_finalizers(cluster: Cluster) -> None:
    """Let what Karpenter has left behind be deleted without it."""
    cluster.kubectl("delete", "nodepools.karpenter.sh", "--all", "--wait=false")
    cluster.kubectl("delete", "nodeclaims.karpenter.sh", "--all", "--wait=false")
    for kind in _FINALIZED:
        selector = ("-l", "karpenter.sh/nodepool")
        names = cluster.kubectl("get", kind, *selector, "-o", "name").split()
        for name in names:
            nothing = '{"metadata": {"finalizers": null}}'
            cluster.kubectl("patch", name, "--type=merge", "-p", nothing)
    cluster.kubectl("delete", "nodes", "-l", "karpenter.sh/nodepool", "--timeout=180s")
    cluster.kubectl("delete", "kwoknodeclasses.karpenter.kwok.sh", "--all", "--timeout=180s")
