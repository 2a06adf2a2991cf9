"""Release of groups of ended runs in the cluster: `trainyard stack release` as a Deployment of one pod.

It reads the objects and Workloads of runs with groups, and deactivates Workloads. An admission policy admits only
that from its account, and only of groups: it can stop groups, but start nothing.
"""

from __future__ import annotations

from typing import Final

from infra.addons.control_loops import Loop, installable
from infra.addons.manifests import rule
from infra.addons.model import AddOn, Installable, Section
from infra.domain import naming
from infra.domain.launcher_support import LAUNCHERS
from infra.kubernetes.admission_policy import (
    Rule,
    account_policy,
    labels_of,
    only,
    resources,
    text,
    unchanged_but,
)
from infra.kubernetes.objects import Manifest
from infra.sections.programs import ElasticRunsConfig

NAMESPACE: Final = naming.ELASTIC_NAMESPACE
NAME: Final = naming.ELASTIC_ACCOUNT
LEASE: Final = "release"
_KUEUE: Final = "kueue.x-k8s.io"

EVERYWHERE: Final = (
    *(
        rule(one.kind.group, [one.kind.resource], ["list"])
        for one in LAUNCHERS.values()
        if one.groups
    ),
    rule(_KUEUE, ["workloads"], ["list"]),
)
"""Rights in the whole cluster; in namespaces of teams it has those of infra/tenancy/access.py."""


def writes_admitted() -> Manifest:
    """Admit from the service account only the deactivation of a group."""
    rules = [
        Rule(
            holds=f"{unchanged_but('spec', ['active'])} && dyn(object).spec.?active == optional.of(false)",
            message="this account may set spec.active of a Workload to false only",
        ),
        Rule(
            holds=f"{text(naming.GROUP)} in {labels_of('oldObject')}",
            message="this account may change Workloads of replica groups only",
        ),
    ]
    return account_policy(
        "elastic-runs",
        resources(_KUEUE, "workloads", operations=("UPDATE",), scope="*"),
        ("elastic-runs", only(NAMESPACE, NAME)),
        rules,
        notes=[],
        otherwise="this account may not change labels or annotations",
    )


def plan(section: ElasticRunsConfig) -> Installable:
    return installable(
        Loop(
            add_on="elasticRuns",
            name=NAME,
            namespace=NAMESPACE,
            image=section.image,
            words=["stack", "release"],
            every_seconds=section.every_seconds,
            lease=LEASE,
            admitted=[writes_admitted()],
            everywhere=EVERYWHERE,
            cpu="50m",
            memory="256Mi",
        )
    )


ELASTIC_RUNS: Final = AddOn(
    name="elasticRuns",
    section=Section.ELASTIC_RUNS,
    namespace=NAMESPACE,
    needs=("kueue", "jobset"),
    plan=plan,
)
