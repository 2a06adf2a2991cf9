"""Commit, changes and user of a deployment, from real checkouts."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from training import lineage


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with one commit."""
    (tmp_path / "run.yaml").write_text("version: 1\n")
    who = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    for arguments in (("init",), ("add", "."), (*who, "commit", "-m", "first")):
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True, capture_output=True)
    return tmp_path


def test_changed_and_new_files_make_a_checkout_dirty(checkout: Path) -> None:
    assert lineage.launch(checkout).dirty is False
    (checkout / "new.yaml").write_text("")
    assert lineage.launch(checkout).dirty is True
    (checkout / "new.yaml").unlink()
    (checkout / "run.yaml").write_text("version: 2\n")
    assert lineage.launch(checkout).dirty is True
    assert len(lineage.git_commit(checkout)) == 40


def test_the_engine_s_salt_is_not_a_change(checkout: Path) -> None:
    file = checkout / "run.yaml"
    file.write_text("encryptionsalt: v1:YAO=\nversion: 1\n")
    assert lineage.launch(checkout).dirty is False
    (checkout / "new.yaml").write_text("")
    assert lineage.launch(checkout).dirty is True
    (checkout / "new.yaml").unlink()
    file.write_text("encryptionsalt: v1:YAO=\nversion: 2\n")
    assert lineage.launch(checkout).dirty is True


def test_outside_of_git_neither_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert lineage.git_commit(tmp_path) == "unknown"
    assert lineage.launch(tmp_path).dirty is None


def test_the_user_is_that_of_the_workflow_or_of_the_machine(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    monkeypatch.setenv("LOGNAME", "ada")
    assert lineage.launch(checkout).by == "ada"
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_ACTOR", "grace")
    assert lineage.launch(checkout).by == "grace"
