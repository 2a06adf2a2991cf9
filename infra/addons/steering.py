"""Steering of runs in the cluster: `trainyard spot steer` as a Deployment of one pod.

It reads nodes, pods, queues and workloads, and writes on workloads which flavors of their queue they may have; to
move a run, it deactivates its workload for a moment. An admission policy admits only that from its account.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from infra.addons.control_loops import LEASES, Loop, Settings, installable
from infra.addons.manifests import rule
from infra.addons.model import AddOn, Installable, Section
from infra.domain import naming
from infra.kubernetes.admission_policy import (
    ACTIVATION,
    Rule,
    account_policy,
    resources,
    unchanged_but,
)
from infra.kubernetes.controller_accounts import STEERING as ACCOUNTS
from infra.kubernetes.controller_accounts import is_one_of
from infra.kubernetes.objects import Manifest
from infra.sections.programs import SteeringConfig

NAMESPACE: Final = naming.STEERING_NAMESPACE
NAME: Final = naming.STEERING_ACCOUNT
LEASE: Final = "steering"
_KUEUE: Final = "kueue.x-k8s.io"

EVERYWHERE: Final = (
    rule("", ["nodes", "pods"], ["list"]),
    rule(_KUEUE, ["workloads", "clusterqueues"], ["list"]),
)
"""Rights in the whole cluster; in namespaces of teams it has those of infra/tenancy/access.py."""
CORDON: Final = rule("", ["nodes"], ["patch"])
"""Only where the stack file says `cordonNamedNodes`; an admission policy admits only cordons."""
RATES: Final = rule("", ["configmaps"], ["create", "get", "patch"])
"""In its own namespace: the rates that it has learnt."""


def writes_admitted() -> Manifest:
    """Admit from the service account only: the flavors that a workload may have, its notes, and (de)activation."""
    noted = [naming.ALLOWED_FLAVORS, naming.STEERING]
    return account_policy(
        "steering",
        resources(_KUEUE, "workloads", operations=("UPDATE",), scope="*"),
        ("steering", is_one_of(ACCOUNTS)),
        [ACTIVATION],
        notes=noted,
        otherwise=f"this account may change the annotations {' and '.join(noted)} only",
    )


def cordons_admitted() -> Manifest:
    """Admit from the service account only that a node is cordoned, and a note why; never the way back."""
    cordoned = Rule(
        holds=f"{unchanged_but('spec', ['unschedulable'])} && object.spec.?unschedulable.orValue(false)",
        message="this account may only set spec.unschedulable of a Node to true",
    )
    return account_policy(
        "steering-nodes",
        resources("", "nodes", operations=("UPDATE",), scope="Cluster"),
        ("steering", is_one_of(ACCOUNTS)),
        [cordoned],
        notes=[naming.CORDONED],
        otherwise=f"this account may change the annotation {naming.CORDONED} of a Node only",
    )


def plan(section: SteeringConfig, pools: Mapping[str, Any], *, prometheus: bool) -> Installable:
    """Return the program, its rights and the policies that bound them.

    `pools`: pools and rules, as ops/steer/settings.py reads them. `prometheus`: whether the stack has one.
    """
    text = json.dumps(dict(pools), indent=1, sort_keys=True) + "\n"
    settings = Settings(name="pools", text=text)
    cordons = section.cordon_named_nodes
    return installable(
        Loop(
            add_on="steering",
            name=NAME,
            namespace=NAMESPACE,
            image=section.image,
            words=["spot", "steer", "--pools", settings.path],
            every_seconds=section.every_seconds,
            lease=LEASE,
            admitted=[writes_admitted(), *([cordons_admitted()] if cordons else [])],
            everywhere=[*EVERYWHERE, *([CORDON] if cordons else [])],
            at_home=[LEASES, RATES],
            cpu="100m",
            memory="512Mi",
            settings=settings,
            metrics_port=naming.STEERING_METRICS_PORT,
            prometheus=prometheus,
        )
    )


STEERING: Final = AddOn(
    name="steering",
    section=Section.STEERING,
    namespace=NAMESPACE,
    needs=("kueue", "kubePrometheusStack"),
    plan=plan,
)
