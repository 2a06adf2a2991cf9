"""All permissions of a subject on a cluster according to its API server: verb by resource by place.

A SubjectAccessReview answers each cell. A SelfSubjectRulesReview lists the underlying rules,
including resources that this cluster does not serve, and non-resource paths.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from sandbox.node.api import Client, Json
from tests.sandbox.conftest import Cluster

VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")

SPECIAL = {
    "bind": [("rbac.authorization.k8s.io", "roles"), ("rbac.authorization.k8s.io", "clusterroles")],
    "escalate": [
        ("rbac.authorization.k8s.io", "roles"),
        ("rbac.authorization.k8s.io", "clusterroles"),
    ],
    "impersonate": [
        ("", "users"),
        ("", "groups"),
        ("", "serviceaccounts"),
        ("authentication.k8s.io", "uids"),
        ("authentication.k8s.io", "userextras/scopes"),
    ],
    "approve": [("certificates.k8s.io", "signers")],
    "attest": [("certificates.k8s.io", "signers")],
    "sign": [("certificates.k8s.io", "signers")],
    "use": [
        ("policy", "podsecuritypolicies"),
        ("security.openshift.io", "securitycontextconstraints"),
    ],
    "request-serviceaccounts-token-audience": [("", "serviceaccounts")],
}
"""Verbs other than those of requests, with the resources on which Kubernetes checks them."""

CLUSTER = ""
"""In place of a namespace: all namespaces, and cluster-scoped resources."""


class Cell(NamedTuple):
    """One permission: a verb on a resource in a place."""

    place: str
    """A namespace, or CLUSTER."""
    group: str
    resource: str
    """With its subresource: pods/log."""
    verb: str


@dataclass(frozen=True)
class Subject:
    """A user. `groups`: those besides `system:authenticated`, which includes every user."""

    user: str
    groups: tuple[str, ...] = ()

    @property
    def all_groups(self) -> list[str]:
        return [*self.groups, "system:authenticated"]


class Resource(NamedTuple):
    group: str
    name: str
    namespaced: bool


def served(client: Client) -> list[Resource]:
    """All resources of all versions, subresources included, as discovery lists them."""
    paths = {"": ["/api/v1"]}
    for group in client.get("/apis")["groups"]:
        paths[group["name"]] = [f"/apis/{v['groupVersion']}" for v in group["versions"]]
    found = {
        Resource(group, one["name"], one["namespaced"])
        for group, versions in paths.items()
        for path in versions
        for one in client.get(path)["resources"]
    }
    return sorted(found)


def cells(resources: Iterable[Resource], places: Iterable[str]) -> Iterator[Cell]:
    """Yield every verb on each resource in each place where the resource can be."""
    for place in places:
        for resource in resources:
            if resource.namespaced or place == CLUSTER:
                for verb in VERBS:
                    yield Cell(place, resource.group, resource.name, verb)
        for verb, targets in SPECIAL.items():
            for group, name in targets:
                yield Cell(place, group, name, verb)
        # Only a rule with wildcards answers this one.
        yield Cell(place, "*", "*", "*")


def rules(cluster: Cluster, subject: Subject, place: str) -> Json:
    """The rules that a subject has in a namespace; in one that is not there: those of all namespaces."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": place or "no-such-namespace"},
    }
    groups = [f"--as-group={group}" for group in subject.all_groups]
    command = ["create", "--validate=false", "-f", "-", "-o", "json", f"--as={subject.user}"]
    text = cluster.kubectl(*command, *groups, stdin=json.dumps(review))
    status: Json = json.loads(text)["status"]
    assert not status["incomplete"], status
    return status


def named(found: Json) -> Iterator[Resource]:
    """Resources that rules name, whether or not the cluster serves them. RBAC does not care."""
    for rule in found["resourceRules"]:
        for group in rule["apiGroups"]:
            for name in rule["resources"]:
                yield Resource(group, name, namespaced=True)


def paths(found: Json) -> list[str]:
    """Return non-resource paths with their verb, such as `/healthz get`."""
    return sorted(
        {
            f"{path} {verb}"
            for rule in found["nonResourceRules"]
            for path in rule["nonResourceURLs"]
            for verb in rule["verbs"]
        }
    )


def may(client: Client, subject: Subject, cell: Cell) -> bool:
    resource, _, subresource = cell.resource.partition("/")
    attributes = {
        "namespace": cell.place,
        "verb": cell.verb,
        "group": cell.group,
        "resource": resource,
        "subresource": subresource,
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": subject.user,
            "groups": subject.all_groups,
            "resourceAttributes": attributes,
        },
    }
    answer = client.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


def answers(client: Client, subject: Subject, asked: list[Cell]) -> dict[Cell, bool]:
    with ThreadPoolExecutor(4) as pool:
        return dict(zip(asked, pool.map(lambda c: may(client, subject, c), asked), strict=True))


def matrix(cluster: Cluster, client: Client, subject: Subject, places: Mapping[str, str]) -> str:
    """Return a subject's permissions as text: a section per place with a line per resource."""
    found = {place: rules(cluster, subject, place) for place in places.values()}
    known = {(r.group, r.name): r for r in served(client)}
    for review in found.values():
        for one in named(review):
            known.setdefault((one.group, one.name), one)
    given = answers(client, subject, list(cells(known.values(), places.values())))
    lines: list[str] = []
    for title, place in places.items():
        lines += [f"# {title}"]
        allowed = sorted(cell for cell, yes in given.items() if yes and cell.place == place)
        for (group, resource), of_one in groupby(allowed, lambda c: (c.group, c.resource)):
            verbs = " ".join(cell.verb for cell in of_one)
            lines.append(f"{f'{resource}.{group}'.rstrip('.')}: {verbs}")
    lines += ["# paths", *paths(found[CLUSTER])]
    return "\n".join(lines) + "\n"
