"""What docs/recover.md says of a lost state and of a removed team, in a small project on the cluster."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.sandbox.pulumi_project import Project

pytestmark = [pytest.mark.sandbox, pytest.mark.core, pytest.mark.long(12)]

PROGRAM = """
Object("core/v1:ConfigMap", "config", metadata=named("config"), data={"a": "1"}, opts=inside)
Object("core/v1:Secret", "secret", metadata=named("secret"), stringData={"key": "value"}, opts=inside)
"""
KEPT = """
Object("core/v1:ConfigMap", "kept", metadata=named("kept"), data={"a": "1"},
    opts=ResourceOptions(depends_on=[namespace], protect=True, retain_on_delete=True))
"""


@pytest.fixture
def project(cluster: Any, tmp_path: Path) -> Iterator[Project]:
    made = Project.create(tmp_path, cluster.env)
    yield made
    # Whatever became of the state.
    cluster.kubectl("delete", "namespace", made.namespace, "--ignore-not-found", "--wait=false")


@pytest.fixture
def _with_full(full: bool) -> None:
    if not full:
        pytest.skip("only with --full, for its time")


def folders(project: Project) -> tuple[Path, Path]:
    """Where the stack's state lies, and its history."""
    backend = Path(urlsplit(project.env["PULUMI_BACKEND_URL"]).path) / ".pulumi"
    name = f"project-{project.namespace}"
    return backend / "stacks" / name, backend / "history" / name / "test"


def identity(cluster: Any, project: Project, name: str) -> str:
    place = ("-n", project.namespace, "-o", "jsonpath={.metadata.uid}")
    found: str = cluster.kubectl("get", "configmap", name, *place)
    return found


def test_a_lost_state_is_restored_from_the_newest_checkpoint_of_its_history(
    cluster: Any, project: Project
) -> None:
    project.write(PROGRAM)
    project.up()
    made = identity(cluster, project, "config")
    state, history = folders(project)
    (state / "test.json").unlink()
    newest = max(history.glob("*.checkpoint.json"), key=lambda file: file.stat().st_mtime_ns)
    shutil.copy(newest, state / "test.json")
    project.succeed("preview", "--expect-no-changes")
    project.up("--expect-no-changes")
    assert identity(cluster, project, "config") == made


@pytest.mark.usefixtures("_with_full")
def test_without_state_and_history_objects_are_adopted_and_not_replaced(
    cluster: Any, project: Project
) -> None:
    project.write(PROGRAM)
    project.up()
    made = identity(cluster, project, "config")
    state, history = folders(project)
    for file in state.glob("test.json*"):
        file.unlink()
    shutil.rmtree(history)
    project.succeed("stack", "init", "test")
    assert "+ 4 created" in project.up()
    assert identity(cluster, project, "config") == made
    project.succeed("preview", "--expect-no-changes")


@pytest.mark.usefixtures("_with_full")
def test_what_is_protected_is_kept_when_its_entry_is_unprotected_by_hand(
    cluster: Any, project: Project
) -> None:
    project.write(PROGRAM + KEPT)
    project.up()
    project.write(PROGRAM)
    made = identity(cluster, project, "kept")
    assert "cannot be deleted" in project.fail("up", "--yes", "--skip-preview")
    exported = json.loads(project.succeed("stack", "export"))
    (urn,) = [one["urn"] for one in exported["deployment"]["resources"] if one.get("protect")]
    project.succeed("state", "unprotect", urn, "--yes")
    project.up()
    assert "kept" not in project.resources()
    assert identity(cluster, project, "kept") == made
