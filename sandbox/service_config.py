"""Configuration files of the sandbox's services. Pure: ports and paths in, documents out."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from infra.kubernetes.controller_accounts import RUN_CONTROLLERS
from sandbox import rbac
from sandbox.certificates import Identity, KeyPair
from sandbox.node import egress
from sandbox.ports import LOOPBACK

Document = dict[str, Any]

SERVER_NAMES = (LOOPBACK, "localhost")
_MASTERS = "system:masters"

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
    Identity("kwok", "kwok-controller", _MASTERS),
    Identity("kubelet", "trainyard-process-node", hosts=SERVER_NAMES),
    *(Identity(one, one) for one in rbac.IDENTITIES),
    Identity("kube-state-metrics", rbac.STATE_METRICS),
    Identity("gpu-exporter", rbac.GPU_EXPORTER),
)
"""Every client and server of the sandbox; controllers of add-ons are pods. Those of monitoring and of process
nodes have the permissions in sandbox/rbac.py."""

CLIENTS = (
    *("admin", "controller-manager", "scheduler", "kwok", "kube-state-metrics", "gpu-exporter"),
    *rbac.IDENTITIES,
)
"""Identities that get a kubeconfig."""


def kubeconfig(server_port: int, ca: Path, pair: KeyPair) -> Document:
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
    clients = [one.common_name for one in IDENTITIES if one.name in set(CLIENTS) - {"admin"}]
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            {"level": "None", "users": [*clients, *RUN_CONTROLLERS, "system:apiserver"]},
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

KEEPS_RUNNING = "sandbox.trainyard.dev/keeps-running"
"""Annotation of pods on KWOK nodes that run until they are deleted; pods of Jobs end at once without it."""


def kwok_pod_complete(stage: Path) -> Document:
    """Return KWOK's stage that ends pods of Jobs, without those annotated with `KEEPS_RUNNING`."""
    (document,) = documents(stage)
    kept = {"key": f'.metadata.annotations["{KEEPS_RUNNING}"]', "operator": "DoesNotExist"}
    document["spec"]["selector"]["matchExpressions"].append(kept)
    return document


def documents(path: Path) -> Iterator[Document]:
    for document in yaml.load_all(
        path.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    ):
        if document:
            yield document
