"""The Kubernetes provider when something is missing, stuck, cancelled or killed."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox.pulumi_project import Project, alive, children_of, read_until, wait_until

pytestmark = [pytest.mark.sandbox, pytest.mark.long(56)]

NEVER_READY = """
Object("core/v1:Pod", "pod", metadata=named("pod", annotations=ANNOTATIONS), opts=inside,
    spec={"nodeSelector": {"no": "node"}, "containers": [{"name": "main", "image": "none"}]})
"""
WAITS = "to be scheduled"
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


def test_unready_object_is_kept_and_awaited_by_the_next_update(project: Project) -> None:
    project.write(NEVER_READY.replace("ANNOTATIONS", '{"pulumi.com/timeoutSeconds": "1"}'))
    text = project.fail("up", "--yes", "--skip-preview")
    assert "'pod' timed out waiting to be Ready" in text
    assert project.resources()["pod"]["initErrors"]

    project.write(NEVER_READY.replace("ANNOTATIONS", '{"pulumi.com/skipAwait": "true"}'))
    project.up()
    assert not project.resources()["pod"].get("initErrors")
    project.up("--expect-no-changes")


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
    wait_until(lambda: not alive(started), "the processes of the engine end")
    assert project.resources()["pod"]["initErrors"]


def test_killed_update_is_resumed(cluster: Any, project: Project) -> None:
    before = NEVER_READY.replace("ANNOTATIONS", "{}")
    project.write(before)
    up = project.start("up", "--yes", "--skip-preview")
    read_until(up, lambda line: WAITS in line)
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


def test_custom_resource_is_previewed_and_created_with_its_definition(project: Project) -> None:
    group = f"{project.namespace}.example.dev"
    project.write(DEFINITION.replace("GROUP", group))
    assert "+ 4 to create" in project.succeed("preview")
    project.up()
    assert project.resources()["thing"]["id"] == "one"
    project.up("--expect-no-changes")


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
