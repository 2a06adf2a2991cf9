"""Read access to cluster-scoped objects: nodes, queues; for auditors and previews policies.

They are needed to explain why a run waits: who holds a quota, and which node has which taint.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pulumi

from infra.domain import naming
from infra.kubernetes import objects
from infra.kubernetes.objects import Manifest
from infra.kubernetes.resources import KubernetesObject
from infra.sections.teams import TeamConfig

_READ: Final = ["get", "list", "watch"]
_API_GROUP: Final = "rbac.authorization.k8s.io"

FLEET: Final = f"{naming.PROJECT}-fleet-viewer"
"""ClusterRole of all members of teams."""
AUDIT: Final = f"{naming.PROJECT}-auditor"
"""Additional ClusterRole of auditors and of the role that previews pull requests."""


def _rule(group: str, *resources: str) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": list(resources), "verbs": _READ}


RULES: Final[Mapping[str, list[dict[str, Any]]]] = {
    FLEET: [
        _rule("", "nodes"),
        _rule(
            "kueue.x-k8s.io",
            "clusterqueues",
            "cohorts",
            "resourceflavors",
            "topologies",
            "workloadpriorityclasses",
        ),
        _rule("scheduling.k8s.io", "priorityclasses"),
    ],
    AUDIT: [
        _rule("", "namespaces"),
        _rule(_API_GROUP, "clusterroles", "clusterrolebindings"),
        _rule(
            "admissionregistration.k8s.io",
            "validatingadmissionpolicies",
            "validatingadmissionpolicybindings",
        ),
        _rule("policy.sigstore.dev", "clusterimagepolicies"),
    ],
}
"""Rules by ClusterRole: read-only, by name, without secrets."""


def groups(name: str, teams: tuple[str, ...], own: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the groups that are bound to a ClusterRole. `own`: members' groups of the identity provider."""
    if name == AUDIT:
        return (naming.AUDITOR_GROUP, naming.VIEWER_GROUP)
    people = [naming.group(team, role) for team in teams for role in ("researcher", "lead")]
    return (*people, *own, naming.AUDITOR_GROUP, naming.DEPLOYER_GROUP, naming.VIEWER_GROUP)


def cluster_role(name: str) -> Manifest:
    return objects.role(name, "access", RULES[name])


def cluster_role_binding(name: str, teams: tuple[str, ...], own: tuple[str, ...] = ()) -> Manifest:
    bound = map(objects.group, groups(name, teams, own))
    return objects.role_binding(name, "access", *bound)


def binding(role: str, teams: Sequence[TeamConfig]) -> Manifest:
    own = {one for team in teams for members in team.groups.values() for one in members}
    return cluster_role_binding(role, tuple(team.name for team in teams), tuple(sorted(own)))


class SharedView(pulumi.ComponentResource):
    """Read-only ClusterRoles and their bindings to the members of these teams."""

    def __init__(
        self, name: str, teams: Sequence[TeamConfig], opts: pulumi.ResourceOptions
    ) -> None:
        super().__init__(naming.infra_type("SharedView"), name, None, opts)
        for role in RULES:
            suffix = role.removeprefix(f"{naming.PROJECT}-")
            made = KubernetesObject(
                f"{name}-{suffix}", cluster_role(role), pulumi.ResourceOptions(parent=self)
            )
            KubernetesObject(
                f"{name}-{suffix}-binding",
                binding(role, teams),
                pulumi.ResourceOptions(parent=self, depends_on=[made]),
            )
        self.register_outputs({})
