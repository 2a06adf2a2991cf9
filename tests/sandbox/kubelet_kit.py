"""A stack on a cluster whose nodes have kubelets: the sandbox's control plane, and nodes of kubelet_node.py."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from bench.embedded import Embedded, running_cluster
from infra.config import parse, stack_values
from infra.domain import catalog, naming
from infra.sites.simulated import storage
from sandbox import paths
from sandbox.certificates import CertificateAuthority, Identity
from sandbox.ports import LOOPBACK, free_port
from sandbox.toolchain import Toolchain
from tests.sandbox.conftest import as_list
from tests.sandbox.kubelet_image import COREDNS, PAUSE, Images
from tests.sandbox.kubelet_node import (
    METADATA,
    SERVICE_OF_API,
    SERVICE_OF_DNS,
    SWITCH,
    Network,
    Node,
    remove_cgroups,
)
from tests.sandbox.region_kit import Region, output_of

Json = dict[str, Any]

TEAM, OTHERS = "research", "others"
_POOLS: list[Json] = [
    {"name": "spot", "capacity": "spot", "instanceTypes": ["g6.xlarge"], "min": 2, "max": 2},
    {
        "name": "cpu",
        "workload": "cpu",
        "capacity": "on-demand",
        "instanceTypes": ["m6i.xlarge"],
        "min": 1,
        "max": 1,
    },
]
NODES = ("spot-0", "spot-1", "cpu-0")
_CLASS = "shared"


def stack(trainer: str) -> Json:
    """Return the stack file for a cluster that exists: its pools describe the nodes, and create none.

    Kueue and JobSet are installed as in the local stack, whose charts put them on the sandbox's own node.
    """
    local = stack_values(paths.PROJECT / "Pulumi.local.yaml")
    quota = {"cpu": "8", "memory": "16Gi", "gpus": 2}
    team = {"tier": "research", "quota": quota, "caps": {"nodes": 2, "hours": 1}}
    return {
        "cluster": {"provider": "existing", "name": "kubelets"},
        "taintKey": "dedicated",
        "cohort": "trainyard",
        "nodePools": [pool | {"zone": "rack-1"} for pool in _POOLS],
        "storage": {"storageClass": _CLASS, "checkpoints": "1Gi", "datasets": "1Gi"},
        "operators": local["operators"],
        "charts": local["charts"],
        "teams": [
            {"name": TEAM, "guaranteed": {"spot": 2}, **team},
            {"name": OTHERS, **team},
        ],
        "images": {"trainer": trainer},
    }


class Fleet:
    def __init__(self, cluster: Embedded, tools: Toolchain, images: Images, folder: Path) -> None:
        self.images = images
        self.region = Region(cluster, "kubelets", folder)
        self.state = self.region.state
        self.disks = paths.cache() / "node-disks"
        self._authority = CertificateAuthority(self.state.pki)
        self._binaries = tools.binaries
        self._stack = stack(images.trainer)
        self._network = Network()
        self._nodes: dict[str, Node] = {}
        self._metadata = self._network.listen(METADATA, 80)
        self._port = free_port()
        self._controller: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the nodes and what a cluster has besides them, then deploy the stack."""
        remove_cgroups()
        shutil.rmtree(self.disks, ignore_errors=True)
        admin = yaml.safe_load(self.state.kubeconfig.read_text())
        server = admin["clusters"][0]["cluster"]["server"]
        _relay(self._network, self._port, int(server.rpartition(":")[2]))
        self._start_controller()
        for name in NODES:
            self._boot(name)
        self.apply(storage.storage_class() | {"metadata": {"name": _CLASS}}, *_coredns())
        self.kubectl(
            "wait", "-n=kube-system", "pod/coredns", "--for=condition=Ready", "--timeout=180s"
        )
        for node in self._nodes.values():
            self._forward_dns(node)
        config = {f"trainyard:{key}": value for key, value in self._stack.items()}
        kept = yaml.safe_load(self.region.file.read_text())
        self.region.file.write_text(yaml.safe_dump(kept | {"config": config}))
        self.region.pulumi("up", "--yes", "--skip-preview", "--stack", self.region.stack)
        for volume in self.state.volumes.glob("team-*/*"):
            os.chown(volume, 1000, 1000)  # as fsGroup does where a driver honours it

    def end(self) -> None:
        for name in list(self._nodes):
            self._nodes.pop(name).end()
        shutil.rmtree(self.disks, ignore_errors=True)
        self._network.end()
        self._metadata.close()
        if self._controller:
            self._controller.kill()
            self._controller.wait()

    def add(self, name: str) -> None:
        """Start a node of this name again and wait until it is ready."""
        self._forward_dns(self._boot(name))

    def _boot(self, name: str) -> Node:
        node = Node(name, self.disks / name, self._binaries, PAUSE, NODES.index(name))
        self._nodes[name] = node
        node.start(self.images.store)
        self._network.connect(node, len(NODES))
        _forward(node, SERVICE_OF_API, "tcp", 443, f"{SWITCH}:{self._port}")
        pool = next(p for p in parse(self._stack).pools if p.name == name.partition("-")[0])
        instance = catalog.load().types[pool.instance_types[0]]
        identity = Identity(name, f"system:node:{name}", "system:nodes", hosts=(node.address,))
        pair = self._authority.issue(identity)
        kubelet = {
            "authentication": {"x509": {"clientCAFile": str(self._authority.pair.certificate)}},
            "tlsCertFile": str(pair.certificate),
            "tlsPrivateKeyFile": str(pair.key),
            "registerWithTaints": [taint.manifest() for taint in pool.taints],
        }
        own = self._kubeconfig(identity, self._address())
        node.join(kubelet, own, pool.labels(instance))
        self.kubectl("wait", f"node/{name}", "--for=create", "--timeout=120s")
        enforcer = node.folder / "enforcer.yaml"
        admin = yaml.safe_load(self.state.kubeconfig.read_text())
        enforcer.write_text(yaml.safe_dump(_at(admin, self._address())))
        node.spawn(
            "kube-router",
            f"--kubeconfig={enforcer}",
            f"--hostname-override={name}",
            "--service-cluster-ip-range=10.0.0.0/16",
            "--health-port=0",
            *("--run-firewall=true", "--run-router=false", "--run-service-proxy=false"),
        )
        gpus = {naming.GPU: str(instance.gpus)}  # what NVIDIA's device plugin does
        status = json.dumps({"status": {"capacity": gpus, "allocatable": gpus}})
        self.kubectl(
            "patch", f"node/{name}", "--subresource=status", "--type=merge", f"-p={status}"
        )
        self.kubectl("wait", f"node/{name}", "--for=condition=Ready", "--timeout=180s")
        return node

    def take(self, name: str) -> None:
        self._nodes.pop(name).end()

    def kubectl(self, *words: str) -> str:
        return self.region.kubectl(*words)

    def get(self, *words: str) -> Json:
        found: Json = json.loads(self.kubectl("get", *words, "-o=json"))
        return found

    def apply(self, *manifests: Json) -> None:
        file = self.region.folder / "objects.json"
        file.write_text(as_list(manifests))
        self.kubectl("apply", "--server-side", f"--filename={file}")

    def trainyard(self, user: str, team: str, group: str, command: str, *rest: str) -> str:
        """Run `trainyard GROUP COMMAND ...` as a researcher of a team, which must succeed."""
        identity = Identity(f"member-{user}", user, naming.group(team, "researcher"))
        file = self.region.folder / f"{user}.yaml"
        file.write_text(yaml.safe_dump(self._kubeconfig(identity)))
        options = ["--kubeconfig", str(file), "--team", team]
        words = [sys.executable, "-m", "ops", group, command, *options, *rest]
        return output_of(words, self.region.folder, self.region.env)

    def start_probe(self, namespace: str) -> None:
        """Start a pod `probe` on the node of dev pods, in a namespace that is no team's."""
        container = {"name": "main", "image": self.images.trainer, "command": ["sleep", "infinity"]}
        spec = {"nodeName": NODES[-1], "containers": [container]}
        about = {"name": "probe", "namespace": namespace}
        self.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
            {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": spec},
        )
        ready = ("--for=condition=Ready", "--timeout=180s")
        self.kubectl("wait", f"--namespace={namespace}", "pod/probe", *ready)

    def _address(self) -> str:
        """Of the API server, as nodes reach it."""
        return f"https://{SWITCH}:{self._port}"

    def _kubeconfig(self, identity: Identity, server: str = "") -> Json:
        pair = self._authority.issue(identity)
        config: Json = yaml.safe_load(self.state.kubeconfig.read_text())
        for key, path in (("certificate", pair.certificate), ("key", pair.key)):
            data = base64.b64encode(path.read_bytes()).decode()
            config["users"][0]["user"][f"client-{key}-data"] = data
        return _at(config, server) if server else config

    def _forward_dns(self, node: Node) -> None:
        address = self.get("pod", "coredns", "-n=kube-system")["status"]["podIP"]
        for protocol in ("udp", "tcp"):
            _forward(node, SERVICE_OF_DNS, protocol, 53, f"{address}:53")

    def _start_controller(self) -> None:
        """Start what lists the addresses of Services, which the sandbox leaves out."""
        config = self.state.kubeconfig
        command = [
            *("setpriv", "--pdeathsig=KILL"),
            str(self._binaries["kube-controller-manager"]),
            f"--kubeconfig={config}",
            f"--authentication-kubeconfig={config}",
            f"--authorization-kubeconfig={config}",
            "--controllers=endpointslice-controller",
            "--leader-elect=false",
            f"--bind-address={LOOPBACK}",
            f"--secure-port={free_port()}",
            f"--cert-dir={self.region.folder}/controller",
        ]
        with (self.region.folder / "controller.log").open("w") as log:
            self._controller = subprocess.Popen(command, stdout=log, stderr=log)


@contextlib.contextmanager
def running_fleet(tools: Toolchain, images: Images, folder: Path) -> Iterator[Fleet]:
    """Yield the cluster; nothing of it is left at exit."""
    with running_cluster(print, tuned=False) as cluster:
        fleet = Fleet(cluster, tools, images, folder)
        try:
            fleet.start()
            yield fleet
        finally:
            fleet.end()


def _at(kubeconfig: Json, server: str) -> Json:
    """Return the kubeconfig for another address of the API server, whose certificate has its own."""
    own = kubeconfig["clusters"][0]["cluster"] | {"server": server, "tls-server-name": "localhost"}
    return kubeconfig | {"clusters": [kubeconfig["clusters"][0] | {"cluster": own}]}


def _forward(node: Node, service: str, protocol: str, port: int, to: str) -> None:
    """Make a Service's address lead somewhere, as kube-proxy does."""
    rule = ("-d", service, "-p", protocol, "--dport", str(port), "-j", "DNAT")
    node.namespaces.run(
        *("iptables", "-t", "nat", "-A", "PREROUTING", *rule), "--to-destination", to
    )


def _relay(network: Network, port: int, target: int) -> None:
    """Serve the API server, which listens on this machine's loopback only, to the nodes' network."""

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(LOOPBACK, target)
        await asyncio.gather(copy(reader, back), copy(there, writer))

    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    serving = asyncio.start_server(relay, sock=network.listen(SWITCH, port))
    asyncio.run_coroutine_threadsafe(serving, loop).result()


def _coredns() -> list[Json]:
    """CoreDNS as one pod, with the labels that network policies select it by."""
    about = {"name": "coredns", "namespace": "kube-system"}
    reads = [
        {"apiGroups": [""], "resources": ["services", "namespaces"], "verbs": ["list", "watch"]},
        {
            "apiGroups": ["discovery.k8s.io"],
            "resources": ["endpointslices"],
            "verbs": ["list", "watch"],
        },
    ]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "coredns"}
    rbac = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "coredns"}}
    files = {
        "Corefile": ".:53 {\n errors\n ready\n kubernetes cluster.local in-addr.arpa ip6.arpa\n}\n"
    }
    container = {
        "name": "coredns",
        "image": COREDNS,
        "args": ["-conf", "/etc/coredns/Corefile"],
        "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns"}],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}},
    }
    pod = {
        "serviceAccountName": "coredns",
        "dnsPolicy": "Default",
        "nodeName": NODES[-1],
        "containers": [container],
        "volumes": [{"name": "config", "configMap": {"name": "coredns"}}],
    }
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": about},
        rbac | {"kind": "ClusterRole", "rules": reads},
        rbac
        | {
            "kind": "ClusterRoleBinding",
            "roleRef": role,
            "subjects": [{"kind": "ServiceAccount", **about}],
        },
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": files},
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": about | {"labels": {"k8s-app": "kube-dns"}},
            "spec": pod,
        },
    ]
