"""Teams with their admission policies on the real API server, and requests to it as any user."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import urllib3

from infra.config import arguments, parse
from infra.domain import naming
from infra.domain.topology import pool_topology
from infra.kubernetes.admission_policy import binding
from infra.queueing import kueue, priorities
from infra.sections.teams import CapsConfig, DevCapsConfig
from infra.sites.simulated import node_pools
from infra.tenancy import access, admission, limits, team
from infra.tenancy.admission import caps
from sandbox.node.api import ApiError, Client
from tests.sandbox.conftest import Cluster
from tests.sandbox.escape_objects import (
    KINDS,
    PRODUCTION,
    RESEARCH,
    Json,
    collection,
    other_run,
    pod,
    queued,
    values,
)
from tests.sandbox.node_kit import until


def admission_policies() -> list[Json]:
    """The policies of that stack."""
    return admission.policies(arguments.admission(parse(values())))


CAPS = caps.cap_annotations(
    CapsConfig(
        nodes=4,
        hours=2.0,
        gpu_hours=100.0,
        dev_pods=DevCapsConfig(number=2, gpus=4, hours=8.0, gpu_hours=10.0),
    ),
    gpus_per_node=30,
)
"""Of a run that a member submits, and of dev pods."""


def home(name: str, like: str = "") -> list[Json]:
    """A team's namespace with what bounds it. `like`: the team of the stack whose bounds it gets."""
    config = next(t for t in parse(values()).teams if t.name == (like or name))
    return [
        team.namespace(name, config.tier, capped=CAPS),
        limits.resource_quota(name, config.quota),
        limits.dev_pod_quota(name, 2),
        limits.limit_range(name),
        access.service_account(name),
        team.platform_record(name, "{}"),
        *(access.role(role, name) for role in access.ROLE_RULES),
        *(access.role_binding(role, name) for role in access.ROLE_RULES),
    ]


_SCALE = {
    "specReplicasPath": ".spec.pytorchReplicaSpecs.Worker.replicas",
    "statusReplicasPath": ".status.replicaStatuses.Active",
}
"""As the definition of PyTorchJobs has it: an autoscaler that its elasticPolicy asks for writes there."""


def definitions() -> list[Json]:
    """CustomResourceDefinitions that take anything."""
    found = []
    for kind, (group, version, plural) in KINDS.items():
        names = {"kind": kind, "plural": plural, "singular": kind.lower()}
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        ways: Json = {"status": {}} | ({"scale": _SCALE} if kind == "PyTorchJob" else {})
        served = {"name": version, "served": True, "storage": True, "subresources": ways}
        found.append(
            {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {"name": f"{plural}.{group}"},
                "spec": {
                    "group": group,
                    "names": names,
                    "scope": "Namespaced",
                    "versions": [served | {"schema": {"openAPIV3Schema": schema}}],
                },
            }
        )
    return found


@dataclass(frozen=True)
class Ask:
    """A request: by default a dry run as the administrator."""

    method: str
    path: str
    body: Json | None = None
    user: str = ""
    groups: tuple[str, ...] = ()
    query: Mapping[str, str] = field(default_factory=lambda: {"dryRun": "All"})

    def by(self, user: str, *groups: str) -> Ask:
        """Return the same request as another user."""
        return replace(self, user=user, groups=groups)

    def for_real(self) -> Ask:
        return replace(self, query={})


class Asker:
    """Sends requests as any user: an administrator may impersonate."""

    def __init__(self, kubeconfig: Path) -> None:
        self._client = Client(kubeconfig)

    def __call__(self, ask: Ask) -> Json:
        """The answer. Raises ApiError."""
        kind = "application/merge-patch+json" if ask.method == "PATCH" else "application/json"
        headers = urllib3.HTTPHeaderDict({"Accept": "application/json", "Content-Type": kind})
        if ask.user:
            headers.add("Impersonate-User", ask.user)
            for group in ask.groups:
                headers.add("Impersonate-Group", group)
        query = "?" + urlencode(ask.query) if ask.query else ""
        answer = self._client._pool.urlopen(
            ask.method,
            ask.path + query,
            headers=headers,
            body=None if ask.body is None else json.dumps(ask.body).encode(),
        )
        body: Json = json.loads(answer.data)
        if answer.status >= 400:
            raise ApiError(answer.status, body.get("reason", ""), body.get("message", ""))
        return body

    def refusal(self, ask: Ask) -> str:
        """Return why the request is rejected; empty if it is not."""
        try:
            self(ask)
        except ApiError as error:
            return str(error)
        return ""


def create(manifest: Json) -> Ask:
    return Ask("POST", collection(manifest), manifest)


def patch(manifest: Json, change: Json, subresource: str = "") -> Ask:
    path = f"{collection(manifest)}/{manifest['metadata']['name']}"
    return Ask("PATCH", f"{path}/{subresource}" if subresource else path, change)


def delete(manifest: Json, **options: Any) -> Ask:
    # The query of a deletion that has a body does not count.
    body = {"apiVersion": "v1", "kind": "DeleteOptions", "dryRun": ["All"], **options}
    return Ask("DELETE", f"{collection(manifest)}/{manifest['metadata']['name']}", body)


def get(manifest: Json) -> Ask:
    return Ask("GET", f"{collection(manifest)}/{manifest['metadata']['name']}", query={})


@dataclass
class GuardedCluster:
    """A cluster whose admission policies are in force."""

    cluster: Cluster
    ask: Asker
    policies: Mapping[str, Json]
    """By name, without the project's."""

    def await_refusal(self, ask: Ask) -> None:
        until(lambda: self.ask.refusal(ask), "the policies are in force")

    @contextlib.contextmanager
    def without(self, *names: str, proof: Ask, passed: str = "") -> Iterator[None]:
        """Remove some policies, wait until `proof` passes, and restore them at the end.

        `passed`: part of the error of a request that admission has passed.
        """
        bindings = [binding(self.policies[name]) for name in names]

        def admitted() -> bool:
            refused = self.ask.refusal(proof)
            return not refused or (passed != "" and passed in refused)

        for manifest in bindings:
            path = f"{collection(manifest)}/{manifest['metadata']['name']}"
            self.ask(Ask("DELETE", path, query={}))
        try:
            until(admitted, f"nothing is left of {', '.join(names)}")
            yield
        finally:
            for manifest in bindings:
                self.ask(create(manifest).for_real())
            until(lambda: not admitted(), "the policies are in force")


def _webhook_configurations(cluster: Cluster) -> list[Json]:
    kinds = "mutatingwebhookconfigurations,validatingwebhookconfigurations"
    found: list[Json] = json.loads(cluster.kubectl("get", kinds, "-o", "json"))["items"]
    for one in found:
        for precondition in ("resourceVersion", "uid"):
            del one["metadata"][precondition]
    return found


def _is_of_operators(webhook: Json) -> bool:
    """Whether Kueue answers for runs of operators, which do not run here.

    It would suspend such a run, or reject it for its runtime, where the policies are to hold alone.
    """
    resources = {name for rule in webhook["rules"] for name in rule["resources"]}
    return bool(resources & {"trainjobs", "pytorchjobs", "mpijobs"})


@contextlib.contextmanager
def standing(cluster: Cluster, *, operators: bool = False) -> Iterator[GuardedCluster]:
    """The stack's admission policies and the teams that they apply to; deleted at the end.

    operators: The cluster has the operators of all kinds of runs, whose definitions and webhooks stay as they are.
    """
    policies = {
        p["metadata"]["name"].removeprefix(f"{naming.PROJECT}-"): p for p in admission_policies()
    }
    classes = [priorities.priority_class(name) for name in priorities.PRIORITIES]
    enforced = [*policies.values(), *(binding(policy) for policy in policies.values())]
    homes = [manifest for name in (RESEARCH, PRODUCTION) for manifest in home(name)]
    defined = [] if operators else definitions()
    everything = [*defined, *classes, *enforced, *homes]
    guarded = GuardedCluster(cluster, Asker(cluster.kubeconfig), policies)
    cluster.apply(*everything)
    webhooks = [] if operators else _webhook_configurations(cluster)
    for one in webhooks:
        kept = [webhook for webhook in one["webhooks"] if not _is_of_operators(webhook)]
        cluster.kubectl("replace", "-f", "-", stdin=json.dumps(one | {"webhooks": kept}))
    try:
        for name in (RESEARCH, PRODUCTION):
            guarded.await_refusal(create(pod(gpu=True, team=name)))
        for definition in defined:
            crd = f"crd/{definition['metadata']['name']}"
            cluster.kubectl("wait", crd, "--for=condition=Established", "--timeout=120s")
        for kind in ("PyTorchJob", "MPIJob") if defined else ():
            running = other_run(kind, gpu=True, meta=queued(), suspend=False)
            guarded.await_refusal(create(running))
        if defined:
            suspended = create(other_run("TrainJob", gpu=True, meta=queued()))
            until(lambda: not guarded.ask.refusal(suspended), "no webhook answers for TrainJobs")
        yield guarded
    finally:
        for one in webhooks:
            cluster.kubectl("replace", "-f", "-", stdin=json.dumps(one))
        policies_first = [*enforced, *homes[::-1], *classes, *defined]
        cluster.delete(*policies_first)


@contextlib.contextmanager
def queue_of(guarded: GuardedCluster, name: str, nodes: str = "kwok") -> Iterator[None]:
    """A queue for one team, and the only node of its pool, a simulated one; deleted at the end.

    On a process node Kueue chooses it by the topology, as in a stack.
    """
    stack = values()
    stack["nodePools"][0] |= {"nodes": nodes, "topology": nodes == "process"}
    config = parse(stack)
    queues = arguments.queues(config)
    [pool] = config.pools
    own = next(t for t in queues.teams if t.name == name)
    objects = [
        node_pools.node(pool, 0),
        *([kueue.topology(pool_topology(pool))] if nodes == "process" else []),
        kueue.flavor(pool),
        kueue.cohort(queues.cohort, queues.pools, queues.teams),
        kueue.cluster_queue(own, queues.cohort, queues.pools),
        team.local_queue(name),
    ]
    guarded.cluster.apply(*objects)
    try:
        yield
    finally:
        guarded.cluster.delete(*reversed(objects))
