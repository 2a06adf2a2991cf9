"""The Kubernetes provider when something is missing, stuck, cancelled or killed."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox.pulumi_project import Project, alive, children_of, read_until, wait_until

pytestmark = [pytest.mark.sandbox, pytest.mark.long(63)]

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


def test_a_release_of_a_chart_is_installed_and_uninstalled(cluster: Any, project: Project) -> None:
    chart = project.folder / "chart"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: chart\nversion: 1.0.0\n")
    (chart / "templates/made.yaml").write_text(
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: made}, data: {a: {{ .Values.a }}}}\n"
    )
    release = """
Object("helm.sh/v3:Release", "release", chart="./chart", namespace=NAMESPACE, name="release",
    values={"a": "VALUE"}, opts=inside)
"""
    place = ("-n", project.namespace, "-o", "jsonpath={.data.a}")
    project.write(release.replace("VALUE", "first"))
    project.up()
    assert cluster.kubectl("get", "configmap", "made", *place) == "first"
    project.up("--expect-no-changes")
    project.write(release.replace("VALUE", "second"))
    assert "~ 1 updated" in project.up()
    assert cluster.kubectl("get", "configmap", "made", *place) == "second"
    project.write("")
    project.up()
    assert "made" not in cluster.kubectl("get", "configmap", "-n", project.namespace)


def test_program_error_is_one_diagnostic_with_the_programs_frames(project: Project) -> None:
    project.write('raise ValueError("a mistake of the program")\n')
    result = project.run("preview")
    assert result.code != 0
    assert result.text.count("ValueError: a mistake of the program") <= 2
    assert "language_host" not in result.text and "runpy" not in result.text

    project.write('import sys\nsys.exit("config: got 3; allowed 1 or 2")\n')
    assert "error: config: got 3; allowed 1 or 2" in project.fail("preview")
