"""Steering of runs in the cluster: `trainyard spot steer` as a Deployment of one pod.

It reads nodes, pods, queues and workloads, and writes on workloads which flavors of their queue they may have; to
move a run, it deactivates its workload for a moment. An admission policy admits only that from its account.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
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
from infra.kubernetes.controller_accounts import STEERING as ACCOUNTS
from infra.kubernetes.controller_accounts import is_one_of
from infra.kubernetes.objects import Manifest, metadata

NAMESPACE: Final = naming.STEERING_NAMESPACE
NAME: Final = naming.STEERING_ACCOUNT
LEASE: Final = "steering"
_KUEUE: Final = "kueue.x-k8s.io"
_POOLS: Final = "pools.json"
_MOUNT: Final = "/etc/trainyard"

EVERYWHERE: Final = (
    rule("", ["nodes", "pods"], ["list"]),
    rule(_KUEUE, ["workloads", "clusterqueues"], ["list"]),
)
"""Rights in the whole cluster; in namespaces of teams it has those of infra/tenancy/access.py."""
CORDON: Final = rule("", ["nodes"], ["patch"])
"""Only where the stack file says `cordonNamedNodes`; an admission policy admits only cordons."""
AT_HOME: Final = (
    rule("coordination.k8s.io", ["leases"], ["create", "get", "patch"]),
    rule("", ["configmaps"], ["create", "get", "patch"]),
)
"""The Lease, and the rates that it has learnt."""


@dataclass(frozen=True, kw_only=True)
class SteeringArgs:
    """Settings of the program."""

    image: str
    """Of ops/image/Dockerfile, by digest."""
    every_seconds: int
    settings: Mapping[str, Any]
    """Pools and rules, as ops/steer/settings.py reads them."""
    prometheus: bool
    """Whether the stack has a Prometheus."""

    @property
    def cordons(self) -> bool:
        """Whether it may cordon nodes."""
        return bool(self.settings.get("cordonNamedNodes"))


def writes_admitted() -> Manifest:
    """Admit from the service account only: the flavors that a workload may have, its notes, and (de)activation."""
    noted = [naming.ALLOWED_FLAVORS, naming.STEERING]
    rules = [
        Rule(
            holds=unchanged_but("spec", ["active"]),
            message="this account may change spec.active of a Workload only",
        ),
        Rule(
            holds=f"{unchanged_but('metadata.annotations', noted)} && {unchanged_but('metadata.labels', [])}",
            message=f"this account may change the annotations {' and '.join(noted)} only",
        ),
        OWNERS_UNCHANGED,
    ]
    return policy(
        "steering",
        matches=[resources(_KUEUE, "workloads", operations=("UPDATE",), scope="*")],
        conditions={"steering": is_one_of(ACCOUNTS)},
        rules=rules,
    )


def cordons_admitted() -> Manifest:
    """Admit from the service account only that a node is cordoned, and a note why; never the way back."""
    rules = [
        Rule(
            holds=f"{unchanged_but('spec', ['unschedulable'])} && object.spec.?unschedulable.orValue(false)",
            message="this account may only set spec.unschedulable of a Node to true",
        ),
        Rule(
            holds=f"{unchanged_but('metadata.annotations', [naming.CORDONED])}"
            f" && {unchanged_but('metadata.labels', [])}",
            message=f"this account may change the annotation {naming.CORDONED} of a Node only",
        ),
        OWNERS_UNCHANGED,
    ]
    return policy(
        "steering-nodes",
        matches=[resources("", "nodes", operations=("UPDATE",), scope="Cluster")],
        conditions={"steering": is_one_of(ACCOUNTS)},
        rules=rules,
    )


def container(args: SteeringArgs) -> dict[str, Any]:
    """Return the container of the program."""
    words = ["spot", "steer", "--pools", f"{_MOUNT}/{_POOLS}", "--every", str(args.every_seconds)]
    words += ["--lease", f"{NAMESPACE}/{LEASE}"]
    # Only on the pod's address: process nodes of the sandbox share the host's loopback.
    words += ["--metrics", f"$(POD_IP):{naming.STEERING_METRICS_PORT}"]
    if args.prometheus:
        words += ["--prometheus", naming.PROMETHEUS_URL]
    port = {"name": naming.METRICS_PORT_NAME, "containerPort": naming.STEERING_METRICS_PORT}
    return programs.command(
        NAME,
        args.image,
        words,
        environment=[{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
        ports=[port],
        resources=controllers.resources("100m", "512Mi"),
        volumeMounts=[
            {"name": "pools", "mountPath": _MOUNT, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},
        ],
    )


def plan(args: SteeringArgs) -> Installable:
    """Return the program, its rights and the policy that bounds them."""
    pools = json.dumps(dict(args.settings), indent=1, sort_keys=True) + "\n"
    walls = writes_admitted()
    nodes = cordons_admitted()
    everywhere = (*EVERYWHERE, *((CORDON,) if args.cordons else ()))
    return Installable(
        add_on="steering",
        before=(
            isolation(
                NAME,
                NAMESPACE,
                metrics=[naming.STEERING_METRICS_PORT],
                to_prometheus=args.prometheus,
            ),
            # Before the account has a right to write.
            walls,
            binding(walls),
            *((nodes, binding(nodes)) if args.cordons else ()),
            *manifests.access(NAME, NAMESPACE, everywhere, AT_HOME),
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": metadata(
                    NAME, namespace=NAMESPACE, labels=naming.object_labels("operators")
                ),
                "data": {_POOLS: pools},
            },
        ),
        objects=(
            programs.deployment(
                NAME,
                NAMESPACE,
                [container(args)],
                replicas=1,
                recreate=True,
                volumes=[
                    {"name": "pools", "configMap": {"name": NAME}},
                    {"name": "tmp", "emptyDir": {}},
                ],
                # Pools are read at the start: a changed one starts a new pod.
                annotations={f"{naming.DOMAIN}/pools": hashlib.sha256(pools.encode()).hexdigest()},
            ),
        ),
        namespace_labels=controllers.pod_security("restricted"),
    )


STEERING: Final = AddOn(
    name="steering",
    section=Section.STEERING,
    version="of this repository",
    app_version="of this repository",
    namespace=NAMESPACE,
    kubernetes=("1.30", ""),
    needs=("kueue", "kubePrometheusStack"),
    settings=SteeringArgs,
    plan=plan,
)
