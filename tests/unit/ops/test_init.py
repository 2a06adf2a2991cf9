"""`trainyard init`: what it writes is a run that the stack of the record accepts."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from infra.domain.published_record import from_text, to_text
from infra.tenancy import team
from ops.submission import init_command, render
from tests.golden.example_runs import IMAGE, platform
from tests.unit.ops.conftest import Cli
from tests.unit.ops.test_ops_commands import FakeCluster


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "7 My_Project: [x]"
    home.mkdir()
    monkeypatch.chdir(home)
    return home


def cluster(**images: str) -> FakeCluster:
    text = to_text(platform(), "research", images or {"other": IMAGE, "trainer": IMAGE})
    return FakeCluster(configmaps=[team.platform_record("research", text)])


def init(cli: Cli, *arguments: str) -> int:
    return cli(cluster(), "init", "--team", "research", *arguments)


def test_the_run_file_and_the_script_are_a_run(folder: Path, cli: Cli) -> None:
    assert init(cli, "--script") == 0
    assert "next: trainyard run submit run.yaml --watch" in cli.out
    assert len((folder / "train.py").read_text().splitlines()) <= 34
    document = render.read(Path("run.yaml"), [])
    assert (document.root, document.values["image"]) == (folder, "trainer")
    published = from_text(to_text(platform(), "research", {"trainer": IMAGE}))
    found = render.render(document, published, "ada")
    assert found.run_id.startswith("my-project-x-v1-")
    assert found.facts[-1].startswith(f"source: {folder}, ")
    [files, *_] = found.manifests
    assert '"git_commit": "sha256:' in files["data"]["run.json"]


def test_in_a_repository_the_commit_of_the_code_is_recorded(folder: Path, cli: Cli) -> None:
    assert init(cli, "--script") == 0
    who = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    for arguments in (("init", "-q"), ("add", "."), (*who, "commit", "-qm", "first")):
        subprocess.run(["git", *arguments], cwd=folder, check=True)
    for change, recorded in (("", ""), ("print()", " with changes")):
        with (folder / "train.py").open("a") as script:
            script.write(change)
        document = render.read(Path("run.yaml"), [], source=folder)
        published = from_text(to_text(platform(), "research", {"trainer": IMAGE}))
        found = render.render(document, published, "ada")
        [commit] = re.findall('"git_commit": "([0-9a-f]{40})"', str(found.manifests))
        assert found.facts[-1].endswith(f", commit {commit[:12]}{recorded}")


def test_in_a_repository_paths_are_relative_to_its_top(folder: Path, cli: Cli) -> None:
    subprocess.run(["git", "init", "-q", str(folder.parent)], check=True)
    assert init(cli) == 0
    document = yaml.safe_load((folder / "run.yaml").read_text())
    assert document["program"]["source"] == folder.name
    assert render.read(Path("run.yaml"), []).root == folder.parent


def test_an_existing_file_is_kept(folder: Path, cli: Cli) -> None:
    (folder / "train.py").write_text("mine")
    assert init(cli, "--script") == 2
    assert "train.py: exists; must be a new file" in cli.err
    assert (folder / "train.py").read_text() == "mine"
    assert not (folder / "run.yaml").exists()


@pytest.mark.parametrize(
    ("folder_name", "name"),
    [
        ("Überlauf 2", "berlauf-2"),
        ("___", "my-run"),
        ("no", "no"),
        ("a" * 40, "a" * 30),
        ("2024-x_", "x"),
    ],
)
def test_a_run_is_named_after_the_folder(folder_name: str, name: str) -> None:
    published = from_text(to_text(platform(), "research", {"trainer": IMAGE}))
    text = init_command.run_file(published, "research", folder_name, ".")
    assert yaml.safe_load(text)["name"] == name


def test_the_source_of_the_command_line_takes_the_place_of_the_files(
    folder: Path, cli: Cli, tmp_path: Path
) -> None:
    assert init(cli, "--script") == 0
    other = tmp_path / "elsewhere"
    other.mkdir()
    (other / "train.py").write_text("print()")
    document = render.read(Path("run.yaml"), [], source=other)
    assert (document.root, document.values["program"]["source"]) == (other, ".")
    with pytest.raises(render.RunFileError, match=r"--source: got 'nowhere'; must be the folder"):
        render.read(Path("run.yaml"), [], source=Path("nowhere"))


def test_submit_without_a_file_says_what_to_do(folder: Path, cli: Cli) -> None:
    assert cli(cluster(), "run", "submit") == 2
    assert "trainyard init --script writes run.yaml and a script" in cli.err
