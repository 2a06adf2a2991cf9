"""Command lines of the sandbox's services, all on loopback.

Pure: paths, ports and certificates in, command lines out. `cluster.py` writes the files that they name,
`supervisor.py` runs them.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from infra.domain import naming
from sandbox import paths, rbac
from sandbox.certificates import Identity, KeyPair
from sandbox.ports import LOOPBACK
from sandbox.toolchain import Toolchain

CODE_ENV = "SANDBOX_CODE"
"""Digest of the files that a service reads at start. It is part of the command's fingerprint: a change of
configuration or code restarts the service."""

KWOK_STAGES = "kustomize/stage"
"""Folder of the stages in KWOK's assets."""
KWOK_POD_COMPLETE = "kwok/pod-complete.yaml"
"""The stage that ends pods, among the generated configuration files."""


FRONT_PROXY = Identity("front-proxy", "front-proxy-client")
"""The API server towards aggregated APIs: of a CA of its own, whose certificates may speak for any user."""


@dataclass(frozen=True)
class Probe:
    """Readiness probe: a GET that must return 200, with the sandbox's CA and a client certificate."""

    url: str
    ca: str = ""
    certificate: str = ""
    key: str = ""


@dataclass(frozen=True)
class Service:
    """One supervised process. `env`: additions to `base_environment`."""

    name: str
    argv: list[str]
    probe: Probe
    env: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ClusterSettings:
    state: paths.State
    tools: Toolchain
    ports: Mapping[str, int]
    ca: Path
    pairs: Mapping[str, KeyPair]
    service_account: KeyPair
    monitored: bool = False
    """Whether Prometheus and its exporters run."""

    def binary(self, name: str) -> str:
        return str(self.tools.binaries[name])

    def https(self, port: str, path: str, identity: str = "admin") -> Probe:
        """Return a TLS probe with the client certificate of `identity`."""
        pair = self.pairs[identity]
        url = f"https://{LOOPBACK}:{self.ports[port]}{path}"
        return Probe(url, str(self.ca), str(pair.certificate), str(pair.key))

    def http(self, port: str, path: str) -> Probe:
        return Probe(f"http://{LOOPBACK}:{self.ports[port]}{path}")

    def kubeconfig(self, identity: str) -> str:
        if identity == "admin":
            return str(self.state.kubeconfig)
        return str(self.state.kubeconfig_of(identity))

    def config(self, name: str) -> str:
        return str(self.state.home / "config" / name)


def storage_services(settings: ClusterSettings) -> list[Service]:
    """Return etcd and the API server, which all other services need."""
    return [_etcd(settings), _apiserver(settings)]


def controller_services(settings: ClusterSettings) -> list[Service]:
    """Return all other services; they start in any order once the API server is ready."""
    return [
        _controller_manager(settings),
        _control_plane(settings, "scheduler"),
        _kwok(settings),
        _node(settings),
        _s3(settings),
    ]


def _etcd(settings: ClusterSettings) -> Service:
    server, peer = settings.pairs["etcd"], settings.pairs["etcd-peer"]
    client = f"https://{LOOPBACK}:{settings.ports['etcd']}"
    peers = f"https://{LOOPBACK}:{settings.ports['etcd-peer']}"
    argv = [
        settings.binary("etcd"),
        f"--data-dir={settings.state.home / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=default={peers}",
        "--client-cert-auth",
        f"--trusted-ca-file={settings.ca}",
        f"--cert-file={server.certificate}",
        f"--key-file={server.key}",
        "--peer-client-cert-auth",
        f"--peer-trusted-ca-file={settings.ca}",
        f"--peer-cert-file={peer.certificate}",
        f"--peer-key-file={peer.key}",
        "--logger=zap",
        "--log-level=warn",
        # Only a power cut can lose the last writes; an fsync per write costs most of the control
        # plane's speed on a laptop disk.
        "--unsafe-no-fsync",
    ]
    return Service("etcd", argv, settings.https("etcd", "/health"))


def _apiserver(settings: ClusterSettings) -> Service:
    server = settings.pairs["apiserver"]
    etcd = settings.pairs["apiserver-etcd-client"]
    kubelet = settings.pairs["apiserver-kubelet-client"]
    front = settings.pairs[FRONT_PROXY.name]
    argv = [
        settings.binary("kube-apiserver"),
        f"--etcd-servers=https://{LOOPBACK}:{settings.ports['etcd']}",
        f"--etcd-cafile={settings.ca}",
        f"--etcd-certfile={etcd.certificate}",
        f"--etcd-keyfile={etcd.key}",
        f"--bind-address={LOOPBACK}",
        f"--advertise-address={LOOPBACK}",
        f"--secure-port={settings.ports['apiserver']}",
        f"--tls-cert-file={server.certificate}",
        f"--tls-private-key-file={server.key}",
        f"--client-ca-file={settings.ca}",
        f"--kubelet-certificate-authority={settings.ca}",
        f"--kubelet-client-certificate={kubelet.certificate}",
        f"--kubelet-client-key={kubelet.key}",
        "--kubelet-preferred-address-types=InternalIP",
        f"--service-account-key-file={settings.service_account.certificate}",
        f"--service-account-signing-key-file={settings.service_account.key}",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--service-cluster-ip-range=10.0.0.0/16",
        # No endpoints of the API server: loopback addresses are not valid in an EndpointSlice.
        "--endpoint-reconciler-type=none",
        "--authorization-mode=Node,RBAC",
        "--anonymous-auth=false",
        "--enable-admission-plugins=NodeRestriction",
        # As on other clusters: Pod Security decides which pods may be privileged.
        "--allow-privileged=true",
        "--profiling=false",
        f"--audit-log-path={settings.state.logs / 'audit.log'}",
        f"--audit-policy-file={settings.config('audit.yaml')}",
        "--audit-log-maxsize=50",
        "--audit-log-maxbackup=1",
        f"--egress-selector-config-file={settings.config('egress.yaml')}",
        f"--requestheader-client-ca-file={front.certificate.with_name('ca.crt')}",
        f"--requestheader-allowed-names={FRONT_PROXY.common_name}",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={front.certificate}",
        f"--proxy-client-key-file={front.key}",
    ]
    return Service("apiserver", argv, settings.https("apiserver", "/readyz"))


def _control_plane(settings: ClusterSettings, name: str, *more: str) -> Service:
    pair, config = settings.pairs[name], settings.kubeconfig(name)
    argv = [
        settings.binary(f"kube-{name}"),
        f"--kubeconfig={config}",
        f"--authentication-kubeconfig={config}",
        f"--authorization-kubeconfig={config}",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={settings.ports[name]}",
        f"--tls-cert-file={pair.certificate}",
        f"--tls-private-key-file={pair.key}",
        f"--client-ca-file={settings.ca}",
        *more,
        "--leader-elect=false",
        "--profiling=false",
    ]
    env = {CODE_ENV: digest([Path(config)])}
    return Service(name, argv, settings.https(name, "/healthz"), env)


def _controller_manager(settings: ClusterSettings) -> Service:
    return _control_plane(
        settings,
        "controller-manager",
        f"--root-ca-file={settings.ca}",
        f"--service-account-private-key-file={settings.service_account.key}",
        # Signs the certificates of nodes, and none for anybody else.
        f"--cluster-signing-kubelet-client-cert-file={settings.ca}",
        f"--cluster-signing-kubelet-client-key-file={settings.ca.with_suffix('.key')}",
        "--use-service-account-credentials=true",
        # Pods have loopback addresses, which are invalid in EndpointSlices; nothing reads endpoints,
        # since names resolve through the pods' hosts files.
        "--controllers=*,-endpoints-controller,-endpointslice-controller,"
        "-endpointslice-mirroring-controller",
    )


def _kwok(settings: ClusterSettings) -> Service:
    stages = [
        "node/fast/node-initialize.yaml",
        "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
        "pod/fast/pod-ready.yaml",
        "pod/fast/pod-delete.yaml",
    ]
    folder = settings.tools.assets["kwok"] / KWOK_STAGES
    completion = settings.config(KWOK_POD_COMPLETE)
    config = settings.kubeconfig("kwok")
    argv = [
        settings.binary("kwok"),
        f"--kubeconfig={config}",
        *(f"--config={folder / stage}" for stage in stages),
        f"--config={completion}",
        f"--manage-nodes-with-annotation-selector={naming.KWOK_NODE}=fake",
        "--node-lease-duration-seconds=40",
        f"--server-address={LOOPBACK}:{settings.ports['kwok']}",
        "--cidr=10.64.0.1/16",
    ]
    env = {CODE_ENV: digest([Path(config), Path(completion)])}
    return Service("kwok", argv, settings.http("kwok", "/healthz"), env)


def _node(settings: ClusterSettings) -> Service:
    argv = [sys.executable, "-m", "sandbox.node", f"--port={settings.ports['node']}"]
    env = {
        "SANDBOX_HOME": str(settings.state.home),
        "PYTHONPATH": str(paths.PROJECT),
        "PYTHONUNBUFFERED": "1",
        CODE_ENV: digest(
            [
                *(Path(settings.kubeconfig(one)) for one in (rbac.AGENT, rbac.PROVISIONER)),
                *sorted((paths.PROJECT / "sandbox" / "node").glob("*.py")),
            ]
        ),
    }
    # The agent accepts the API server's client certificate only.
    return Service(
        "node", argv, settings.https("node", "/healthz", "apiserver-kubelet-client"), env
    )


def _s3(settings: ClusterSettings) -> Service:
    argv = [sys.executable, "-W", "ignore", "-m", "moto.server"]
    argv += ["-H", LOOPBACK, "-p", str(settings.ports["s3"])]
    return Service(
        "s3", argv, settings.http("s3", "/moto-api/data.json"), {"PYTHONUNBUFFERED": "1"}
    )


def digest(files: list[Path]) -> str:
    found = hashlib.sha256()
    for path in files:
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


def base_environment() -> dict[str, str]:
    """Environment of every service: none of the user's credentials or proxies."""
    kept = ("PATH", "HOME", "LANG", "TMPDIR", "USER")
    return {name: os.environ[name] for name in kept if name in os.environ}
