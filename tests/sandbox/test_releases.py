"""Helm releases that an update cannot change, and the commands that help (docs/recover.md#a-failed-update)."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from sandbox import toolchain
from sandbox.paths import PROJECT
from tests.sandbox.node_kit import until
from tests.sandbox.pulumi_project import Project, alive, children_of

pytestmark = [pytest.mark.sandbox, pytest.mark.long(40)]

CHART = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: made}
spec:
  replicas: {{ if .Values.stuck }}1{{ else }}0{{ end }}
  selector: {matchLabels: {app: made}}
  template:
    metadata: {labels: {app: made}}
    spec:
      {{- if .Values.stuck }}
      nodeSelector: {not: there}
      {{- end }}
      containers: [{name: main, image: none}]
"""
RELEASE = """
import sys

import pulumi_kubernetes as kubernetes

sys.path.insert(0, PROJECT)
from infra.kubernetes import helm

provider = kubernetes.Provider("cluster", cluster_identifier="cluster")
group = pulumi.ComponentResource(
    "test:index:Group", "group", opts=ResourceOptions(providers={"kubernetes": provider}))
helm.release("release", helm.Chart(chart="./chart", version="1.0.0"), release_name="made",
    namespace=NAMESPACE, values={"stuck": STUCK},
    opts=ResourceOptions(parent=group, depends_on=[namespace]))
""".replace("PROJECT)", f"{str(PROJECT)!r})")
PAGE = PROJECT / "docs/recover.md"
WORKS, STUCK = RELEASE.replace("STUCK", "False"), RELEASE.replace("STUCK", "True")


@pytest.fixture
def project(cluster: Any, tmp_path: Path) -> Iterator[Project]:
    made = Project.create(tmp_path, cluster.env)
    add_to_chart(made, "Chart.yaml", "apiVersion: v2\nname: chart\nversion: 1.0.0\n")
    add_to_chart(made, "templates/made.yaml", CHART)
    yield made
    # Whatever became of the release.
    cluster.kubectl("delete", "namespace", made.namespace, "--ignore-not-found", "--wait=false")


def add_to_chart(project: Project, name: str, text: str) -> None:
    file = project.folder / "chart" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def start_stuck_update(
    cluster: Any, project: Project, status: str
) -> tuple[subprocess.Popen[str], set[int]]:
    """Start an update that cannot finish; return it and its processes once Helm waits inside the release."""
    where = ("-n", project.namespace)

    def waits() -> bool:
        secrets = cluster.kubectl("get", "secret", *where, "-l", f"owner=helm,status={status}")
        pods = cluster.kubectl("get", "pods", *where, "-l", "app=made", "-o", "name")
        return "made" in secrets and bool(pods)

    project.write(STUCK)
    up = project.start("up", "--yes", "--skip-preview")
    until(waits, f"a pod of a release that is {status}")
    return up, children_of(up.pid)


def kill(cluster: Any, project: Project, status: str, number: signal.Signals) -> None:
    """Kill an engine, and its plugin with it, while Helm waits inside the release."""
    up, started = start_stuck_update(cluster, project, status)
    up.send_signal(number)
    up.communicate(timeout=300)
    until(lambda: not alive(started), "the processes of the engine end")
    if number is signal.SIGKILL:
        project.succeed("cancel", "--yes")


def run_shown(project: Project, text: str, start: str) -> str:
    """Run the command that a text shows, as a user who copies it; return its output."""
    (command,) = set(re.findall(rf"{start}[^;\n]*", text))
    return run_shell(project, command)


def run_documented(project: Project, start: str, words: Mapping[str, str] | None = None) -> str:
    """Run the block of the page that starts so, with these words for those in capitals; return its output."""
    (block,) = re.findall(rf"```sh\n({start}.*?)```", PAGE.read_text(), re.DOTALL)
    for word, value in (words or {}).items():
        block = block.replace(word, value)
    return run_shell(project, block)


def run_shell(project: Project, command: str) -> str:
    helm = toolchain.ensure(Console(), "helm").binaries["helm"].parent
    pulumi = {"PULUMI_STACK": "test", "PULUMI_SKIP_CONFIRMATIONS": "true"}
    done = subprocess.run(
        ["bash", "-euc", command],
        cwd=project.folder,
        env={**project.env, **pulumi, "PATH": f"{helm}:{project.env['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def assert_mended(cluster: Any, project: Project) -> None:
    """The next update leaves nothing of the killed one, and the state is clean."""
    project.write(WORKS)
    project.up("--refresh")
    spec = cluster.kubectl(
        "get", "deployment", "made", "-n", project.namespace, "-o", "jsonpath={.spec}"
    )
    assert json.loads(spec)["replicas"] == 0 and "nodeSelector" not in spec
    project.succeed("refresh", "--yes", "--skip-preview", "--clear-pending-creates")
    assert "pending operations" not in project.up("--expect-no-changes")


def test_a_killed_upgrade_is_undone_by_the_command_shown(cluster: Any, project: Project) -> None:
    project.write(WORKS)
    project.up()
    kill(cluster, project, "pending-upgrade", signal.SIGKILL)
    killed = f"{project.namespace}/made: an update was killed"
    assert killed in project.fail("up", "--yes", "--skip-preview")
    # The refreshed state has the values of the killed update, so that this one changes nothing.
    shown = project.fail("up", "--yes", "--skip-preview", "--refresh")
    assert killed in shown
    run_shown(project, shown, "helm rollback")
    assert_mended(cluster, project)
    project.write("")
    project.up()
    assert "made" not in cluster.kubectl("get", "deployment", "-n", project.namespace)


@pytest.mark.full_only
def test_a_killed_installation_is_undone_by_the_command_shown(
    cluster: Any, project: Project
) -> None:
    kill(cluster, project, "pending-install", signal.SIGKILL)
    shown = project.fail("up", "--yes", "--skip-preview", "--refresh")
    run_shown(project, shown, "helm uninstall")
    assert_mended(cluster, project)


@pytest.mark.full_only
@pytest.mark.parametrize("status", ["pending-upgrade", "pending-install"])
def test_an_interrupted_release_needs_nothing(cluster: Any, project: Project, status: str) -> None:
    if status == "pending-upgrade":
        project.write(WORKS)
        project.up()
    kill(cluster, project, status, signal.SIGINT)
    assert_mended(cluster, project)


@pytest.mark.full_only
def test_a_plugin_that_outlives_its_engine_completes_the_upgrade(
    cluster: Any, project: Project
) -> None:
    """As on a machine without the sandbox's parent of the plugin."""
    project.write(WORKS)
    project.up()
    up, started = start_stuck_update(cluster, project, "pending-upgrade")
    name = "pulumi-resource-kubernetes"
    plugins = {one for one in started if Path(f"/proc/{one}/exe").readlink().name == name}
    parents = {one for one in started - plugins if plugins & children_of(one)}
    try:
        for one in parents:
            os.kill(one, signal.SIGKILL)
        up.kill()
        up.wait(timeout=300)
        until(lambda: not alive(started - plugins), "the processes but the plugins end")
        project.succeed("cancel", "--yes")
        assert "helm rollback" in project.fail("up", "--yes", "--skip-preview")
        where = ("-n", project.namespace)
        cluster.kubectl("scale", "deployment", "made", "--replicas=0", *where)
        done = ("get", "secret", *where, "-l", "owner=helm,status=deployed,version=2")
        until(lambda: "made" in cluster.kubectl(*done), "Helm completes the upgrade")
    finally:
        for one in alive(plugins):
            os.kill(one, signal.SIGKILL)
    assert_mended(cluster, project)


@pytest.mark.full_only
def test_a_release_that_only_the_cluster_has_is_adopted_by_the_command_shown(
    cluster: Any, project: Project
) -> None:
    project.write(WORKS)
    project.up()
    place = ("-n", project.namespace, "-o", "jsonpath={.metadata.uid}")
    made = cluster.kubectl("get", "deployment", "made", *place)
    project.succeed("state", "delete", project.resources()["release"]["urn"], "--yes")
    shown = project.fail("up", "--yes", "--skip-preview")
    run_shown(project, shown, "pulumi import")
    assert_mended(cluster, project)
    assert cluster.kubectl("get", "deployment", "made", *place) == made
    project.destroy()


QUICK = """
Object("helm.sh/v3:Release", "release", chart="./chart", namespace=NAMESPACE, name="made", timeout=5,
    values={"stuck": False, "a": "VALUE"}, opts=inside)
"""


@pytest.mark.full_only
def test_definitions_that_a_chart_does_not_own_or_know_are_named(
    cluster: Any, project: Project
) -> None:
    group = f"{project.namespace}.example.dev"

    def definition(*versions: str) -> str:
        """The definition with these versions, of which the last is stored."""
        schema = {"openAPIV3Schema": {"type": "object"}}
        served = [{"name": one, "served": True, "schema": schema} for one in versions]
        return json.dumps(
            {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {"name": f"things.{group}"},
                "spec": {
                    "group": group,
                    "scope": "Cluster",
                    "names": {"kind": "Thing", "plural": "things"},
                    "versions": [{**one, "storage": one is served[-1]} for one in served],
                },
            }
        )

    def apply(*versions: str) -> None:
        arguments = ("--server-side", "--force-conflicts", "-f", "-")
        cluster.kubectl("apply", *arguments, stdin=definition(*versions))

    add_to_chart(project, "templates/thing.json", definition("v1"))
    apply("v1")
    project.write(QUICK)
    shown = project.fail("up", "--yes", "--skip-preview")
    assert f'"things.{group}" in namespace "" exists and cannot be imported' in shown
    owner = {"KIND": "crd", "OBJECT": f"things.{group}", "RELEASE": "made"}
    run_documented(project, "kubectl label", {**owner, "NAMESPACE": project.namespace})
    project.up()

    apply("v1", "v2")
    project.write(QUICK.replace("VALUE", "other"))
    shown = project.fail("up", "--yes", "--skip-preview")
    assert f'"things.{group}" is invalid: status.storedVersions[1]: Invalid value: "v2"' in shown
    add_to_chart(project, "templates/thing.json", definition("v1", "v2"))
    project.up()
    project.up("--expect-no-changes")
    project.destroy()
    assert group not in cluster.kubectl("get", "crd")


@pytest.mark.full_only
def test_a_finalizer_that_holds_a_release_is_found_and_its_uninstallation_ends(
    cluster: Any, project: Project
) -> None:
    held = (
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: held, finalizers: [example.dev/hold]}}"
    )
    add_to_chart(project, "templates/held.yaml", held)
    project.write(QUICK)
    project.up()
    project.write("")
    shown = project.fail("up", "--yes", "--skip-preview")
    assert "uninstallation completed with 1 error(s): context deadline exceeded" in shown
    shown = run_documented(project, "kubectl get")
    assert f'ConfigMap {project.namespace}/held ["example.dev/hold"]' in shown
    release = '{"metadata":{"finalizers":null}}'
    cluster.kubectl("patch", "configmap", "held", "-n", project.namespace, "-p", release)
    assert "release: not found" in project.fail("up", "--yes", "--skip-preview")
    project.up("--refresh")
    assert "release" not in project.resources()
