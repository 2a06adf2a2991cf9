"""What the shell completes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ops import __main__ as front_door
from ops.completion import SHELLS


def _completions(line: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> set[str]:
    """What bash offers for the last word of a line."""
    assert front_door.main(["completion", "bash"]) == 0
    words = line.split(" ")
    program = f"""{capsys.readouterr().out}
        COMP_WORDS=({" ".join(word or "''" for word in words)})
        COMP_CWORD={len(words) - 1}
        _shtab_trainyard trainyard '{words[-1]}' '{words[-2]}'
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(
        ["bash", "-c", program], cwd=folder, capture_output=True, text=True, timeout=60
    )
    return set(done.stdout.split())


def test_bash_completes_commands_options_and_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "hello.yaml").touch()
    assert _completions("trainyard run s", tmp_path, capsys) == {"show", "stop", "submit"}
    assert "--team" in _completions("trainyard run list --t", tmp_path, capsys)
    assert _completions("trainyard run submit hel", tmp_path, capsys) == {"hello.yaml"}


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_gets_a_script_of_all_groups(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert front_door.main(["completion", shell]) == 0
    text = capsys.readouterr().out
    assert all(group in text for group in ("run", "sweep", "dev", "stack", "cost", "ui"))
