"""Permissions on the real API server: the committed matrix lists all of them, everything else is denied."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.domain import naming
from infra.tenancy import access, shared_view, team
from sandbox.node.api import Client
from tests.sandbox.access_matrix import CLUSTER, Cell, Subject, answers, matrix
from tests.sandbox.conftest import Cluster
from tests.sandbox.node_kit import until

pytestmark = [pytest.mark.sandbox, pytest.mark.core, pytest.mark.long(65)]

FOLDER = Path(__file__).resolve().parents[1] / "golden/access"
OWN, OTHER = "access-a", "access-b"
NAMESPACE = naming.namespace(OWN)
HOME = {"own namespace": NAMESPACE, "everywhere, and what is in no namespace": CLUSTER}
PLACES = {
    "own namespace": NAMESPACE,
    "another team's namespace": naming.namespace(OTHER),
    "kube-system": "kube-system",
    "everywhere, and what is in no namespace": CLUSTER,
}


def _account(name: str) -> Subject:
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}")
    return Subject(f"system:serviceaccount:{NAMESPACE}:{name}", groups)


SUBJECTS = {
    "researcher": Subject("ada", (naming.group(OWN, "researcher"),)),
    "lead": Subject("grace", (naming.group(OWN, "lead"),)),
    "auditor": Subject("alan", (naming.AUDITOR_GROUP,)),
    "deployer": Subject("ci", (naming.DEPLOYER_GROUP,)),
    "viewer": Subject("preview", (naming.VIEWER_GROUP,)),
    "training-pod": _account(naming.SERVICE_ACCOUNT),
    "other-pod": _account("default"),
    "nobody": Subject("eve"),
}

WITHOUT_ROLE = ("training-pod", "other-pod", "nobody")
"""Checked in their namespace and cluster-wide: no Role of the platform binds them elsewhere."""

GUARDED = [
    *(
        Cell(NAMESPACE, "", resource, verb)
        for resource, verb in (
            ("secrets", "get"),
            ("secrets", "list"),
            ("pods", "create"),
            ("pods/attach", "create"),
            ("pods/proxy", "get"),
            ("services/proxy", "get"),
            ("pods/ephemeralcontainers", "patch"),
            ("pods/binding", "create"),
            ("pods/eviction", "create"),
            ("bindings", "create"),
            ("serviceaccounts/token", "create"),
            ("serviceaccounts", "impersonate"),
            ("resourcequotas", "patch"),
            ("limitranges", "delete"),
            ("persistentvolumeclaims", "delete"),
        )
    ),
    Cell(NAMESPACE, "rbac.authorization.k8s.io", "roles", "escalate"),
    Cell(NAMESPACE, "rbac.authorization.k8s.io", "roles", "bind"),
    Cell(NAMESPACE, "rbac.authorization.k8s.io", "rolebindings", "create"),
    Cell(NAMESPACE, "networking.k8s.io", "networkpolicies", "create"),
    Cell(NAMESPACE, "kueue.x-k8s.io", "localqueues", "create"),
    Cell(NAMESPACE, "kueue.x-k8s.io", "localqueues", "patch"),
    Cell(NAMESPACE, "kueue.x-k8s.io", "workloads", "create"),
    Cell(NAMESPACE, "kueue.x-k8s.io", "workloads", "update"),
    Cell(NAMESPACE, "kueue.x-k8s.io", "workloads/status", "patch"),
    Cell(NAMESPACE, "external-secrets.io", "externalsecrets", "create"),
    Cell(NAMESPACE, "apps", "deployments", "create"),
    Cell(NAMESPACE, "batch", "jobs/status", "patch"),
]
"""Verbs that are denied to all team members in their own namespace; the matrix has all others, too."""

GUARDED_EVERYWHERE = [
    Cell(CLUSTER, "", "nodes", "patch"),
    Cell(CLUSTER, "", "nodes/proxy", "get"),
    Cell(CLUSTER, "", "persistentvolumes", "create"),
    Cell(CLUSTER, "", "namespaces", "patch"),
    Cell(CLUSTER, "", "users", "impersonate"),
    Cell(CLUSTER, "", "groups", "impersonate"),
    Cell(CLUSTER, "rbac.authorization.k8s.io", "clusterroles", "bind"),
    Cell(CLUSTER, "rbac.authorization.k8s.io", "clusterroles", "escalate"),
    Cell(CLUSTER, "admissionregistration.k8s.io", "validatingadmissionpolicybindings", "delete"),
    Cell(CLUSTER, "admissionregistration.k8s.io", "mutatingwebhookconfigurations", "create"),
    Cell(CLUSTER, "certificates.k8s.io", "certificatesigningrequests", "create"),
    Cell(CLUSTER, "certificates.k8s.io", "signers", "approve"),
    Cell(CLUSTER, "kueue.x-k8s.io", "clusterqueues", "update"),
    Cell(CLUSTER, "kueue.x-k8s.io", "cohorts", "create"),
    Cell(CLUSTER, "scheduling.k8s.io", "priorityclasses", "create"),
    Cell(CLUSTER, "*", "*", "*"),
]


def _shared(name: str) -> list[dict[str, Any]]:
    """A ClusterRole and its binding; a stack on the same cluster has them under their usual names."""
    made = [shared_view.cluster_role(name), shared_view.cluster_role_binding(name, (OWN, OTHER))]
    text = json.dumps(made).replace(f'"{name}"', f'"access-{name}"')
    found: list[dict[str, Any]] = json.loads(text)
    return found


def _objects() -> list[dict[str, Any]]:
    teams = [
        manifest
        for name in (OWN, OTHER)
        for manifest in (
            team.namespace(name),
            access.service_account(name),
            *(access.role(role, name) for role in access.ROLE_RULES),
            *(access.role_binding(role, name) for role in access.ROLE_RULES),
        )
    ]
    return [*teams, *(one for name in shared_view.RULES for one in _shared(name))]


@pytest.fixture(scope="module")
def teams(cluster: Cluster) -> Iterator[Cluster]:
    cluster.apply(*_objects())
    client = Client(cluster.kubeconfig)
    seen = Cell(naming.namespace(OTHER), "", "pods", "get")
    until(lambda: answers(client, SUBJECTS["auditor"], [seen])[seen], "roles are in force")
    yield cluster
    cluster.delete(*reversed(_objects()))


@pytest.mark.parametrize("name", SUBJECTS)
def test_permissions_of_every_subject_equal_the_committed_matrix(
    teams: Cluster, name: str, request: pytest.FixtureRequest
) -> None:
    places = HOME if name in WITHOUT_ROLE else PLACES
    found = matrix(teams, Client(teams.kubeconfig), SUBJECTS[name], places)
    path = FOLDER / f"{name}.txt"
    if request.config.getoption("--update-golden"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(found)
    committed = path.read_text()
    difference = difflib.unified_diff(
        committed.splitlines(), found.splitlines(), "committed", "allowed", lineterm="", n=0
    )
    assert committed == found, "\n".join([f"{name} may do other things:", *difference])


def _granted(name: str, groups: list[str]) -> list[dict[str, Any]]:
    """Objects that give groups every guarded cell."""
    api = "rbac.authorization.k8s.io"
    subjects = [{"apiGroup": api, "kind": "Group", "name": group} for group in groups]

    def rules(cells: list[Cell]) -> list[dict[str, Any]]:
        return [
            {"apiGroups": [c.group], "resources": [c.resource], "verbs": [c.verb]} for c in cells
        ]

    def pair(prefix: str, cells: list[Cell], **meta: str) -> list[dict[str, Any]]:
        metadata = {"name": name, **meta}
        role = {"apiGroup": api, "kind": f"{prefix}Role", "name": name}
        common = {"apiVersion": f"{api}/v1", "metadata": metadata}
        return [
            common | {"kind": f"{prefix}Role", "rules": rules(cells)},
            common | {"kind": f"{prefix}RoleBinding", "roleRef": role, "subjects": subjects},
        ]

    return [*pair("", GUARDED, namespace=NAMESPACE), *pair("Cluster", GUARDED_EVERYWHERE)]


def test_guarded_verbs_are_denied_to_all_subjects_and_a_granting_role_is_detected(
    teams: Cluster,
) -> None:
    client = Client(teams.kubeconfig)
    cells = [*GUARDED, *GUARDED_EVERYWHERE]
    for name, subject in SUBJECTS.items():
        allowed = [cell for cell, yes in answers(client, subject, cells).items() if yes]
        assert allowed == [], name
    broken = _granted("access-broken-guard", [SUBJECTS["researcher"].groups[0]])
    teams.apply(*broken)
    try:
        until(
            lambda: all(answers(client, SUBJECTS["researcher"], cells).values()),
            "every guarded cell is open",
        )
    finally:
        teams.delete(*broken)
    until(
        lambda: not any(answers(client, SUBJECTS["researcher"], cells).values()),
        "every guarded cell is closed again",
    )


def test_researchers_and_leads_alone_connect_to_pods_and_only_in_their_namespace(
    teams: Cluster,
) -> None:
    client = Client(teams.kubeconfig)
    for name, subject in SUBJECTS.items():
        for place in (NAMESPACE, naming.namespace(OTHER), "kube-system"):
            cells = [
                Cell(place, "", f"pods/{way}", verb)
                for way in ("exec", "portforward")
                for verb in ("create", "get")
            ]
            expected = place == NAMESPACE and name in ("researcher", "lead")
            assert set(answers(client, subject, cells).values()) == {expected}, (name, place)


def test_requests_are_answered_according_to_the_matrix(teams: Cluster) -> None:
    researcher = [f"--as={SUBJECTS['researcher'].user}"]
    researcher += [f"--as-group={group}" for group in SUBJECTS["researcher"].all_groups]
    teams.kubectl("get", "configmaps,jobsets,workloads", "-n", NAMESPACE, *researcher)
    teams.kubectl("get", "nodes,clusterqueues", *researcher)
    for denied in (["secrets", "-n", NAMESPACE], ["pods", "-n", naming.namespace(OTHER)]):
        with pytest.raises(Exception, match="forbidden"):
            teams.kubectl("get", *denied, *researcher)


SECRETS_BY_DETOUR = [
    *(("", "secrets", verb) for verb in ("get", "list", "watch")),
    ("", "pods/log", "get"),
    ("", "configmaps", "get"),
    *(("", f"pods/{way}", verb) for way in ("exec", "attach") for verb in ("get", "create")),
    ("", "pods/ephemeralcontainers", "patch"),
    ("", "pods", "create"),
    ("batch", "jobs", "create"),
    ("", "serviceaccounts/token", "create"),
    *(("", kind, "impersonate") for kind in ("users", "groups", "serviceaccounts")),
    ("rbac.authorization.k8s.io", "roles", "bind"),
    ("rbac.authorization.k8s.io", "clusterrolebindings", "create"),
    ("certificates.k8s.io", "certificatesigningrequests", "create"),
    ("", "nodes/proxy", "get"),
    ("external-secrets.io", "externalsecrets", "create"),
]
"""Requests that return the value of a Secret, at once or by way of a pod, a token, a role or another identity."""


def test_previews_role_has_no_way_to_a_secret_anywhere(teams: Cluster) -> None:
    client = Client(teams.kubeconfig)
    cells = [Cell(place, *way) for place in PLACES.values() for way in SECRETS_BY_DETOUR]
    given = answers(client, SUBJECTS["viewer"], cells)
    assert [cell for cell, yes in given.items() if yes] == []
    # Kubernetes' own `view` would let it read logs: the check notices it.
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
    wide = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "access-wide-viewer"},
        "roleRef": role,
        "subjects": [role | {"kind": "Group", "name": naming.VIEWER_GROUP}],
    }
    logs = Cell(NAMESPACE, "", "pods/log", "get")
    teams.apply(wide)
    try:
        until(lambda: answers(client, SUBJECTS["viewer"], [logs])[logs], "logs are readable")
    finally:
        teams.kubectl("delete", "-f", "-", stdin=json.dumps(wide))
