"""The Kubernetes provider when something is missing, stuck, cancelled, killed, imported or replaced."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox.node_kit import until
from tests.sandbox.pulumi_project import Project, alive, children_of, read_until

pytestmark = [pytest.mark.sandbox, pytest.mark.long(56)]

NEVER_READY = """
Object("core/v1:Pod", "pod", metadata=named("pod", annotations=ANNOTATIONS), opts=inside,
    spec={"nodeSelector": {"no": "node"}, "containers": [{"name": "main", "image": "none"}]})
"""
WAITS = "to be scheduled"


@pytest.fixture
def project(cluster: Any, tmp_path: Path) -> Project:
    return Project.create(tmp_path, cluster.env)


def test_interrupting_the_engine_ends_the_wait_and_leaves_no_process(
    project: Project,
) -> None:
    project.write(NEVER_READY.replace("ANNOTATIONS", "{}"))
    up = project.start("up", "--yes", "--skip-preview")
    seen = read_until(up, lambda line: WAITS in line)
    started = children_of(up.pid)
    assert len(started) >= 4, "language host, program, the plugin and its parent"
    up.send_signal(signal.SIGINT)
    rest, _ = up.communicate(timeout=300)
    assert up.returncode != 0
    assert "Traceback" not in seen + rest
    until(lambda: not alive(started), "the processes of the engine end")
    assert project.resources()["pod"]["initErrors"]


def test_killed_update_is_resumed(cluster: Any, project: Project) -> None:
    before = NEVER_READY.replace("ANNOTATIONS", "{}")
    project.write(before)
    up = project.start("up", "--yes", "--skip-preview")
    read_until(up, lambda line: WAITS in line)
    started = children_of(up.pid)
    up.kill()
    up.communicate(timeout=300)
    until(lambda: not alive(started), "the processes of the killed engine end")

    project.succeed("cancel", "--yes")
    after = NEVER_READY.replace(
        "annotations=ANNOTATIONS",
        'labels={"new": "1"}, annotations={"pulumi.com/skipAwait": "true"}',
    )
    project.write(after)
    project.up()
    project.up("--expect-no-changes")
    place = ("-n", project.namespace, "-o", "jsonpath={.metadata.labels.new}")
    assert cluster.kubectl("get", "pod", "pod", *place) == "1"


def test_blocked_deletion_names_its_finalizers_and_completes_without_them(
    cluster: Any, project: Project
) -> None:
    project.write("""
Object("core/v1:ConfigMap", "held", metadata=named("held", finalizers=["example.dev/hold"],
    annotations={"pulumi.com/timeoutSeconds": "1"}), data={}, opts=inside)
""")
    project.up()
    text = project.fail("destroy", "--yes", "--skip-preview")
    assert "finalizers might be preventing deletion (example.dev/hold)" in text

    release = '{"metadata":{"finalizers":null}}'
    cluster.kubectl("patch", "configmap", "held", "-n", project.namespace, "-p", release)
    project.destroy()
    assert project.resources() == {}


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
    assert "configured Kubernetes cluster is unreachable" in text


@pytest.mark.full_only
def test_a_field_of_another_manager_is_named_and_taken_over_when_forced(
    cluster: Any, project: Project
) -> None:
    program = """
Object("core/v1:LimitRange", "limits", metadata=named("limits"), opts=inside,
    spec={"limits": [{"type": "Container", "default": {"cpu": "CPU"}}]})
"""
    project.write(program.replace("CPU", "1"))
    project.up()
    theirs = json.dumps({"spec": {"limits": [{"type": "Container", "default": {"cpu": "2"}}]}})
    place = ("limitrange", "limits", "-n", project.namespace)
    cluster.kubectl("patch", *place, "--field-manager=somebody", "-p", theirs)

    project.write(program.replace("CPU", "3"))
    unforced = {**project.env, "PULUMI_K8S_ENABLE_PATCH_FORCE": "false"}
    shown = Project(project.folder, unforced, project.namespace).fail(
        "up", "--yes", "--skip-preview"
    )
    assert 'conflict with "somebody" using v1: .spec.limits' in shown
    project.up()
    found = cluster.kubectl("get", *place, "-o", "jsonpath={.spec.limits[0].default.cpu}")
    assert found == "3"


@pytest.mark.full_only
def test_what_an_invalid_job_cancels_is_completed_by_the_next_update(
    cluster: Any, project: Project
) -> None:
    """Objects that are replaced are deleted first: the update stops between the two steps."""
    maps = """
for number in range(12):
    Object("core/v1:ConfigMap", f"map-{number}", metadata=named(f"map-{number}"), data={"a": "DATA"}, opts=inside)
"""
    job = """
Object("batch/v1:Job", "job", metadata=named("job", annotations={"pulumi.com/skipAwait": "true"}), opts=inside,
    spec={"template": {"spec": {"restartPolicy": "POLICY", "containers": [{"name": "main", "image": "none"}]}}})
"""

    def found() -> dict[str, str]:
        text = cluster.kubectl("get", "configmap", "-n", project.namespace, "-o", "json")
        made = {one["metadata"]["name"]: one["data"].get("a") for one in json.loads(text)["items"]}
        return {name: data for name, data in made.items() if name.startswith("map-")}

    project.write(maps.replace("DATA", "before"))
    project.up()
    changed = maps.replace("DATA", "after")
    project.write(changed + job.replace("POLICY", "Always"))
    assert 'Job.batch "job" is invalid' in project.fail("up", "--yes", "--skip-preview")
    known = {
        name: one["outputs"]["data"]["a"]
        for name, one in project.resources().items()
        if name.startswith("map-") and not one.get("pendingReplacement")
    }
    assert known == found(), "the state knows what was created, and what was deleted"

    project.write(changed + job.replace("POLICY", "Never"))
    project.up()
    assert found() == {f"map-{number}": "after" for number in range(12)}
    project.up("--expect-no-changes")


def test_program_error_is_one_diagnostic_with_the_programs_frames(project: Project) -> None:
    project.write('raise ValueError("a mistake of the program")\n')
    result = project.run("preview")
    assert result.code != 0
    assert result.text.count("ValueError: a mistake of the program") <= 2
    assert "language_host" not in result.text and "runpy" not in result.text

    project.write('import sys\nsys.exit("config: got 3; allowed 1 or 2")\n')
    assert "error: config: got 3; allowed 1 or 2" in project.fail("preview")


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
