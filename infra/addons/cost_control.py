"""Ledger and budgets in the cluster: `trainyard cost enforce` as a Deployment of one pod.

It reads nodes, pods and workloads, keeps the record on a volume of its own, holds queues of teams and deactivates
their workloads. An admission policy admits only these two changes from its service account.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from infra.addons.control_loops import Claim, Loop, Settings, installable
from infra.addons.manifests import rule
from infra.addons.model import AddOn, Installable, Section
from infra.domain import naming
from infra.kubernetes.admission_policy import (
    Rule,
    account_policy,
    only,
    resources,
    unchanged_but,
)
from infra.kubernetes.objects import Manifest
from infra.sections.programs import CostsConfig

NAMESPACE: Final = naming.COSTS_NAMESPACE
NAME: Final = naming.COSTS_ACCOUNT
LEASE: Final = "costs"
_KUEUE: Final = "kueue.x-k8s.io"
STATE: Final = f"{naming.DOMAIN}/budget"
"""Annotation of a ClusterQueue, written by ops/budgets/control.py."""
_RECORD: Final = "/record"

EVERYWHERE: Final = (
    rule("", ["nodes", "pods"], ["list"]),
    rule(_KUEUE, ["workloads"], ["list"]),
    rule(_KUEUE, ["clusterqueues"], ["list", "patch"]),
)
"""Rights in the whole cluster; in namespaces of teams it has those of infra/tenancy/access.py."""


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
    ]
    return account_policy(
        "costs",
        resources(_KUEUE, "clusterqueues", "workloads", operations=("UPDATE",), scope="*"),
        ("costs", only(NAMESPACE, NAME)),
        rules,
        notes=[STATE],
        otherwise=f"this account may change the annotation {STATE} only",
    )


def plan(
    section: CostsConfig,
    budgets: Sequence[Mapping[str, Any]],
    default_class: str,
    *,
    prometheus: bool,
) -> Installable:
    """Return the program, its volume, its rights and the policy that bounds them.

    `default_class`: of the record's volume, where the section names none; empty: the cluster's default.
    `prometheus`: whether the stack has one.
    """
    text = json.dumps(list(budgets), indent=1, sort_keys=True) + "\n"
    settings = Settings(name="budgets", text=text)
    return installable(
        Loop(
            add_on="costs",
            name=NAME,
            namespace=NAMESPACE,
            image=section.image,
            words=["cost", "enforce", "--budgets", settings.path, "--record", _RECORD],
            every_seconds=section.every_seconds,
            lease=LEASE,
            admitted=[writes_admitted()],
            everywhere=EVERYWHERE,
            cpu="100m",
            memory="512Mi",
            settings=settings,
            claim=Claim(
                name="record",
                path=_RECORD,
                size=section.volume,
                storage_class=section.storage_class or default_class,
            ),
            metrics_port=naming.COSTS_METRICS_PORT,
            prometheus=prometheus,
        )
    )


COST_CONTROL: Final = AddOn(
    name="costs",
    section=Section.COSTS,
    namespace=NAMESPACE,
    needs=("kueue", "kubePrometheusStack"),
    plan=plan,
)
