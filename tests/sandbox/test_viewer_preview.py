"""A preview as the role of pull requests: it needs no Secret, and compares with the recorded state."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from infra.domain import naming
from infra.tenancy import shared_view
from sandbox.node.api import ApiError, Client
from tests.sandbox.conftest import Cluster, as_list
from tests.sandbox.node_kit import until
from tests.sandbox.pulumi_project import Project

pytestmark = pytest.mark.sandbox

STATED = """
Object("core/v1:Secret", "secret", metadata=named("secret"), stringData={"key": "VALUE"}, opts=inside)
Object("core/v1:ConfigMap", "config", metadata=named("config"), data={"key": "SETTING"}, opts=inside)
Object("core/v1:ConfigMap", "other", metadata=named("other"), data={"key": "same"}, opts=inside)
"""
WATCH = "watch=1&timeoutSeconds=1"


def program(value: str, setting: str, more: str = "") -> str:
    return STATED.replace("VALUE", value).replace("SETTING", setting) + more


@pytest.fixture(scope="module")
def viewer(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    objects = [
        manifest
        for name in shared_view.RULES
        for manifest in (
            shared_view.cluster_role(name),
            shared_view.cluster_role_binding(name, ()),
        )
    ]
    text = as_list(objects)
    for name in shared_view.RULES:  # A stack on the same cluster has the usual names.
        text = text.replace(f'"{name}"', f'"viewer-{name}"')
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=text)
    file = tmp_path_factory.mktemp("viewer") / "kubeconfig"
    path = cluster.kubeconfig_of(file, "preview", naming.VIEWER_GROUP)
    client = Client(path)
    until(lambda: bool(client.get("/api/v1/nodes")), "the role is in force")
    yield path
    cluster.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=text)


@pytest.fixture
def project(cluster: Cluster, tmp_path: Path) -> Iterator[Project]:
    found = Project.create(tmp_path, cluster.env)
    yield found
    found.destroy()


def _as(project: Project, config: Path) -> Project:
    env: Mapping[str, str] = {**project.env, "KUBECONFIG": str(config)}
    return Project(project.folder, env, project.namespace)


@pytest.mark.long(34)
def test_a_viewer_previews_changes_without_reading_or_changing_anything(
    cluster: Cluster, project: Project, viewer: Path
) -> None:
    project.write(program("before-value", "before"))
    project.up()
    preview = _as(project, viewer)
    preview.succeed("preview", "--expect-no-changes")

    # Hand edits: the role cannot see them.
    edit = json.dumps({"data": {"key": "edited"}})
    cluster.kubectl("patch", "configmap", "other", "-n", project.namespace, "-p", edit)
    more = 'Object("core/v1:ConfigMap", "third", metadata=named("third"), data={}, opts=inside)\n'
    project.write(program("after-value", "after", more))
    text = preview.succeed("preview", "--diff")
    assert "after-value" not in text and "before-value" not in text
    assert "edited" not in text
    assert "+ 1 to create" in text and "third" in text
    assert "config" in text and "before" in text and "after" in text
    refused = preview.fail("up", "--yes", "--skip-preview")
    assert "forbidden" in refused and "after-value" not in refused


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/secrets",
        f"/api/v1/secrets?{WATCH}",
        "/api/v1/namespaces/kube-system/secrets",
        "/api/v1/configmaps",
        "/api/v1/pods",
        "/api/v1/namespaces/default/pods/any/log",
        "/api/v1/namespaces/default/secrets/any",
    ],
)
def test_the_api_server_denies_a_viewer_secrets_and_what_teams_wrote(
    cluster: Cluster, viewer: Path, path: str
) -> None:
    with pytest.raises(ApiError) as denied:
        Client(viewer).get(path)
    assert denied.value.status == 403


def _requests(namespace: str) -> dict[str, tuple[str, dict[str, Any]]]:
    account = f"/api/v1/namespaces/{namespace}/serviceaccounts/default/token"
    token = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    body = {"metadata": {"name": "reader"}, "spec": {"containers": [{"name": "a", "image": "b"}]}}
    return {
        "token": (account, token),
        "pod": (
            f"/api/v1/namespaces/{namespace}/pods",
            {"apiVersion": "v1", "kind": "Pod", **body},
        ),
        "exec": (f"/api/v1/namespaces/{namespace}/pods/any/exec?command=env", {}),
    }


@pytest.mark.parametrize("way", _requests(""))
def test_the_api_server_denies_a_viewer_tokens_pods_and_shells(
    cluster: Cluster, viewer: Path, way: str
) -> None:
    with pytest.raises(ApiError) as denied:
        Client(viewer).create(*_requests("default")[way])
    assert denied.value.status == 403


def test_a_viewer_may_not_act_as_somebody_else(cluster: Cluster, viewer: Path) -> None:
    as_admin = ("--as=any", "--as-group=system:masters")
    with pytest.raises(Exception, match="cannot impersonate"):
        cluster.kubectl("--kubeconfig", str(viewer), *as_admin, "get", "secrets", "-A")
