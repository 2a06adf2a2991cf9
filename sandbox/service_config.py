"""Configuration files of the sandbox's services. Pure: ports and paths in, documents out."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from infra.addons import kueue_config
from infra.domain.launcher_support import KINDS, TRAIN_JOB
from sandbox.certificates import Identity, KeyPair
from sandbox.monitoring import rbac
from sandbox.node import egress
from sandbox.node import rbac as node_rbac
from sandbox.ports import LOOPBACK

Document = dict[str, Any]

SERVER_NAMES = (LOOPBACK, "localhost")
_MASTERS = "system:masters"
_SERVICE_ACCOUNT = "system:serviceaccount"

IDENTITIES: tuple[Identity, ...] = (
    Identity("admin", "trainyard-admin", _MASTERS),
    Identity("etcd", "etcd", hosts=SERVER_NAMES),
    Identity("etcd-peer", "etcd-peer", hosts=SERVER_NAMES),
    Identity("apiserver-etcd-client", "apiserver-etcd-client"),
    Identity(
        "apiserver",
        "kube-apiserver",
        hosts=(*SERVER_NAMES, "10.0.0.1", "kubernetes.default.svc", "kubernetes.default"),
    ),
    Identity("apiserver-kubelet-client", "kube-apiserver-kubelet-client", _MASTERS),
    Identity("controller-manager", "system:kube-controller-manager", hosts=SERVER_NAMES),
    Identity("scheduler", "system:kube-scheduler", hosts=SERVER_NAMES),
    Identity("kueue", f"{_SERVICE_ACCOUNT}:kueue-system:kueue-controller-manager", _MASTERS),
    Identity("jobset", f"{_SERVICE_ACCOUNT}:jobset-system:jobset-controller-manager", _MASTERS),
    Identity("kubeflow-trainer", "kubeflow-trainer", _MASTERS),
    Identity("training-operator", f"{_SERVICE_ACCOUNT}:kubeflow:training-operator"),
    Identity("mpi-operator", f"{_SERVICE_ACCOUNT}:mpi-operator:mpi-operator"),
    Identity("mpi-requeue", f"{_SERVICE_ACCOUNT}:mpi-operator:mpi-requeue"),
    Identity("kwok", "kwok-controller", _MASTERS),
    Identity("kubelet", "trainyard-process-node", hosts=SERVER_NAMES),
    *(Identity(one, one) for one in node_rbac.IDENTITIES),
    Identity("webhook", "trainyard-webhooks", hosts=SERVER_NAMES),
    Identity("kube-state-metrics", rbac.STATE_METRICS),
    Identity("gpu-exporter", rbac.GPU_EXPORTER),
)
"""Every client and server of the sandbox. Add-ons are members of system:masters, since the sandbox has one user
and stacks that install add-ons bring their RBAC. Their user names are those of their service accounts on other
clusters: admission policies of team namespaces match controllers by name. Monitoring identities have the
permissions in sandbox/monitoring/rbac.py, those around process nodes the ones in sandbox/node/rbac.py, MPI
Operator and Training Operator those of their add-ons."""

CLIENTS = (
    *("admin", "controller-manager", "scheduler", "kueue", "jobset", "kwok"),
    *("kubeflow-trainer", "training-operator", "mpi-operator", "mpi-requeue"),
    *("kube-state-metrics", "gpu-exporter"),
    *node_rbac.IDENTITIES,
)
"""Identities that get a kubeconfig."""


_IMPERSONATED = {"kubeflow-trainer": TRAIN_JOB.controllers[0]}
"""User by identity, where that name is too long for a certificate (64 characters)."""


def kubeconfig(server_port: int, ca: Path, pair: KeyPair, client: str = "") -> Document:
    """Return a self-contained kubeconfig; `client`: name of its identity."""

    def data(path: Path) -> str:
        return base64.b64encode(path.read_bytes()).decode()

    name = "trainyard-sandbox"
    cluster = {
        "server": f"https://{LOOPBACK}:{server_port}",
        "certificate-authority-data": data(ca),
    }
    user: Document = {
        "client-certificate-data": data(pair.certificate),
        "client-key-data": data(pair.key),
    }
    if client in _IMPERSONATED:
        user |= {"as": _IMPERSONATED[client], "as-groups": [_MASTERS]}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }


def audit_policy() -> Document:
    """Return the audit policy: all changes, and all access to secrets and pod shells, without bodies.

    Requests of controllers and kubelets and other reads are not logged.
    """
    controllers = [one.common_name for one in IDENTITIES if one.name in set(CLIENTS) - {"admin"}]
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            {"level": "None", "users": [*controllers, "system:apiserver"]},
            {"level": "None", "userGroups": ["system:nodes", "system:serviceaccounts:kube-system"]},
            {"level": "None", "resources": _NEVER_AUDITED},
            {"level": "Metadata", "resources": [{"group": "", "resources": _ALWAYS_AUDITED}]},
            {"level": "None", "verbs": ["get", "list", "watch"]},
            {"level": "Metadata"},
        ],
    }


def egress_selection() -> Document:
    """Return how the API server reaches Services and nodes: by the node agent, in whose folder it runs."""
    transport = {"uds": {"udsName": egress.SOCKET}}
    return {
        "apiVersion": "apiserver.k8s.io/v1beta1",
        "kind": "EgressSelectorConfiguration",
        "egressSelections": [
            {
                "name": "cluster",
                "connection": {"proxyProtocol": "HTTPConnect", "transport": transport},
            }
        ],
    }


_NEVER_AUDITED = [
    {"group": "coordination.k8s.io"},
    {"group": "authentication.k8s.io"},
    {"group": "authorization.k8s.io"},
    {"group": "events.k8s.io"},
    {"group": "", "resources": ["events", "nodes/status", "pods/status"]},
]
_ALWAYS_AUDITED = [
    "secrets",
    "serviceaccounts/token",
    "pods/exec",
    "pods/attach",
    "pods/portforward",
    "pods/ephemeralcontainers",
]

# A Job replaces a lost pod after a backoff of 10 s: the new one must be ready before the gang is evicted.
_TIMEOUTS = kueue_config.Timeouts(start=45, recovery=25, backoff_base=1, backoff_max=30)


def kueue_config_file(ports: Mapping[str, int], certificates: Path) -> Document:
    """Return Kueue's configuration: gangs wait for all pods, a gang that does not get all of them is queued again.

    Only ports, paths and timeouts differ from other clusters (docs/adr/05-scheduling.md): process pods
    start and restart in place in about 3 s, and a short backoff is fair in a sandbox with one user.
    """
    behaviour = kueue_config.scheduling_config(
        _TIMEOUTS, [one.framework for one in KINDS], steered=True
    )
    return {
        "apiVersion": kueue_config.API,
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": f"{LOOPBACK}:{ports['kueue-health']}"},
        "metrics": {
            "bindAddress": f"{LOOPBACK}:{ports['kueue-metrics']}",
            "enableClusterQueueResources": True,
        },
        "webhook": _webhook(ports["kueue-webhook"], certificates),
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        **kueue_config.throughput_config(),
        **behaviour,
        # The sandbox serves no aggregated APIs.
        "featureGates": behaviour["featureGates"] | {"VisibilityOnDemand": False},
    }


KEEPS_RUNNING = "sandbox.trainyard.dev/keeps-running"
"""Annotation of pods on KWOK nodes that run until they are deleted; pods of Jobs end at once without it."""


def kwok_pod_complete(stage: Path) -> Document:
    """Return KWOK's stage that ends pods of Jobs, without those annotated with `KEEPS_RUNNING`."""
    (document,) = documents(stage)
    kept = {"key": f'.metadata.annotations["{KEEPS_RUNNING}"]', "operator": "DoesNotExist"}
    document["spec"]["selector"]["matchExpressions"].append(kept)
    return document


def jobset_config_file(ports: Mapping[str, int], certificates: Path) -> Document:
    """Return JobSet's configuration."""
    return {
        "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "webhook": _webhook(ports["jobset-webhook"], certificates),
        "health": {"healthProbeBindAddress": f"{LOOPBACK}:{ports['jobset-health']}"},
        "metrics": {"bindAddress": f"{LOOPBACK}:{ports['jobset-metrics']}"},
        "clientConnection": {"qps": 500, "burst": 1000},
    }


def _webhook(port: int, certificates: Path) -> Document:
    """Return the webhook section; without a host the managers listen on every interface."""
    return {"host": LOOPBACK, "port": port, "certDir": str(certificates)}


_KUEUE_PATHS = (
    "-kueue-x-k8s-io-",
    *(f"-{one.group.replace('.', '-')}-{one.version}-{one.kind.lower()}" for one in KINDS),
)
"""Path parts of the webhooks of Kueue's own kinds and of the enabled frameworks; it waits for missing CRDs."""


def add_on_documents(assets: Path, name: str, port: int, ca: Path) -> Iterator[Document]:
    """Yield namespace, CRDs and webhooks of Kueue or JobSet; webhooks point at a loopback port."""
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"{name}-system"}}
    bundle = _bundle(ca)
    for path in sorted((assets / "config/components/crd/bases").glob("*.yaml")):
        for document in documents(path):
            yield _with_conversion_webhook(document, port, bundle)
    for document in documents(assets / "config/components/webhook/manifests.yaml"):
        if name == "kueue":
            document["webhooks"] = [one for one in document["webhooks"] if _is_served(one)]
        yield with_loopback_urls(document, name, port, ca)


def _is_served(webhook: Document) -> bool:
    path = webhook["clientConfig"]["service"]["path"]
    return any(part in path for part in _KUEUE_PATHS)


def _bundle(ca: Path) -> str:
    return base64.b64encode(ca.read_bytes()).decode()


_CONVERSION_CRDS = frozenset(
    f"{kind}.kueue.x-k8s.io"
    for kind in ("clusterqueues", "cohorts", "localqueues", "multikueueclusters", "workloads")
)
"""CRDs whose v1beta1 and v1beta2 differ. Without Kueue's conversion webhook the API server silently drops fields
that only one of them has, such as cohortName."""


def _with_conversion_webhook(document: Document, port: int, bundle: str) -> Document:
    if document["metadata"]["name"] not in _CONVERSION_CRDS:
        return document
    conversion = {
        "strategy": "Webhook",
        "webhook": {
            "clientConfig": {"url": f"https://{LOOPBACK}:{port}/convert", "caBundle": bundle},
            "conversionReviewVersions": ["v1"],
        },
    }
    return document | {"spec": document["spec"] | {"conversion": conversion}}


def with_loopback_urls(document: Document, name: str, port: int, ca: Path) -> Document:
    """Return a webhook configuration, named after its controller, whose webhooks are at a loopback port."""
    bundle, kept = _bundle(ca), []
    for webhook in document["webhooks"]:
        url = f"https://{LOOPBACK}:{port}{webhook['clientConfig']['service']['path']}"
        kept.append(webhook | {"clientConfig": {"url": url, "caBundle": bundle}})
    metadata = document["metadata"] | {"name": f"{name}-{document['metadata']['name']}"}
    return document | {"metadata": metadata, "webhooks": kept}


def documents(path: Path) -> Iterator[Document]:
    """Yield the documents of a YAML file that are not empty."""
    for document in yaml.load_all(
        path.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    ):
        if document:
            yield document
