"""The audit log records who created, changed or deleted a run, or tried to; never object contents."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from infra.domain import naming
from infra.tenancy import access, team
from sandbox.cluster import ClusterError
from tests.golden.example_runs import platform, run
from tests.sandbox.conftest import Cluster
from tests.sandbox.node_kit import until
from training import job
from training.spec import RunSpec

pytestmark = pytest.mark.sandbox

TEAM = "audited"
NAMESPACE = naming.namespace(TEAM)
VALUE = "a value that only the run may know"


def _person(name: str, group: str) -> list[str]:
    return [f"--as={name}", f"--as-group={group}", "--as-group=system:authenticated"]


CI = _person("ci-of-the-team", naming.DEPLOYER_GROUP)
OUTSIDER = _person("grace", naming.group("other", "lead"))
RESEARCHER = _person("ada", naming.group(TEAM, "researcher"))


@pytest.fixture(scope="module")
def audited(cluster: Cluster) -> Iterator[Cluster]:
    roles = list(access.ROLE_RULES)
    objects = [
        team.namespace(TEAM),
        *(access.role(role, TEAM) for role in roles),
        *(access.role_binding(role, TEAM) for role in roles),
    ]
    cluster.apply(*objects)
    may = ["auth", "can-i", "create", "configmaps", "-n", NAMESPACE, *CI]

    def in_force() -> bool:
        try:
            return cluster.kubectl(*may).strip() == "yes"
        except ClusterError:
            return False

    until(in_force, "roles are in force")
    yield cluster
    cluster.kubectl("delete", "namespace", NAMESPACE, "--timeout=180s")


def _manifest() -> tuple[RunSpec, dict[str, Any]]:
    """A run, and its ConfigMap, which names it as every object of a run does."""
    spec = run(name="audited-run")
    manifest = job.config_map(spec, platform(), spec.record(stack="s", git_commit="c" * 40))
    manifest["metadata"]["namespace"] = NAMESPACE
    manifest["data"]["more"] = VALUE
    return spec, manifest


def _log(cluster: Cluster) -> str:
    return (cluster.state.logs / "audit.log").read_text()


def _events(cluster: Cluster) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in _log(cluster).splitlines()]
    return [e for e in found if e.get("objectRef", {}).get("namespace") == NAMESPACE]


def _answered(cluster: Cluster, name: str, resource: str, code: int) -> set[tuple[str, str]]:
    """Return (user, verb) of the requests on one object that were answered with `code`."""
    return {
        (event["impersonatedUser"]["username"], event["verb"])
        for event in _events(cluster)
        if event["objectRef"].get("name") == name
        and event["objectRef"]["resource"] == resource
        and event["responseStatus"]["code"] == code
        and "impersonatedUser" in event
    }


@pytest.mark.long(20)
def test_audit_log_records_who_created_changed_and_deleted_a_run(audited: Cluster) -> None:
    spec, manifest = _manifest()
    text = json.dumps(manifest)
    audited.kubectl("create", "-f", "-", *CI, stdin=text)
    audited.kubectl("label", "configmap", spec.run_id, "-n", NAMESPACE, "seen=yes", *CI)
    with pytest.raises(ClusterError, match="forbidden"):
        audited.kubectl("delete", "configmap", spec.run_id, "-n", NAMESPACE, *OUTSIDER)
    audited.kubectl("delete", "configmap", spec.run_id, "-n", NAMESPACE, *CI)
    created = {("ci-of-the-team", "create")}
    until(
        lambda: created <= _answered(audited, spec.run_id, "configmaps", 201),
        "the creation is logged",
    )
    done = _answered(audited, spec.run_id, "configmaps", 200)
    assert done == {("ci-of-the-team", "patch"), ("ci-of-the-team", "delete")}
    assert _answered(audited, spec.run_id, "configmaps", 403) == {("grace", "delete")}


def test_audit_log_records_secret_and_exec_requests_but_not_reads_of_runs(
    audited: Cluster,
) -> None:
    audited.kubectl("get", "configmaps", "-n", NAMESPACE, *RESEARCHER)
    with pytest.raises(ClusterError, match="forbidden"):
        audited.kubectl("get", "secret", "token", "-n", NAMESPACE, *RESEARCHER)
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/worker/exec?command=sh"
    with pytest.raises(ClusterError, match="forbidden"):
        audited.kubectl("create", "--raw", path, "-f", "-", *OUTSIDER, stdin="{}")
    until(
        lambda: _answered(audited, "token", "secrets", 403) == {("ada", "get")},
        "the attempt to read the secret is logged",
    )
    assert _answered(audited, "worker", "pods", 403) == {("grace", "create")}
    reads = [e for e in _events(audited) if e["verb"] in ("get", "list", "watch")]
    assert {e["objectRef"]["resource"] for e in reads} == {"secrets"}


def test_audit_log_omits_object_bodies_and_controller_requests(audited: Cluster) -> None:
    spec, manifest = _manifest()
    audited.kubectl("create", "-f", "-", *CI, stdin=json.dumps(manifest))
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "canary", "namespace": NAMESPACE},
        "stringData": {"token": VALUE},
    }
    audited.kubectl("create", "-f", "-", stdin=json.dumps(secret))
    until(lambda: '"name":"canary"' in _log(audited), "the creation of the Secret is logged")
    assert VALUE not in _log(audited)
    events = [json.loads(line) for line in _log(audited).splitlines()]
    assert not [e for e in events if "requestObject" in e or "responseObject" in e]
    users = {event["user"]["username"] for event in events}
    assert not [user for user in users if "controller" in user or "scheduler" in user]
    audited.kubectl("delete", "configmap", spec.run_id, "-n", NAMESPACE)
