"""A throw-away Pulumi project on the test cluster, driven by the real engine."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

from sandbox.paths import PROJECT

COMMAND_SECONDS = 240.0
HEADER = """
import pulumi
from pulumi import ResourceOptions

NAMESPACE = {namespace!r}


class Object(pulumi.CustomResource):
    def __init__(self, token, resource_name, opts=None, **properties):
        module, _, kind = token.partition(":")
        api_version = module.removeprefix("core/")
        properties = {{"apiVersion": api_version, "kind": kind, **properties}}
        super().__init__(f"kubernetes:{{token}}", resource_name, properties, opts)


def named(name, **more):
    return {{"namespace": NAMESPACE, "name": name, **more}}


namespace = Object("core/v1:Namespace", "namespace", metadata={{"name": NAMESPACE}})
inside = ResourceOptions(depends_on=[namespace])
"""
"""Start of every program. Plain registrations: the SDK's classes take a second to import."""


@dataclass(frozen=True)
class Result:
    code: int
    text: str


@dataclass(frozen=True)
class Project:
    """One program with one stack. `namespace` is a name for it that no other test uses."""

    folder: Path
    env: Mapping[str, str]
    namespace: str = field(default_factory=lambda: f"test-{uuid4().hex[:8]}")

    @classmethod
    def create(cls, folder: Path, env: Mapping[str, str], **variables: str) -> Self:
        """A project with an empty program and a new stack."""
        project = cls(folder, {**env, **variables})
        name = f"project-{project.namespace}"
        (folder / "Pulumi.yaml").write_text(f"name: {name}\nruntime: python\n")
        (folder / "__main__.py").write_text("")
        project.succeed("stack", "init", "test")
        return project

    def write(self, program: str) -> None:
        """Make this the program, below HEADER: it has a namespace, and Object to register more."""
        header = HEADER.format(namespace=self.namespace)
        (self.folder / "__main__.py").write_text(header + program)

    def write_whole(self, program: str) -> None:
        """Make this the program, with nothing above it."""
        (self.folder / "__main__.py").write_text(program)

    def run(self, *arguments: str) -> Result:
        done = subprocess.run(
            self._command(arguments),
            cwd=self.folder,
            env=dict(self.env),
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        return Result(done.returncode, done.stdout + done.stderr)

    def succeed(self, *arguments: str) -> str:
        result = self.run(*arguments)
        assert result.code == 0, result.text
        return result.text

    def fail(self, *arguments: str) -> str:
        """Run a command that must fail; returns what it printed, which has no traceback."""
        result = self.run(*arguments)
        assert result.code != 0, result.text
        assert "Traceback" not in result.text
        return result.text

    def up(self, *arguments: str) -> str:
        return self.succeed("up", "--yes", "--skip-preview", *arguments)

    def destroy(self) -> str:
        return self.succeed("destroy", "--yes", "--skip-preview")

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self._command(arguments),
            cwd=self.folder,
            env=dict(self.env),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def resources(self) -> dict[str, dict[str, Any]]:
        exported = json.loads(self.succeed("stack", "export"))
        found = exported["deployment"].get("resources", [])
        return {resource["urn"].rpartition("::")[2]: resource for resource in found}

    def _command(self, arguments: tuple[str, ...]) -> list[str]:
        stack = [] if arguments[:2] == ("stack", "init") else ["--stack", "test"]
        return ["pulumi", "--non-interactive", *arguments, *stack]


def link_project(folder: Path) -> None:
    """Make a copy of this project for stacks of their own, whose stack files lie in the folder alone."""
    for one in PROJECT.iterdir():
        if not one.name.startswith(("Pulumi.", "__main__", ".git")):
            (folder / one.name).symlink_to(one)
    for name in ("Pulumi.yaml", "__main__.py"):  # The program finds its files beside it.
        (folder / name).write_text((PROJECT / name).read_text())


def read_until(process: subprocess.Popen[str], seen: Callable[[str], bool]) -> str:
    """Read a process's output until a line is seen; fails when it ends before."""
    assert process.stdout is not None
    text = ""
    for line in process.stdout:
        text += line
        if seen(line):
            return text
    raise AssertionError(f"the line never came:\n{text}")


def children_of(pid: int) -> set[int]:
    parents: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                stat = (folder / "stat").read_text()
            except OSError:
                continue
            parents[int(folder.name)] = int(stat.rpartition(")")[2].split()[1])
    found = {pid}
    while grown := {child for child, parent in parents.items() if parent in found} - found:
        found |= grown
    return found - {pid}


def alive(pids: set[int]) -> set[int]:
    found = set()
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state != "Z":
            found.add(pid)
    return found
