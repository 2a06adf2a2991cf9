"""The provider stand-in when something is missing, stuck, cancelled or killed."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox.pulumi_project import Project, alive, children_of, read_until, wait_until

pytestmark = [pytest.mark.sandbox, pytest.mark.long(63)]

NEVER_READY = """
Object("core/v1:PersistentVolumeClaim", "claim", metadata=named("claim", annotations=ANNOTATIONS),
    spec={"accessModes": ["ReadWriteMany"], "storageClassName": "none",
    "resources": {"requests": {"storage": "1Gi"}}}, opts=inside)
"""
DEFINITION = """
definition = Object("apiextensions.k8s.io/v1:CustomResourceDefinition", "definition",
    metadata={"name": "things.GROUP"}, spec={"group": "GROUP", "scope": "Cluster",
    "names": {"kind": "Thing", "plural": "things"},
    "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema":
    {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}]})
Object("GROUP/v1:Thing", "thing", metadata={"name": "one"}, spec={"a": [1, {"b": {}}]},
    opts=ResourceOptions(depends_on=[definition]))
"""


@pytest.fixture
def project(cluster: Any, tmp_path: Path) -> Project:
    return Project.create(tmp_path, cluster.env)


@pytest.mark.standin
def test_unready_object_is_kept_and_awaited_by_the_next_update(project: Project) -> None:
    project.write(NEVER_READY.replace("ANNOTATIONS", '{"pulumi.com/timeoutSeconds": "1"}'))
    text = project.fail("up", "--yes", "--skip-preview")
    written = f"PersistentVolumeClaim {project.namespace}/claim was written"
    assert f"{written}, but is not ready: not ready after 1 s" in text
    assert "the claim is Pending" in text
    claim = project.resources()["claim"]
    assert claim["outputs"]["spec"]["storageClassName"] == "none" and claim["initErrors"]

    project.write(NEVER_READY.replace("ANNOTATIONS", '{"pulumi.com/skipAwait": "true"}'))
    project.up()
    assert not project.resources()["claim"].get("initErrors")
    project.up("--expect-no-changes")


@pytest.mark.standin
def test_interrupting_the_engine_ends_the_wait_and_leaves_no_process(
    project: Project,
) -> None:
    project.write(NEVER_READY.replace("ANNOTATIONS", "{}"))
    up = project.start("up", "--yes", "--skip-preview")
    seen = read_until(up, lambda line: "the claim is Pending" in line)
    started = children_of(up.pid)
    assert len(started) >= 3, "language host, program and provider"
    up.send_signal(signal.SIGINT)
    began = time.monotonic()
    rest, _ = up.communicate(timeout=300)
    assert up.returncode != 0 and time.monotonic() - began < 240
    assert "cancelled while waiting until it is ready" in rest
    assert "Traceback" not in seen + rest
    wait_until(lambda: not alive(started), "the processes of the engine end")
    assert project.resources()["claim"]["initErrors"]


@pytest.mark.standin
def test_killed_update_is_resumed(cluster: Any, project: Project) -> None:
    before = NEVER_READY.replace("ANNOTATIONS", "{}")
    project.write(before)
    up = project.start("up", "--yes", "--skip-preview")
    read_until(up, lambda line: "the claim is Pending" in line)
    started = children_of(up.pid)
    up.kill()
    up.communicate(timeout=300)
    wait_until(lambda: not alive(started), "the processes of the killed engine end")

    project.succeed("cancel", "--yes")
    after = NEVER_READY.replace(
        "annotations=ANNOTATIONS",
        'labels={"new": "1"}, annotations={"pulumi.com/skipAwait": "true"}',
    )
    project.write(after)
    project.up()
    project.up("--expect-no-changes")
    text = cluster.kubectl(
        "get", "pvc", "claim", "-n", project.namespace, "-o", "json", "--show-managed-fields"
    )
    owners = {entry["manager"] for entry in json.loads(text)["metadata"]["managedFields"]}
    assert len({owner for owner in owners if owner.startswith("pulumi-kubernetes-")}) == 1


@pytest.mark.standin
def test_blocked_deletion_names_its_finalizers_and_completes_without_them(
    cluster: Any, project: Project
) -> None:
    project.write("""
Object("core/v1:ConfigMap", "held", metadata=named("held", finalizers=["example.dev/hold"],
    annotations={"pulumi.com/timeoutSeconds": "1"}), data={}, opts=inside)
""")
    project.up()
    text = project.fail("destroy", "--yes", "--skip-preview")
    assert f"ConfigMap {project.namespace}/held: not gone after 1 s" in text
    assert "waiting for its finalizers: example.dev/hold" in text

    release = '{"metadata":{"finalizers":null}}'
    cluster.kubectl("patch", "configmap", "held", "-n", project.namespace, "-p", release)
    project.destroy()
    assert project.resources() == {}


def test_custom_resource_is_previewed_and_created_with_its_definition(project: Project) -> None:
    group = f"{project.namespace}.example.dev"
    project.write(DEFINITION.replace("GROUP", group))
    assert "+ 4 to create" in project.succeed("preview")
    project.up()
    assert project.resources()["thing"]["id"] == "one"
    project.up("--expect-no-changes")


@pytest.mark.standin
def test_preview_works_without_a_cluster_and_update_reports_it_unreachable(
    project: Project, tmp_path: Path
) -> None:
    nowhere = tmp_path / "kubeconfig"
    nowhere.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "users": [{"name": "u", "user": {}}],
            }
        )
    )
    lost = Project(project.folder, {**project.env, "KUBECONFIG": str(nowhere)}, project.namespace)
    lost.write(NEVER_READY.replace("ANNOTATIONS", "{}"))
    assert "+ 3 to create" in lost.succeed("preview")
    text = lost.fail("up", "--yes", "--skip-preview")
    assert (
        "the cluster cannot be reached: no answer from the API server at http://127.0.0.1:1" in text
    )


@pytest.mark.standin
def test_helm_release_is_rejected_with_the_alternatives(project: Project) -> None:
    project.write("""
Object("helm.sh/v3:Release", "chart", chart="anything", opts=inside)
""")
    assert "chart" in project.succeed("preview")
    text = project.fail("up", "--yes", "--skip-preview")
    assert "the provider stand-in cannot fetch Helm charts" in text
    assert "SANDBOX_PROVIDER=official" in text and "provided: true" in text


def test_program_error_is_one_diagnostic_with_the_programs_frames(project: Project) -> None:
    project.write('raise ValueError("a mistake of the program")\n')
    result = project.run("preview")
    assert result.code != 0
    assert result.text.count("ValueError: a mistake of the program") <= 2
    assert "language_host" not in result.text and "runpy" not in result.text

    project.write('import sys\nsys.exit("config: got 3; allowed 1 or 2")\n')
    assert "error: config: got 3; allowed 1 or 2" in project.fail("preview")
