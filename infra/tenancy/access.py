"""RBAC in team namespaces: Roles for people and for CI, none for training pods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from infra.domain import naming
from infra.domain.launcher_support import resources_by_group
from infra.kubernetes import objects
from infra.kubernetes.objects import Manifest, in_team
from infra.tenancy.admission import ownership

_READ: Final = ["get", "list", "watch"]
_WRITE: Final = ["create", "update", "patch", "delete"]
_SUBMIT: Final = ["create", "patch", "delete"]
"""Verbs on the parts of a run: `patch` names the run as the owner of its parts."""


def _rule(group: str, resources: list[str], verbs: list[str]) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": resources, "verbs": verbs}


def _run_rules(verbs: list[str]) -> list[dict[str, Any]]:
    return [
        _rule(group, resources, verbs)
        for group, resources in resources_by_group(runtimes=True).items()
    ]


_VIEW: Final = [
    _rule(
        "",
        [
            "pods",
            "events",
            "services",
            "configmaps",
            "persistentvolumeclaims",
            "resourcequotas",
            "limitranges",
        ],
        _READ,
    ),
    _rule("", ["pods/log"], ["get"]),
    *_run_rules(_READ),
    _rule("events.k8s.io", ["events"], _READ),
    _rule("kueue.x-k8s.io", ["workloads", "localqueues"], _READ),
    _rule("autoscaling.x-k8s.io", ["provisioningrequests"], _READ),
    _rule("networking.k8s.io", ["networkpolicies"], _READ),
    # State and source of a secret; its value stays in the Secret.
    _rule("external-secrets.io", ["externalsecrets", "secretstores"], _READ),
]
"""Everything that explains a run; no Secrets."""

_SHELLS: Final = [_rule("", ["pods/exec", "pods/portforward"], ["create", "get"])]
"""Connections to pods. An admission policy admits only those to one's own dev pods: admission/dev_pods.py."""

_LAUNCH: Final = [
    *_run_rules(["create", "delete"]),
    _rule("", ["configmaps", "services"], _SUBMIT),
]
"""Create runs, and stop one's own: infra/tenancy/admission/ownership.py decides whose a run is."""

PAGE_RULES: Final = [{**one, "verbs": [v for v in one["verbs"] if v != "watch"]} for one in _VIEW]
"""Rights of the run page in a team's namespace: what every member sees. It shows each user no more than RBAC lets
that user read: ops/ui/users.py."""

ROLE_RULES: Final[Mapping[str, list[dict[str, Any]]]] = {
    # Everyone sees the queue, logs and events, and submits runs.
    "researcher": [*_VIEW, *_SHELLS, *_LAUNCH],
    # Leads can stop all runs of the team.
    "lead": [
        *_VIEW,
        *_SHELLS,
        *_LAUNCH,
        _rule("", ["pods"], ["delete"]),
        _rule(naming.DOMAIN, [ownership.RUNS], [ownership.STOP]),
    ],
    "auditor": [
        *_VIEW,
        _rule("rbac.authorization.k8s.io", ["roles", "rolebindings"], _READ),
        _rule("", ["serviceaccounts"], _READ),
    ],
    # CI deploys runs; limits, policies and queues belong to platform engineers.
    "deployer": [
        *_VIEW,
        *_run_rules(_WRITE),
        _rule("", ["configmaps", "services"], _WRITE),
        _rule(naming.DOMAIN, [ownership.RUNS], [ownership.DEPLOY, ownership.STOP]),
    ],
}
"""Rules by role in each team's namespace. No role reads Secrets or changes a role; without
wildcards, an add-on's resources are inaccessible until they are listed here."""


def group_of(role: str, team: str) -> str:
    if role == "auditor":
        return naming.AUDITOR_GROUP
    if role == "deployer":
        return naming.DEPLOYER_GROUP
    return naming.group(team, role)


def role(name: str, team: str, pod_groups: str = "") -> Manifest:
    """Return a Role in the team's namespace.

    `pod_groups`: API group of the PodGroups of runs, if the scheduler needs them.
    """
    written = {"deployer": _WRITE, "lead": _SUBMIT, "researcher": _SUBMIT}
    verbs = [*_READ, *written.get(name, [])]
    more = [_rule(pod_groups, ["podgroups"], verbs)] if pod_groups else []
    return objects.role(name, "access", [*ROLE_RULES[name], *more], **_of(team))


def role_binding(name: str, team: str, groups: Sequence[str] = ()) -> Manifest:
    """Return the RoleBinding to its group, and to `groups` of the identity provider."""
    names = [group_of(name, team), *groups]
    return objects.role_binding(name, "access", *map(objects.group, names), **_of(team))


def _of(team: str) -> dict[str, str]:
    return {"team": team, "namespace": naming.namespace(team)}


def page_access(team: str) -> tuple[Manifest, Manifest]:
    """Return Role and RoleBinding of the run page in the team's namespace."""
    return _account_access(team, naming.RUN_PAGE_ACCOUNT, naming.RUN_PAGE_NAMESPACE, PAGE_RULES)


def costs_access(team: str) -> tuple[Manifest, Manifest]:
    """Return the same for what enforces budgets: it deactivates Workloads; infra/addons/cost_control.py."""
    rules = [_rule("kueue.x-k8s.io", ["workloads"], ["get", "patch"])]
    return _account_access(team, naming.COSTS_ACCOUNT, naming.COSTS_NAMESPACE, rules)


def steering_access(team: str) -> tuple[Manifest, Manifest]:
    """Return the same for what moves runs between pools; infra/addons/steering.py."""
    rules = [
        _rule("kueue.x-k8s.io", ["workloads"], ["patch"]),
        _rule("", ["events"], ["create"]),
    ]
    return _account_access(team, naming.STEERING_ACCOUNT, naming.STEERING_NAMESPACE, rules)


def elastic_access(team: str) -> tuple[Manifest, Manifest]:
    """Return the same for what releases groups of ended runs; infra/addons/elastic_runs.py."""
    rules = [_rule("kueue.x-k8s.io", ["workloads"], ["patch"])]
    return _account_access(team, naming.ELASTIC_ACCOUNT, naming.ELASTIC_NAMESPACE, rules)


def _account_access(
    team: str, name: str, home: str, rules: list[dict[str, Any]]
) -> tuple[Manifest, Manifest]:
    account = {"kind": "ServiceAccount", "name": name, "namespace": home}
    return (
        objects.role(name, "access", rules, **_of(team)),
        objects.role_binding(name, "access", account, **_of(team)),
    )


def service_account(team: str) -> Manifest:
    """Return the ServiceAccount of training pods; it has no permissions, so pods get no token."""
    return in_team(
        "v1/ServiceAccount",
        naming.SERVICE_ACCOUNT,
        "access",
        team,
        automountServiceAccountToken=False,
    )
