"""The language host's parts: whose Python runs, how its children end."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest
from google.protobuf import struct_pb2
from pulumi.runtime.proto import language_pb2

from sandbox.language_host import server
from sandbox.language_host.server import ChildProcesses, stream_output
from sandbox.paths import PROJECT
from sandbox.pulumi_plugin import engine_address


def environment_at(folder: Path) -> Path:
    """Create the parts of a virtual environment that the language host uses; return its Python."""
    python = folder / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    return python


def test_engine_address_is_the_last_positional_argument() -> None:
    assert engine_address(["-root=/x", "--tracing", "127.0.0.1:1"]) == "127.0.0.1:1"
    assert engine_address(["--version"]) is None


def test_a_program_runs_on_the_environment_that_its_project_names(tmp_path: Path) -> None:
    python = environment_at(tmp_path / "env")
    assert server.find_python(str(tmp_path), {"virtualenv": "env"}) == python
    assert server.find_python(str(tmp_path), {}) == Path(sys.executable)


def test_missing_virtual_environment_is_a_one_line_error(tmp_path: Path) -> None:
    with pytest.raises(server.InterpreterError, match=r"virtual environment 'env'.*make env"):
        server.find_python(str(tmp_path), {"virtualenv": "env"})


def test_a_program_gets_its_environment_first_and_not_the_hosts_own_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = environment_at(tmp_path / "env")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(PROJECT), "/users"]))
    env = server.environment(python, {"PULUMI_CONFIG": "{}"})
    assert env["PATH"].split(os.pathsep)[0] == str(python.parent)
    assert (env["VIRTUAL_ENV"], env["PYTHONPATH"]) == (str(tmp_path / "env"), "/users")
    assert env["PULUMI_CONFIG"] == "{}"
    monkeypatch.setenv("PYTHONPATH", str(PROJECT))
    assert "PYTHONPATH" not in server.environment(python, {})


def start(children: ChildProcesses, script: str, *, piped: bool = True) -> object:
    return children.start(
        [sys.executable, "-c", script], cwd=Path.cwd(), env=os.environ, piped=piped
    )


def test_both_streams_of_a_child_arrive_and_then_its_exit_code() -> None:
    children = ChildProcesses()
    script = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"
    child = start(children, script)
    text = {"stdout": b"", "stderr": b""}
    for stream, data in stream_output(child):  # type: ignore[arg-type]
        text[stream] += data
    assert text == {"stdout": b"out\n", "stderr": b"err\n"}
    assert children.wait(child) == 3  # type: ignore[arg-type]


def test_stop_kills_process_trees_and_starts_no_more() -> None:
    children = ChildProcesses()
    script = "import subprocess; p = subprocess.Popen(['sleep', '60']); print(p.pid); p.wait()"
    child = start(children, script)
    grandchild = int(child.stdout.readline())  # type: ignore[attr-defined]
    children.stop()
    assert child.returncode is not None  # type: ignore[attr-defined]
    deadline = time.monotonic() + 10
    while _alive(grandchild):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    with pytest.raises(RuntimeError, match="the language host is stopping"):
        start(children, "")


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_package_gets_the_environment_that_it_names(tmp_path: Path) -> None:
    """`pulumi package get-schema ./components` in a new checkout asks for it."""
    options = struct_pb2.Struct()
    options.update({"virtualenv": ".venv"})
    info = language_pb2.ProgramInfo(
        root_directory=str(tmp_path), program_directory=str(tmp_path), options=options
    )
    request = language_pb2.InstallDependenciesRequest(info=info)
    list(server.LanguageHost("").InstallDependencies(request, None))
    assert server.find_python(str(tmp_path), {"virtualenv": ".venv"}).exists()
