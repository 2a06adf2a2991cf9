"""docs/recover.md#a-failed-update: clusters that move or are gone, rejected credentials, hand edits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from ops.review import steps
from sandbox.cluster import ClusterError
from tests.sandbox.conftest import Cluster
from tests.sandbox.node_kit import until
from tests.sandbox.pulumi_project import Project
from tests.sandbox.stack_kit import STACK, Json, Stack, base, opened, run

pytestmark = [pytest.mark.sandbox, pytest.mark.timeout(1800)]

MOVED = """
import pulumi
import pulumi_kubernetes as kubernetes

on = pulumi.ResourceOptions(provider=kubernetes.Provider("cluster", **ARGUMENTS))
namespace = kubernetes.core.v1.Namespace("namespace", metadata={"name": "NAMESPACE"}, opts=on)
kubernetes.helm.v3.Release("release", chart="./chart", name="release", namespace=namespace.metadata.name, opts=on)
"""
RELEASED = """
Object("helm.sh/v3:Release", "release", chart="./chart", namespace=NAMESPACE, name="release",
    opts=inside)
"""
GATED = """
gate = Object("core/v1:ConfigMap", "gate", opts=inside, metadata=named("gate", annotations={
    "pulumi.com/waitFor": "jsonpath={.data.open}=yes"}))
Object("core/v1:ConfigMap", "after", metadata=named("after"), data={},
    opts=ResourceOptions(depends_on=[gate]))
"""
SPEC_EDITS: dict[str, Json] = {
    "ClusterQueue": {"stopPolicy": "Hold"},
    "LocalQueue": {"stopPolicy": "Hold"},
    "ResourceQuota": {"hard": {"requests.cpu": "1"}},
    "NetworkPolicy": {"egress": []},
    "ValidatingAdmissionPolicyBinding": {"validationActions": ["Warn"]},
    "Node": {"taints": None},
}
"""What is changed by hand of these kinds, beside a label, which is changed of every kind."""
LABEL = "app.kubernetes.io/part-of"


@pytest.fixture
def project(cluster: Cluster, tmp_path: Path) -> Project:
    return Project.create(tmp_path, cluster.env)


def write_chart(project: Project) -> None:
    chart = project.folder / "chart"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: chart\nversion: 1.0.0\n")
    (chart / "templates/made.yaml").write_text(
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: made}}\n"
    )


@pytest.fixture
def stack(cluster: Cluster, tmp_path: Path) -> Iterator[Stack]:
    with opened(tmp_path, cluster) as made:
        yield made


def at_port(cluster: Cluster, server: str) -> Json:
    found: Json = yaml.safe_load(cluster.kubeconfig.read_text())
    for one in found["clusters"]:
        one["cluster"]["server"] = server
    return found


def address(cluster: Cluster) -> str:
    (one,) = yaml.safe_load(cluster.kubeconfig.read_text())["clusters"]
    return str(one["cluster"]["server"])


def through(project: Project, config: Json, **variables: str) -> Project:
    path = project.folder / "kubeconfig"
    path.write_text(json.dumps(config))
    env = {**project.env, "KUBECONFIG": str(path), **variables}
    return Project(project.folder, env, project.namespace)


@pytest.mark.long(30)
def test_an_identified_cluster_keeps_its_objects_at_another_address(
    cluster: Cluster, project: Project
) -> None:
    here, moved = (
        json.dumps(at_port(cluster, address(cluster).replace("127.0.0.1", host)))
        for host in ("127.0.0.1", "localhost")
    )

    def write(**arguments: str) -> None:
        program = MOVED.replace("NAMESPACE", project.namespace)
        project.write_whole(program.replace("ARGUMENTS", repr(arguments)))

    def findings() -> list[str]:
        preview = project.succeed("preview", "--json")
        found = steps.parse(preview[preview.index("{") :], "preview", "test").findings
        return [one.text for one in found if one.fails]

    def identities() -> str:
        """Of the namespace, of what the chart has, and of the Secret of each of the release's revisions."""
        uid = ("-o", "jsonpath={.items[*].metadata.uid}")
        selected = f"--field-selector=metadata.name={project.namespace}"
        inside = ("configmaps,secrets", "-n", project.namespace)
        return cluster.kubectl("get", "namespaces", selected, *uid) + cluster.kubectl(
            "get", *inside, *uid
        )

    write_chart(project)
    write(kubeconfig=here)
    project.up()
    made = identities()
    write(kubeconfig=moved, cluster_identifier="own")
    assert "+-3 to replace" in project.succeed("preview")
    assert len(findings()) == 1 and "deploy with the former kubeconfig first" in findings()[0]

    for kubeconfig in (here, moved):
        write(kubeconfig=kubeconfig, cluster_identifier="own")
        assert findings() == []
        text = project.up()
        assert "~ 1 updated" in text and "3 unchanged" in text
    assert identities() == made
    project.destroy()


@pytest.mark.full_only
def test_a_release_comes_back_on_an_empty_cluster_and_is_forgotten_with_a_lost_one(
    cluster: Cluster, project: Project
) -> None:
    write_chart(project)
    project.write(RELEASED)
    project.up()
    # What another cluster of the same name would have: nothing.
    cluster.kubectl("delete", "namespace", project.namespace)
    project.up("--expect-no-changes")
    project.succeed("refresh", "--yes", "--skip-preview")
    assert "+ 2 created" in project.up()
    assert "made" in cluster.kubectl("get", "configmap", "-n", project.namespace)

    nowhere = at_port(cluster, "https://127.0.0.1:1")
    unreachable = "can't delete Helm Release with unreachable cluster"
    assert unreachable in through(project, nowhere).fail("destroy", "--yes", "--skip-preview")
    forgetful = through(project, nowhere, PULUMI_K8S_DELETE_UNREACHABLE="true")
    assert unreachable in forgetful.fail("destroy", "--yes", "--skip-preview")
    forgetful.succeed("refresh", "--yes", "--skip-preview")
    forgetful.destroy()
    assert project.resources() == {}
    cluster.kubectl("delete", "namespace", project.namespace, "--wait=false")


@pytest.mark.full_only
def test_an_update_whose_credentials_expire_is_completed_with_new_ones(
    cluster: Cluster, project: Project
) -> None:
    name = project.namespace
    cluster.kubectl("create", "serviceaccount", name)
    account = f"--serviceaccount=default:{name}"
    cluster.kubectl("create", "clusterrolebinding", name, "--clusterrole=cluster-admin", account)
    config = at_port(cluster, address(cluster))
    token = cluster.kubectl("create", "token", name).strip()
    config["users"] = [{"name": one["name"], "user": {"token": token}} for one in config["users"]]
    expiring = through(project, config)
    project.write(GATED)
    up = expiring.start("up", "--yes", "--skip-preview")
    until(lambda: "gate" in cluster.kubectl("get", "configmaps", "-n", name), "the first part")
    cluster.kubectl("delete", "serviceaccount", name)
    cluster.kubectl("delete", "clusterrolebinding", name)

    def rejected() -> bool:
        try:
            cluster.kubectl("--kubeconfig", expiring.env["KUBECONFIG"], "get", "--raw", "/apis")
        except ClusterError as error:
            return "Unauthorized" in str(error) or "logged in" in str(error)
        return False

    until(rejected, "the token is rejected")
    cluster.kubectl("patch", "configmap", "gate", "-n", name, "-p", '{"data":{"open":"yes"}}')
    text, _ = up.communicate(timeout=300)
    assert up.returncode != 0 and "Unauthorized" in text and "Traceback" not in text
    again = expiring.fail("up", "--yes", "--skip-preview")
    assert "cluster is unreachable" in again and "provide credentials" in again
    assert "+ 1 created" in project.up()
    project.up("--expect-no-changes")
    project.destroy()


def patch(cluster: Cluster, resource: Json, how: str, change: Json | list[Json]) -> None:
    """Edit an object of the stack's state by hand."""
    live = resource["outputs"]
    group, _, version = live["apiVersion"].rpartition("/")
    kind, meta = live["kind"], live["metadata"]
    named = f"{kind}.{version}.{group}" if group else kind
    place = ["-n", meta["namespace"]] if "namespace" in meta else []
    words = ["patch", named, meta["name"], *place, f"--type={how}", "-p", json.dumps(change)]
    cluster.kubectl(*words)


@pytest.mark.full_only
def test_hand_edits_of_every_kind_are_reported_and_undone(cluster: Cluster, stack: Stack) -> None:
    stack.write(base(), [])
    stack.up()
    exported = json.loads(stack.pulumi("stack", "export", "--stack", STACK))
    edited: dict[str, Json] = {}
    for one in sorted(exported["deployment"]["resources"], key=lambda found: str(found["urn"])):
        kind = one["type"].split(":")[-1]
        if one["type"].startswith("kubernetes:") and kind not in edited:
            edited[kind] = one
    for kind, one in edited.items():
        change: Json = {"metadata": {"labels": {LABEL: "me"}}}
        if kind in SPEC_EDITS:
            change["spec"] = SPEC_EDITS[kind]
        patch(cluster, one, "merge", change)
    found = stack.drift()
    print(f"edited and reported: {', '.join(sorted(edited))}")
    names = {f"{kind} {one['urn'].split('::')[3]}" for kind, one in edited.items()}
    assert {one["resource"] for one in found} == names
    for kind in SPEC_EDITS:
        fields = [o["field"] for o in found if o["resource"].split()[0] == kind]
        assert any(field.startswith("spec.") for field in fields), kind
    stack.pulumi("up", "--yes", "--skip-preview", "--refresh", "--stack", STACK)
    assert stack.drift() == []
    stack.pulumi("preview", "--expect-no-changes", "--stack", STACK)

    # Neither a refresh nor an update sees what is added, so it is named until it is removed.
    subject = {"kind": "ServiceAccount", "name": "mine", "namespace": "default"}
    binding, policy = edited["RoleBinding"], edited["NetworkPolicy"]
    assert policy["inputs"]["spec"]["podSelector"] == {}
    patch(cluster, binding, "json", [{"op": "add", "path": "/subjects/-", "value": subject}])
    patch(cluster, policy, "merge", {"spec": {"podSelector": {"matchLabels": {"a": "b"}}}})
    for _ in range(2):
        assert sorted((one["recorded"], one["field"]) for one in stack.drift()) == [
            ("added", "spec.podSelector"),
            ("added", "subjects"),
        ]
        stack.pulumi("up", "--yes", "--skip-preview", "--refresh", "--stack", STACK)
    last = len(binding["inputs"]["subjects"])
    patch(cluster, binding, "json", [{"op": "remove", "path": f"/subjects/{last}"}])
    patch(cluster, policy, "merge", {"spec": {"podSelector": {"matchLabels": None}}})
    assert stack.drift() == []


@pytest.mark.full_only
def test_another_instance_type_replaces_the_nodes_of_its_pool_only(
    cluster: Cluster, stack: Stack
) -> None:
    values = base()
    stack.write(values, [run("first")])
    stack.up()

    def capacities() -> dict[str, str]:
        nodes = json.loads(cluster.kubectl("get", "nodes", "-o", "json"))["items"]
        return {one["metadata"]["name"]: one["status"]["capacity"]["cpu"] for one in nodes}

    before = capacities()
    (pool,) = [one for one in values["nodePools"] if one["name"] == "fleet-spot"]
    pool["instanceTypes"] = ["p5.48xlarge"]
    stack.write(values, [run("first")])
    stack.up()
    changed = {name for name, cpu in capacities().items() if cpu != before[name]}
    assert changed == {name for name in before if name.startswith("fleet-spot-")}
    stack.pulumi("preview", "--expect-no-changes", "--stack", STACK)
