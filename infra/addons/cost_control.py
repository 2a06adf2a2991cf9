"""Ledger and budgets in the cluster: `trainyard cost enforce` as a Deployment of one pod.

It reads nodes, pods and workloads, keeps the record on a volume of its own, holds queues of teams and deactivates
their workloads. An admission policy admits only these two changes from its service account.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from infra.addons import controllers, manifests, programs
from infra.addons.isolation import isolation
from infra.addons.manifests import rule
from infra.addons.model import AddOn, Installable, Section
from infra.domain import naming
from infra.kubernetes.admission_policy import (
    OWNERS_UNCHANGED,
    Rule,
    binding,
    policy,
    resources,
    unchanged_but,
)
from infra.kubernetes.objects import Manifest, metadata

NAMESPACE: Final = naming.COSTS_NAMESPACE
NAME: Final = naming.COSTS_ACCOUNT
LEASE: Final = "costs"
_KUEUE: Final = "kueue.x-k8s.io"
STATE: Final = f"{naming.DOMAIN}/budget"
"""Annotation of a ClusterQueue, written by ops/budgets/control.py."""
_BUDGETS: Final = "budgets.json"
_RECORD: Final = "/record"
_MOUNT: Final = "/etc/trainyard"

EVERYWHERE: Final = (
    rule("", ["nodes", "pods"], ["list"]),
    rule(_KUEUE, ["workloads"], ["list"]),
    rule(_KUEUE, ["clusterqueues"], ["list", "patch"]),
)
"""Rights in the whole cluster; in namespaces of teams it has those of infra/tenancy/access.py."""
AT_HOME: Final = (rule("coordination.k8s.io", ["leases"], ["create", "get", "patch"]),)


@dataclass(frozen=True, kw_only=True)
class CostControlArgs:
    """Settings of the program."""

    image: str
    """Of ops/image/Dockerfile, by digest."""
    volume: str
    """Size of the record's volume, as a Kubernetes quantity."""
    storage_class: str
    """Empty: the cluster's default."""
    every_seconds: int
    budgets: Sequence[Mapping[str, Any]]
    prometheus: bool
    """Whether the stack has a Prometheus."""


def writes_admitted() -> Manifest:
    """Admit from the service account only: holding and opening a queue with its note, and (de)activating a run."""
    queue, workload = "request.resource.resource == 'clusterqueues'", "spec.active"
    rules = [
        Rule(
            holds=f"{queue} ? ({unchanged_but('spec', ['stopPolicy'])}) : ({unchanged_but('spec', ['active'])})",
            message=f"this account may change spec.stopPolicy of a ClusterQueue and {workload} of a Workload only",
        ),
        Rule(
            holds=f"!({queue}) || dyn(object).spec.?stopPolicy.orValue('None') in ['None', 'Hold']",
            message="this account may set stopPolicy to None or Hold only",
        ),
        Rule(
            holds=f"{unchanged_but('metadata.annotations', [STATE])} && {unchanged_but('metadata.labels', [])}",
            message=f"this account may change the annotation {STATE} only",
        ),
        OWNERS_UNCHANGED,
    ]
    return policy(
        "costs",
        matches=[
            resources(_KUEUE, "clusterqueues", "workloads", operations=("UPDATE",), scope="*")
        ],
        conditions={
            "costs": f"request.userInfo.username == 'system:serviceaccount:{NAMESPACE}:{NAME}'"
        },
        rules=rules,
    )


def _claim(args: CostControlArgs) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata(
            NAME,
            namespace=NAMESPACE,
            labels=naming.object_labels("operators"),
            # A class may make the volume only when the pod is there.
            annotations={naming.SKIP_AWAIT: "true"},
        ),
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            **({"storageClassName": args.storage_class} if args.storage_class else {}),
            "resources": {"requests": {"storage": args.volume}},
        },
    }


def container(args: CostControlArgs) -> dict[str, Any]:
    """Return the container of the program."""
    words = ["cost", "enforce", "--budgets", f"{_MOUNT}/{_BUDGETS}", "--record", _RECORD]
    words += ["--every", str(args.every_seconds), "--lease", f"{NAMESPACE}/{LEASE}"]
    # Only on the pod's address: process nodes of the sandbox share the host's loopback.
    words += ["--metrics", f"$(POD_IP):{naming.COSTS_METRICS_PORT}"]
    if args.prometheus:
        words += ["--prometheus", naming.PROMETHEUS_URL]
    return programs.command(
        NAME,
        args.image,
        words,
        environment=[{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
        ports=[{"name": naming.METRICS_PORT_NAME, "containerPort": naming.COSTS_METRICS_PORT}],
        resources=controllers.resources("100m", "512Mi"),
        volumeMounts=[
            {"name": "record", "mountPath": _RECORD},
            {"name": "budgets", "mountPath": _MOUNT, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
    )


def plan(args: CostControlArgs) -> Installable:
    """Return the program, its volume, its rights and the policy that bounds them."""
    budgets = json.dumps(list(args.budgets), indent=1, sort_keys=True) + "\n"
    walls = writes_admitted()
    return Installable(
        add_on="costs",
        before=(
            isolation(
                NAME,
                NAMESPACE,
                metrics=[naming.COSTS_METRICS_PORT],
                to_prometheus=args.prometheus,
            ),
            # Before the account has a right to write.
            walls,
            binding(walls),
            *manifests.access(NAME, NAMESPACE, EVERYWHERE, AT_HOME),
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": metadata(
                    NAME, namespace=NAMESPACE, labels=naming.object_labels("operators")
                ),
                "data": {_BUDGETS: budgets},
            },
            _claim(args),
        ),
        objects=(
            programs.deployment(
                NAME,
                NAMESPACE,
                [container(args)],
                replicas=1,
                recreate=True,
                volumes=[
                    {"name": "record", "persistentVolumeClaim": {"claimName": NAME}},
                    {"name": "budgets", "configMap": {"name": NAME}},
                    {"name": "tmp", "emptyDir": {}},
                ],
                # Budgets are read at the start: a changed one starts a new pod.
                annotations={
                    f"{naming.DOMAIN}/budgets": hashlib.sha256(budgets.encode()).hexdigest()
                },
            ),
        ),
        namespace_labels=controllers.pod_security("restricted"),
    )


COST_CONTROL: Final = AddOn(
    name="costs",
    section=Section.COSTS,
    version="of this repository",
    app_version="of this repository",
    namespace=NAMESPACE,
    kubernetes=("1.30", ""),
    needs=("kueue", "kubePrometheusStack"),
    settings=CostControlArgs,
    plan=plan,
)
