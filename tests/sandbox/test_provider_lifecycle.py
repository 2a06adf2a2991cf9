"""Objects under the real engine: created, left alone, updated, replaced, refreshed, imported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sandbox.cluster import ClusterError
from tests.sandbox.pulumi_project import Project

pytestmark = [pytest.mark.sandbox, pytest.mark.long(106)]

CANARY = "canary-5f1c7c1e"
MANY_KINDS = """
import pulumi_kubernetes as kubernetes
from pulumi_kubernetes.apiextensions import CustomResource

ours = {"namespace": NAMESPACE}
kubernetes.core.v1.ConfigMap("automatic", metadata=ours, data={"a": "1"}, opts=inside)
kubernetes.core.v1.Secret("secret", metadata={**ours, "name": "secret"},
    string_data={"password": "CANARY"}, opts=inside)
kubernetes.core.v1.ResourceQuota("quota", metadata={**ours, "name": "quota"},
    spec={"hard": {"requests.cpu": "512000m", "requests.memory": "4096Gi"}}, opts=inside)
kubernetes.core.v1.LimitRange("limits", metadata={**ours, "name": "limits"},
    spec={"limits": [{"type": "Container", "default": {"cpu": "1000m"}}]}, opts=inside)
kubernetes.networking.v1.NetworkPolicy("deny", metadata={**ours, "name": "deny"},
    spec={"podSelector": {}, "policyTypes": ["Ingress"], "ingress": []}, opts=inside)
kubernetes.core.v1.PersistentVolumeClaim("claim", metadata={**ours, "name": "claim",
    "annotations": {"pulumi.com/skipAwait": "true"}},
    spec={"accessModes": ["ReadWriteMany"], "storageClassName": "none",
    "resources": {"requests": {"storage": "5120Gi"}}}, opts=inside)
role = kubernetes.rbac.v1.Role("role", metadata=ours,
    rules=[{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}], opts=inside)
kubernetes.rbac.v1.RoleBinding("binding", metadata={**ours, "name": "binding"},
    role_ref={"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role.metadata["name"]},
    subjects=[{"kind": "Group", "name": "someone"}])
CustomResource("run", api_version="jobset.x-k8s.io/v1alpha2", kind="JobSet",
    metadata={**ours, "name": "run", "labels": {"kueue.x-k8s.io/queue-name": "absent"}},
    spec={"replicatedJobs": [{"name": "worker", "template": {"spec": {"template": {"spec": {
        "restartPolicy": "Never", "containers": [{"name": "main", "image": "none",
        "env": [{"name": "EMPTY", "value": ""}],
        "resources": {"limits": {"cpu": "1000m", "memory": "2048Mi"}}}]}}}}}]},
    opts=ResourceOptions(depends_on=[namespace], ignore_changes=["spec"]))
""".replace("CANARY", CANARY)
CONFIG = """
Object("core/v1:ConfigMap", "config", metadata=named("config", labels={"edited": "LABEL"}),
    data={"a": "DATA"}, opts=inside)
"""


@pytest.fixture
def project(cluster: Any, tmp_path: Path) -> Project:
    return Project.create(tmp_path, cluster.env)


def config_map(cluster: Any, project: Project, name: str = "config") -> dict[str, Any]:
    text = cluster.kubectl("get", "configmap", name, "-n", project.namespace, "-o", "json")
    found: dict[str, Any] = json.loads(text)
    return found


def test_a_second_up_and_a_refresh_change_nothing_and_secrets_stay_secret(
    cluster: Any, project: Project
) -> None:
    project.write(MANY_KINDS)
    first = project.up()
    project.up("--expect-no-changes")
    project.succeed("refresh", "--preview-only", "--expect-no-changes")

    found = project.resources()
    state = found["automatic"]["outputs"]
    name = state["metadata"]["name"]
    assert found["automatic"]["id"] == f"{project.namespace}/{name}"
    assert name.startswith("automatic-") and len(name) == len("automatic-") + 8
    assert state["metadata"]["annotations"] == {"pulumi.com/autonamed": "true"}
    assert state["__fieldManager"].startswith("pulumi-kubernetes-")
    assert state["__initialApiVersion"] == "v1"
    assert state["__inputs"]["data"] == {"a": "1"}
    assert found["automatic"]["inputs"] == state["__inputs"]
    assert "ciphertext" in json.dumps(found["secret"]["outputs"]["data"])
    assert CANARY not in first + project.plain_state()
    assert "Y2FuYXJ5" not in project.plain_state()

    project.destroy()
    with pytest.raises(ClusterError, match="not found"):
        cluster.kubectl("get", "namespace", project.namespace)


def test_an_edit_updates_the_object_and_an_edit_of_a_fixed_field_replaces_it(
    cluster: Any, project: Project
) -> None:
    program = CONFIG
    project.write(program.replace("LABEL", "before").replace("DATA", "1"))
    project.up()
    made = config_map(cluster, project)["metadata"]["uid"]

    project.write(program.replace("LABEL", "after").replace("DATA", "1"))
    assert "~ 1 updated" in project.up()
    edited = config_map(cluster, project)
    assert edited["metadata"]["labels"] == {"edited": "after"} and edited["metadata"]["uid"] == made

    project.write(program.replace("LABEL", "after").replace("DATA", "2"))
    assert "+-1 replaced" in project.up()
    replaced = config_map(cluster, project)
    assert replaced["data"] == {"a": "2"} and replaced["metadata"]["uid"] != made


def test_fixed_fields_of_named_objects_are_replaced(cluster: Any, project: Project) -> None:
    program = """
for role in ("first", "second"):
    Object("rbac.authorization.k8s.io/v1:Role", role, metadata=named(role), rules=[], opts=inside)
Object("rbac.authorization.k8s.io/v1:RoleBinding", "binding", metadata=named("binding"), subjects=[],
    roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "ROLE"}, opts=inside)
Object("storage.k8s.io/v1:StorageClass", "class", metadata={"name": NAMESPACE}, provisioner="example.com/ROLE")
Object("core/v1:PersistentVolumeClaim", "claim",
    metadata=named("claim", annotations={"pulumi.com/skipAwait": "true"}), opts=inside,
    spec={"accessModes": ["MODE"], "storageClassName": "none", "resources": {"requests": {"storage": "1Gi"}}})
"""
    project.write(program.replace("ROLE", "first").replace("MODE", "ReadWriteOnce"))
    project.up()
    project.write(program.replace("ROLE", "second").replace("MODE", "ReadWriteMany"))
    assert "+-3 replaced" in project.up()

    def live(kind: str, name: str, field: str) -> str:
        place = ("-n", project.namespace, "-o", f"jsonpath={field}")
        return str(cluster.kubectl("get", kind, name, *place)).strip()

    assert live("rolebinding", "binding", "{.roleRef.name}") == "second"
    assert live("storageclass", project.namespace, "{.provisioner}") == "example.com/second"
    assert live("pvc", "claim", "{.spec.accessModes[0]}") == "ReadWriteMany"
    project.destroy()


def test_a_class_whose_reclaim_policy_changes_is_replaced_and_its_claims_stay(
    cluster: Any, project: Project
) -> None:
    """With the options of infra/sites/aws/elastic_files.py."""
    program = """
by_policy = ResourceOptions(replace_on_changes=["reclaimPolicy"], delete_before_replace=True)
files = Object("storage.k8s.io/v1:StorageClass", "class", by_policy, metadata={"name": NAMESPACE},
    provisioner="example.com/none", reclaimPolicy="POLICY")
Object("core/v1:PersistentVolumeClaim", "claim", ResourceOptions(depends_on=[namespace, files]),
    metadata=named("claim", annotations={"pulumi.com/skipAwait": "true"}),
    spec={"accessModes": ["ReadWriteMany"], "storageClassName": NAMESPACE,
        "resources": {"requests": {"storage": "1Gi"}}})
"""

    def live(kind: str, name: str, field: str) -> str:
        place = ("-n", project.namespace, "-o", f"jsonpath={field}")
        return str(cluster.kubectl("get", kind, name, *place)).strip()

    project.write(program.replace("POLICY", "Retain"))
    project.up()
    claim = live("pvc", "claim", "{.metadata.uid}")
    project.write(program.replace("POLICY", "Delete"))
    assert "+-1 replaced" in project.up()
    assert live("storageclass", project.namespace, "{.reclaimPolicy}") == "Delete"
    assert live("pvc", "claim", "{.metadata.uid}") == claim
    project.destroy()


def test_refresh_shows_manual_changes_and_up_reverts_them(cluster: Any, project: Project) -> None:
    program = CONFIG.replace("LABEL", "ours").replace("DATA", "1")
    program += CONFIG.replace('"config"', '"gone"').replace("LABEL", "x").replace("DATA", "1")
    project.write(program)
    project.up()
    place = ("-n", project.namespace)
    cluster.kubectl("label", "configmap", "config", "edited=theirs", "--overwrite", *place)
    cluster.kubectl("annotate", "configmap", "config", "foreign=1", *place)
    cluster.kubectl("delete", "configmap", "gone", *place)

    shown = project.succeed("refresh", "--yes", "--skip-preview", "--diff")
    assert '"ours" => "theirs"' in shown and "- 1 deleted" in shown and "foreign" not in shown

    assert "+ 1 created" in project.up()
    repaired = config_map(cluster, project)["metadata"]
    assert repaired["labels"] == {"edited": "ours"}


def test_an_existing_object_is_adopted(cluster: Any, project: Project) -> None:
    project.write("")
    project.up()
    cluster.kubectl("create", "configmap", "config", "--from-literal=a=1", "-n", project.namespace)
    made = config_map(cluster, project)["metadata"]["uid"]
    project.write(
        'Object("core/v1:ConfigMap", "config", data={"a": "1"}, metadata=named("config"))'
    )
    assert "+ 1 created" in project.up()
    assert config_map(cluster, project)["metadata"]["uid"] == made


def test_pulumi_import_writes_the_state_and_no_code(cluster: Any, project: Project) -> None:
    project.write("")
    project.up()
    cluster.kubectl("create", "configmap", "found", "--from-literal=a=1", "-n", project.namespace)
    id_ = f"{project.namespace}/found"
    arguments = ("import", "kubernetes:core/v1:ConfigMap", "found", id_, "--yes", "--protect=false")
    assert "= 1 imported" in project.succeed(*arguments, "--generate-code=false")
    assert project.resources()["found"]["id"] == id_
    # Written by hand it matches what was imported.
    project.write('Object("core/v1:ConfigMap", "found", data={"a": "1"}, metadata=named("found"))')
    project.succeed("preview", "--expect-no-changes")


SIMULATED_NODE = """
Object("core/v1:Node", "simulated", metadata={"name": NAMESPACE,
    "annotations": {"kwok.x-k8s.io/node": "fake"}},
    status={"allocatable": {"cpu": "96", "memory": "1152Gi", "pods": "250"},
    "capacity": {"cpu": "96", "memory": "1152Gi", "pods": "250"}})
"""


def test_the_status_that_kwok_writes_is_no_change_of_a_simulated_node(
    cluster: Any, project: Project
) -> None:
    project.write(SIMULATED_NODE)
    project.up()
    node = f"node/{project.namespace}"
    try:
        cluster.kubectl("wait", node, "--for=condition=Ready", "--timeout=180s")
        for _ in range(2):
            project.up("--expect-no-changes")
            project.succeed("refresh", "--yes", "--skip-preview")
        project.up("--expect-no-changes")
    finally:
        project.destroy()
