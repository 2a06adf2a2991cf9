"""Admission policies of Volcano and YuniKorn on the real API server: GPU pods use their team's own queue.

Neither scheduler runs here. The policies need none, and Volcano's PodGroup is stood in for by a definition
that admits everything: what is refused, a policy refuses.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from infra.config import arguments, parse
from infra.domain import naming
from infra.domain.scheduler import Scheduler
from infra.kubernetes.admission_policy import binding
from infra.queueing.yunikorn import QUEUE_LABEL
from infra.tenancy import admission
from sandbox.cluster import ClusterError
from tests.golden.example_runs import IMAGE, scheduler_values
from tests.sandbox.conftest import Cluster
from tests.sandbox.node_kit import until

pytestmark = [pytest.mark.sandbox, pytest.mark.long(27)]

GROUP = "scheduling.volcano.sh"
_POLICIES = ("trainyard-queue", "trainyard-queue-name")
_VOLCANO_QUEUE = "'trainyard-queue-name-volcano' with binding"
_YUNIKORN_QUEUE = "'trainyard-queue-name-yunikorn' with binding"


def team_of(scheduler: Scheduler) -> str:
    """A team for each scheduler; both are there at once."""
    return f"admission-{scheduler.value}"


def definition() -> dict[str, Any]:
    """PodGroup with any content."""
    open_schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"podgroups.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"kind": "PodGroup", "plural": "podgroups", "singular": "podgroup"},
            "versions": [
                {
                    "name": "v1beta1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": open_schema},
                }
            ],
        },
    }


def policies(scheduler: Scheduler) -> list[dict[str, Any]]:
    """The stack's policies about queues, in this scheduler's namespace only and under unique names."""
    config = parse(scheduler_values(scheduler))
    found = []
    for policy in admission.policies(arguments.admission(config)):
        if policy["metadata"]["name"] in _POLICIES:
            own = copy.deepcopy(policy)
            own["metadata"]["name"] += f"-{scheduler.value}"
            selector = own["spec"]["matchConstraints"]["namespaceSelector"]
            selector["matchLabels"] = {naming.TEAM: team_of(scheduler)}
            found.append(own)
    assert len(found) == len(_POLICIES)
    return found


def namespace(scheduler: Scheduler) -> dict[str, Any]:
    """The team's namespace, without Pod Security, which test_pod_security.py covers."""
    team = team_of(scheduler)
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": naming.namespace(team), "labels": {naming.TEAM: team}},
    }


def pod(scheduler: Scheduler, *, gpus: int = 1, **spec: Any) -> dict[str, Any]:
    amounts = {"cpu": "1", "memory": "1Gi"} | ({naming.GPU: str(gpus)} if gpus else {})
    container = {"name": "main", "image": IMAGE, "resources": {"limits": amounts}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "attempt", "namespace": naming.namespace(team_of(scheduler))},
        "spec": {"containers": [container], **spec},
    }


def labelled(manifest: dict[str, Any], queue: str) -> dict[str, Any]:
    """The same, in a queue of YuniKorn's."""
    manifest["metadata"]["labels"] = {QUEUE_LABEL: queue}
    return manifest


def group(queue: str) -> dict[str, Any]:
    return {
        "apiVersion": f"{GROUP}/v1beta1",
        "kind": "PodGroup",
        "metadata": {
            "name": "attempt",
            "namespace": naming.namespace(team_of(Scheduler.VOLCANO)),
        },
        "spec": {"minMember": 2, **({"queue": queue} if queue else {})},
    }


def refusal(cluster: Cluster, manifest: dict[str, Any]) -> str:
    """Return the API server's rejection message for an object; empty if it is accepted."""
    try:
        cluster.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(manifest))
    except ClusterError as error:
        return str(error)
    return ""


def checked(cluster: Cluster, policy: str) -> dict[str, Any] | None:
    """Return the type checking result of a policy's expressions; None before the check."""
    found = json.loads(cluster.kubectl("get", "validatingadmissionpolicy", policy, "-o", "json"))
    status: dict[str, Any] = found.get("status", {})
    return status if status.get("observedGeneration") else None


@pytest.fixture(scope="module")
def guarded(cluster: Cluster) -> Iterator[Cluster]:
    both = (Scheduler.VOLCANO, Scheduler.YUNIKORN)
    enforced = [policy for scheduler in both for policy in policies(scheduler)]
    objects = [
        definition(),
        *map(namespace, both),
        *enforced,
        *map(binding, enforced),
    ]
    cluster.apply(*objects)
    cluster.kubectl("wait", f"crd/podgroups.{GROUP}", "--for=condition=Established")
    try:
        # The API server takes a moment to know of them.
        astray = pod(Scheduler.YUNIKORN, schedulerName="yunikorn")
        for attempt in (pod(Scheduler.VOLCANO), pod(Scheduler.YUNIKORN), astray, group("default")):
            until(partial(refusal, cluster, attempt), "the policies to be in force")
        yield cluster
    finally:
        cluster.delete(*reversed(objects))


def test_policies_have_no_type_checking_warnings(guarded: Cluster) -> None:
    for scheduler in (Scheduler.VOLCANO, Scheduler.YUNIKORN):
        for policy in policies(scheduler):
            name = policy["metadata"]["name"]
            status = until(partial(checked, guarded, name), f"{name} to be checked")
            assert status.get("typeChecking", {}).get("expressionWarnings", []) == []


@pytest.mark.parametrize("scheduler", [Scheduler.VOLCANO, Scheduler.YUNIKORN])
def test_gpu_pod_must_use_the_scheduler_of_its_queue(
    guarded: Cluster, scheduler: Scheduler
) -> None:
    queue = f"root.trainyard.{team_of(scheduler)}"
    message = refusal(guarded, labelled(pod(scheduler), queue))
    assert f"'trainyard-queue-{scheduler.value}' with binding" in message
    assert f"schedulerName: {scheduler.value}" in message
    assert refusal(guarded, labelled(pod(scheduler, schedulerName=scheduler.value), queue)) == ""


@pytest.mark.parametrize("scheduler", [Scheduler.VOLCANO, Scheduler.YUNIKORN])
def test_a_pod_without_gpus_needs_no_queue(guarded: Cluster, scheduler: Scheduler) -> None:
    assert refusal(guarded, pod(scheduler, gpus=0)) == ""


def test_volcano_pod_groups_must_use_the_team_queue(guarded: Cluster) -> None:
    own = f"team-{team_of(Scheduler.VOLCANO)}"
    assert _VOLCANO_QUEUE in refusal(guarded, group("team-production"))
    assert _VOLCANO_QUEUE in refusal(guarded, group(""))
    assert refusal(guarded, group(own)) == ""


def test_volcano_pod_groups_cannot_change_queue(guarded: Cluster) -> None:
    own = group(f"team-{team_of(Scheduler.VOLCANO)}")
    guarded.apply(own)
    moved = {"spec": {"queue": "team-production"}}
    try:
        with pytest.raises(ClusterError, match=_VOLCANO_QUEUE):
            _patch(guarded, moved)
        _patch(guarded, {"spec": {"minMember": 1}})
    finally:
        guarded.kubectl("delete", "-f", "-", stdin=json.dumps(own))


def _patch(cluster: Cluster, change: dict[str, Any]) -> None:
    where = ["-n", naming.namespace(team_of(Scheduler.VOLCANO)), f"podgroups.{GROUP}/attempt"]
    cluster.kubectl("patch", *where, "--type=merge", "--dry-run=server", "-p", json.dumps(change))


def test_yunikorn_pods_must_use_the_team_queue(guarded: Cluster) -> None:
    scheduler = Scheduler.YUNIKORN
    own = f"root.trainyard.{team_of(scheduler)}"
    message = refusal(
        guarded,
        labelled(pod(scheduler, schedulerName=scheduler.value), "root.trainyard.production"),
    )
    assert _YUNIKORN_QUEUE in message
    assert _YUNIKORN_QUEUE in refusal(guarded, pod(scheduler, schedulerName=scheduler.value))
    assert refusal(guarded, labelled(pod(scheduler, schedulerName=scheduler.value), own)) == ""
