"""Production check on security: RBAC, service accounts, network policies, pod security, images, secrets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from infra.domain import naming
from ops import collect, objects
from ops.objects import Json
from ops.ready.production.snapshot import (
    ADMISSION_BINDINGS,
    CLUSTER_ROLE_BINDINGS,
    IMAGE_POLICIES,
    NETWORK_POLICIES,
    ROLE_BINDINGS,
    SERVICE_ACCOUNTS,
    WEBHOOKS,
    RowBuilder,
    StackSnapshot,
    abbreviate,
    containers,
)
from ops.ready.results import Check
from ops.ready.stack_facts import Team

CLUSTER_ADMIN: Final = "cluster-admin"
POD_SECURITY_LABEL: Final = "pod-security.kubernetes.io/enforce"
_REMEDY: Final = "`pulumi up` restores it: docs/security.md"
_SECRET: Final = re.compile(r"(SECRET|PASSWORD|PASSWD|TOKEN|API_?KEY|PRIVATE_KEY|CREDENTIALS)$")


def security(snapshot: StackSnapshot) -> Check:
    notes = snapshot.row(
        "Security",
        "RBAC, Secrets, image scanning, and network policies are in place",
        *(collect.NAMESPACES, NETWORK_POLICIES, SERVICE_ACCOUNTS, ROLE_BINDINGS),
        *(CLUSTER_ROLE_BINDINGS, ADMISSION_BINDINGS),
    )
    for team in snapshot.teams:
        problems = list(_team_problems(snapshot, team))
        for problem in problems:
            notes.add_failure(f"{team.namespace}: {problem}", _REMEDY)
        if not problems:
            notes.good.append(_summarize_controls(snapshot, team))
    _check_admins(snapshot, notes)
    _check_admission_policies(snapshot, notes)
    _check_secrets(snapshot, notes)
    check_images(snapshot, notes)
    return notes.row()


def _team_problems(snapshot: StackSnapshot, team: Team) -> Iterator[str]:
    """Yield the isolation problems of a team's namespace."""
    hidden = snapshot.hidden
    home = snapshot.namespace(team)
    if collect.NAMESPACES.plural not in hidden:
        if home is None:
            yield "the namespace is not found"
        elif objects.label(home, POD_SECURITY_LABEL) != "restricted":
            yield f"Pod Security enforces {objects.label(home, POD_SECURITY_LABEL) or 'nothing'}"
    if NETWORK_POLICIES.plural not in hidden and not any(
        map(_is_default_deny, snapshot.team(NETWORK_POLICIES, team))
    ):
        yield "no network policy denies by default"
    if SERVICE_ACCOUNTS.plural not in hidden:
        mine = [
            account
            for account in snapshot.team(SERVICE_ACCOUNTS, team)
            if objects.name(account) == naming.SERVICE_ACCOUNT
        ]
        if not mine:
            yield f"serviceaccount/{naming.SERVICE_ACCOUNT} is not found"
        elif mine[0].get("automountServiceAccountToken") is not False:
            yield f"serviceaccount/{naming.SERVICE_ACCOUNT} mounts its token in pods"
    for binding in snapshot.team(ROLE_BINDINGS, team):
        if binding["roleRef"]["name"] in (CLUSTER_ADMIN, "admin", "edit"):
            yield f"rolebinding/{objects.name(binding)} grants {binding['roleRef']['name']}"


def _summarize_controls(snapshot: StackSnapshot, team: Team) -> str:
    roles = sorted({b["roleRef"]["name"] for b in snapshot.team(ROLE_BINDINGS, team)})
    policies = len(snapshot.team(NETWORK_POLICIES, team))
    signed = objects.label(snapshot.namespace(team) or {}, naming.SIGNED_IMAGES)
    return (
        f"{team.namespace}: roles {abbreviate(roles) or 'none'}; network policies: {policies},"
        " denied by default; restricted pods without tokens"
        f"{'; signed images only' if signed else ''}"
    )


def _is_default_deny(policy: Json) -> bool:
    """Whether it denies all ingress and egress of all pods."""
    spec = policy["spec"]
    return (
        not spec.get("podSelector")
        and {"Ingress", "Egress"} <= set(spec.get("policyTypes") or [])
        and not spec.get("ingress")
        and not spec.get("egress")
    )


def _check_admins(snapshot: StackSnapshot, notes: RowBuilder) -> None:
    """Check that no team member or pod is bound to cluster-admin."""
    namespaces = {team.namespace for team in snapshot.stack.teams}
    for binding in snapshot.cluster(CLUSTER_ROLE_BINDINGS):
        if binding["roleRef"]["name"] != CLUSTER_ADMIN:
            continue
        for subject in binding.get("subjects") or []:
            ours = str(subject.get("name", "")).startswith(f"{naming.PROJECT}:")
            if ours or subject.get("namespace") in namespaces:
                notes.add_failure(
                    f"clusterrolebinding/{objects.name(binding)} grants cluster-admin to"
                    f" {subject['kind']} {subject['name']}",
                    "delete the binding",
                )


def _check_admission_policies(snapshot: StackSnapshot, notes: RowBuilder) -> None:
    """Check that the platform's admission policies deny violations."""
    if ADMISSION_BINDINGS.plural in snapshot.hidden:
        return
    names = [
        objects.name(one).removeprefix(f"{naming.PROJECT}-")
        for one in snapshot.cluster(ADMISSION_BINDINGS)
        if objects.label(one, naming.PART_OF) == naming.PROJECT
        and "Deny" in (one["spec"].get("validationActions") or [])
    ]
    if names:
        notes.good.append(f"admission policies that deny: {abbreviate(sorted(names))}")
    else:
        notes.add_failure("no admission policy of the platform is set to Deny", _REMEDY)


def _check_secrets(snapshot: StackSnapshot, notes: RowBuilder) -> None:
    """Check that no container has a secret as a plain environment value."""
    for item in [*snapshot.runs(), *snapshot.all_teams(collect.PODS)]:
        for container in containers(item):
            open_ones = [
                one["name"]
                for one in container.get("env") or []
                if one.get("value") and _SECRET.search(str(one["name"]))
            ]
            if open_ones:
                # Never print the value.
                notes.add_failure(
                    f"{objects.reference(item)}: {abbreviate(open_ones)} is a plain value in its environment",
                    "move it to a Secret (docs/add-a-team.md) and rotate it",
                )


WEBHOOK: Final = "policy.sigstore.dev"
"""What policy-controller's chart calls the webhook that verifies images."""

_DIGEST: Final = "@sha256:"
_SIGN_REMEDY: Final = "set `signatures` in the stack file: docs/security.md"


def check_images(snapshot: StackSnapshot, notes: RowBuilder) -> None:
    """Add to the row what is known of the signatures of the images that run."""
    if not snapshot.teams or collect.NAMESPACES.plural in snapshot.hidden:
        return
    if hidden := snapshot.unreadable(IMAGE_POLICIES, WEBHOOKS, collect.PODS):
        for line in hidden:
            notes.add_unknown(f"image scanning: {line}")
        return
    missing = list(_gaps(snapshot))
    for line in missing:
        notes.add_unknown(f"image scanning: {line}, so nothing proves a scan", _SIGN_REMEDY)
    if not missing:
        _check_pods(snapshot, notes)


def _gaps(snapshot: StackSnapshot) -> Iterator[str]:
    """Yield why a pod of a team could run an image that was not verified."""
    free = [
        team.namespace for team in snapshot.teams if not _checked(snapshot.namespace(team) or {})
    ]
    if free:
        yield f"pods of {abbreviate(free)} need no signed image"
    if not _policies(snapshot):
        yield "no ClusterImagePolicy requires a signature of every image"
    hooks = [
        hook
        for one in snapshot.cluster(WEBHOOKS)
        if objects.name(one) == WEBHOOK
        for hook in one.get("webhooks") or []
    ]
    # The controller writes the authority and the rules when it starts: without them nothing is sent to it.
    working = [h for h in hooks if h.get("rules") and (h.get("clientConfig") or {}).get("caBundle")]
    if not working:
        yield f"no webhook {WEBHOOK} asks policy-controller"
    elif any(hook.get("failurePolicy") != "Fail" for hook in working):
        yield f"the webhook {WEBHOOK} lets pods in while policy-controller does not answer"


def _checked(home: Json) -> bool:
    return objects.label(home, naming.SIGNED_IMAGES) == "true"


def _policies(snapshot: StackSnapshot) -> list[Json]:
    """Return the platform's policy for all images, if it is enforced."""
    return [
        one
        for one in snapshot.cluster(IMAGE_POLICIES)
        if objects.name(one) == naming.IMAGE_POLICY
        # `enforce` is the default.
        and one["spec"].get("mode", "enforce") == "enforce"
        and one["spec"].get("authorities")
        and {"glob": "**"} in one["spec"].get("images", [])
    ]


def _check_pods(snapshot: StackSnapshot, notes: RowBuilder) -> None:
    """Check that each pod was admitted while the policy was in force, with digests."""
    since = max(str(objects.meta(one).get("creationTimestamp")) for one in _policies(snapshot))
    pods = [
        pod
        for pod in snapshot.all_teams(collect.PODS)
        if objects.status(pod).get("phase") in ("Pending", "Running")
    ]
    older = [
        objects.reference(pod)
        for pod in pods
        if str(objects.meta(pod).get("creationTimestamp")) < since
    ]
    images = {str(container["image"]) for pod in pods for container in containers(pod)}
    tags = sorted(image for image in images if _DIGEST not in image)
    if older:
        notes.add_unknown(
            f"image scanning: {abbreviate(older)} started before signatures were required, so nothing verified it",
            "restart what is older than the ClusterImagePolicy",
        )
    if tags:
        notes.add_unknown(
            f"image scanning: {abbreviate(tags)} runs by tag, which no signature names",
            "name images by digest",
        )
    if not pods:
        notes.add_unknown(
            "image scanning: signatures are required, but no pod of a team runs, so none was verified",
            "start a run, and check again while it trains",
        )
    elif not older and not tags:
        notes.good.append(
            f"image scanning: {len(images)} images in {len(pods)} pods, each admitted by its signature,"
            " which follows its scan"
        )
