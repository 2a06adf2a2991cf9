"""The command `trainyard`, which the bootstrap writes into the environment."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from sandbox import bootstrap


def test_command_runs_the_project_s_ops_from_any_folder(tmp_path: Path) -> None:
    project, elsewhere = tmp_path / "a project", tmp_path / "elsewhere"
    for folder, text in ((project, "the project's"), (elsewhere, "another")):
        (folder / "ops").mkdir(parents=True)
        (folder / "ops" / "__init__.py").touch()
        program = f"import sys\ndef main():\n    print({text!r}, sys.argv[1:])\n    return 3\n"
        (folder / "ops" / "__main__.py").write_text(program)
    venv = project / ".venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").symlink_to(sys.executable)
    bootstrap.write_command(venv)
    link, relative = tmp_path / "trainyard", tmp_path / "relative"
    link.symlink_to(venv / "bin" / "trainyard")
    relative.symlink_to("trainyard")
    for command in (venv / "bin" / "trainyard", link, relative, "../a project/.venv/bin/trainyard"):
        done = subprocess.run(
            [command, "run", "why", "a b"], cwd=elsewhere, capture_output=True, text=True
        )
        assert (done.stdout, done.returncode) == ("the project's ['run', 'why', 'a b']\n", 3), done


def test_a_linked_environment_runs_the_checkout_that_links_to_it(tmp_path: Path) -> None:
    mine, other = tmp_path / "mine", tmp_path / "other"
    for folder in (mine, other):
        (folder / "ops").mkdir(parents=True)
        (folder / "ops" / "__init__.py").touch()
        program = f"def main():\n    print({folder.name!r})\n    return 0\n"
        (folder / "ops" / "__main__.py").write_text(program)
    venv = other / ".venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").symlink_to(sys.executable)
    bootstrap.write_command(venv)
    (mine / ".venv").symlink_to(venv)
    for folder in (mine, other):
        done = subprocess.run(
            [folder / ".venv/bin/trainyard"], cwd=tmp_path, capture_output=True, text=True
        )
        assert (done.stdout, done.returncode) == (f"{folder.name}\n", 0), done
