"""The row on security: roles, accounts, networks, pods, images, and secrets in the open."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from infra.domain import naming
from ops import collect, objects
from ops.checklist.snapshot import (
    ADMISSION,
    CLUSTER_ROLE_BINDINGS,
    NAMESPACES,
    NETWORK_POLICIES,
    ROLE_BINDINGS,
    SERVICE_ACCOUNTS,
    Notes,
    Observed,
    containers,
    some,
)
from ops.objects import Json
from ops.ready.outcome import Row
from ops.ready.stack_facts import Team

ADMIN: Final = "cluster-admin"
ENFORCE: Final = "pod-security.kubernetes.io/enforce"
_REMEDY: Final = "`pulumi up` makes it as it should be; docs/security.md says what it holds"
_SECRET: Final = re.compile(r"(SECRET|PASSWORD|PASSWD|TOKEN|API_?KEY|PRIVATE_KEY|CREDENTIALS)$")


def security(observed: Observed) -> Row:
    """What surrounds each team's namespace, and who may pass."""
    notes = Notes(
        area="Security",
        check="RBAC, Secrets, image scanning, and network policies are in place",
    )
    kinds = (NAMESPACES, NETWORK_POLICIES, SERVICE_ACCOUNTS, ROLE_BINDINGS)
    for missing in observed.unseen(*kinds, CLUSTER_ROLE_BINDINGS, ADMISSION):
        notes.doubts(missing)
    for team in observed.teams:
        problems = list(_team(observed, team))
        for problem in problems:
            notes.fails(f"{team.namespace}: {problem}", _REMEDY)
        if not problems:
            notes.good.append(_held(observed, team))
    _admins(observed, notes)
    _admission(observed, notes)
    _secrets(observed, notes)
    # What a registry or a pipeline did before the image came here leaves nothing on the cluster.
    notes.good.append("image scanning: a gate in CI, which a cluster does not show")
    return notes.row()


def _team(observed: Observed, team: Team) -> Iterator[str]:
    """What is wrong around a team."""
    hidden = observed.hidden
    home = _home(observed, team)
    if NAMESPACES.plural not in hidden:
        rdma = objects.label(home or {}, naming.RDMA)
        if home is None:
            yield "the namespace is not there"
        elif objects.label(home, ENFORCE) != "restricted" and not rdma:
            yield f"Pod Security enforces {objects.label(home, ENFORCE) or 'nothing'}"
    if NETWORK_POLICIES.plural not in hidden and not any(
        map(_denies, observed.team(NETWORK_POLICIES, team))
    ):
        yield "no network policy denies by default"
    if SERVICE_ACCOUNTS.plural not in hidden:
        mine = [
            account
            for account in observed.team(SERVICE_ACCOUNTS, team)
            if objects.name(account) == naming.SERVICE_ACCOUNT
        ]
        if not mine:
            yield f"serviceaccount/{naming.SERVICE_ACCOUNT} is not there"
        elif mine[0].get("automountServiceAccountToken") is not False:
            yield f"pods of serviceaccount/{naming.SERVICE_ACCOUNT} get a token"
    for binding in observed.team(ROLE_BINDINGS, team):
        if binding["roleRef"]["name"] in (ADMIN, "admin", "edit"):
            yield f"rolebinding/{objects.name(binding)} gives {binding['roleRef']['name']}"


def _held(observed: Observed, team: Team) -> str:
    roles = sorted({b["roleRef"]["name"] for b in observed.team(ROLE_BINDINGS, team)})
    policies = len(observed.team(NETWORK_POLICIES, team))
    signed = objects.label(_home(observed, team) or {}, naming.SIGNED_IMAGES)
    return (
        f"{team.namespace}: roles {some(roles) or 'none'}; network policies: {policies}, the"
        " default denies; restricted pods without tokens"
        f"{'; signed images only' if signed else ''}"
    )


def _home(observed: Observed, team: Team) -> Json | None:
    found = observed.cluster(NAMESPACES)
    return next((one for one in found if objects.name(one) == team.namespace), None)


def _denies(policy: Json) -> bool:
    """Whether it selects all pods and lets nothing through, in either direction."""
    spec = policy["spec"]
    return (
        not spec.get("podSelector")
        and {"Ingress", "Egress"} <= set(spec.get("policyTypes") or [])
        and not spec.get("ingress")
        and not spec.get("egress")
    )


def _admins(observed: Observed, notes: Notes) -> None:
    """Nobody of a team, person or pod, administers the cluster."""
    namespaces = {team.namespace for team in observed.stack.teams}
    for binding in observed.cluster(CLUSTER_ROLE_BINDINGS):
        if binding["roleRef"]["name"] != ADMIN:
            continue
        for subject in binding.get("subjects") or []:
            ours = str(subject.get("name", "")).startswith(f"{naming.PROJECT}:")
            if ours or subject.get("namespace") in namespaces:
                notes.fails(
                    f"clusterrolebinding/{objects.name(binding)} makes {subject['kind']}"
                    f" {subject['name']} cluster-admin",
                    "delete the binding",
                )


def _admission(observed: Observed, notes: Notes) -> None:
    """The API server's own gate for pods and images."""
    if ADMISSION.plural in observed.hidden:
        return
    names = [
        objects.name(one).removeprefix(f"{naming.PROJECT}-")
        for one in observed.cluster(ADMISSION)
        if objects.label(one, naming.PART_OF) == naming.PROJECT
        and "Deny" in (one["spec"].get("validationActions") or [])
    ]
    if names:
        notes.good.append(f"admission policies that deny: {some(sorted(names))}")
    else:
        notes.fails("no admission policy of the platform denies anything", _REMEDY)


def _secrets(observed: Observed, notes: Notes) -> None:
    """Secrets come from Secrets, never as text in a pod."""
    for item in [*observed.runs(), *observed.all_teams(collect.PODS)]:
        for container in containers(item):
            open_ones = [
                one["name"]
                for one in container.get("env") or []
                if one.get("value") and _SECRET.search(str(one["name"]))
            ]
            if open_ones:
                # Never the value itself.
                notes.fails(
                    f"{objects.reference(item)}: {some(open_ones)} is written out in its environment",
                    "keep it in a Secret: docs/add-a-team.md; then replace what was written out",
                )
