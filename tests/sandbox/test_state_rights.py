"""The rights to a stack's state that the bootstrap program gives, against what Pulumi's S3 backend asks for."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from rich.console import Console

from bootstrap import permissions
from bootstrap.permissions import Home
from sandbox import environment, paths, toolchain
from tests.aws.iam_evaluation import Request, allowed
from tests.s3.bucket import NAME, Bucket

pytestmark = [pytest.mark.sandbox, pytest.mark.long(11)]

ACCOUNT = "123456789012"
HOME = Home(
    account=ACCOUNT,
    region="us-east-1",
    repository="tests/training",
    bucket=NAME,
    key_arn="arn:aws:kms:us-east-1:123456789012:key/state",
)
PROGRAM = "import pulumi\npulumi.export('answer', pulumi.Config().get_int('answer'))\n"
COMMAND_S = 120


class Engine:
    """Pulumi on a stack whose state is in the bucket."""

    def __init__(self, folder: Path, env: Mapping[str, str], bucket: Bucket) -> None:
        self.folder, self.env, self.bucket = folder, env, bucket
        (folder / "Pulumi.yaml").write_text(f"name: {permissions.PROJECT}\nruntime: python\n")
        (folder / "__main__.py").write_text(PROGRAM)

    def run(self, *arguments: str) -> list[tuple[str, str]]:
        """Run a command that succeeds; return (action, resource) of each of its requests to S3."""
        self.bucket.break_()
        command = ["pulumi", "--non-interactive", *arguments]
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=dict(self.env),
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return sorted({asked(one) for one in self.bucket.seen()})


def asked(seen: Mapping[str, Any]) -> tuple[str, str]:
    """The action and the resource of a request, by IAM's names."""
    method, target = str(seen["request"]).split()[:2]
    path = unquote(urlsplit(target).path).removeprefix(f"/{NAME}").strip("/")
    arn = f"arn:aws:s3:::{NAME}"
    if not path:
        return "s3:ListBucket", arn
    verb = {"GET": "Get", "HEAD": "Get", "PUT": "Put", "DELETE": "Delete"}[method]
    return f"s3:{verb}Object", f"{arn}/{path}"


def refused(requests: list[tuple[str, str]], policy: dict[str, Any]) -> list[tuple[str, str]]:
    """Requests that a role with this policy may not make."""
    return [
        (action, resource)
        for action, resource in requests
        if not allowed(
            Request(action=action, resource=resource, account=ACCOUNT),
            identity=[policy],
            owner=ACCOUNT,
        )
    ]


@pytest.fixture
def engine(tmp_path: Path, bucket: Bucket) -> Engine:
    state = paths.State(tmp_path / "home")
    tools = toolchain.ensure(Console(force_terminal=False), "pulumi", "pulumi-kubernetes")
    environment.install_for_previews(state, tools)
    env = environment.preview_variables(state)
    backend = f"s3://{NAME}?endpoint={bucket.endpoint}&s3ForcePathStyle=true&region=us-east-1"
    folder = tmp_path / "project"
    folder.mkdir()
    return Engine(folder, {**env, "PULUMI_BACKEND_URL": backend}, bucket)


def test_each_role_may_make_the_requests_of_its_commands_and_only_on_its_stack(
    engine: Engine,
) -> None:
    engine.run("stack", "init", "dev")  # by a person with all rights: it writes meta.yaml, once
    writes = engine.run("up", "--stack", "dev", "--yes", "--skip-preview")
    assert any(re.search(r"/locks/.*/dev/", resource) for _, resource in writes)
    assert refused(writes, permissions.state_writer(HOME, "dev")) == []
    assert refused(writes, permissions.state_writer(HOME, "prod"))
    assert refused(writes, permissions.state_reader(HOME, "dev"))
    for reading in (["preview"], ["refresh", "--preview-only"], ["stack", "export"]):
        reads = engine.run(*reading, "--stack", "dev")
        assert reads and refused(reads, permissions.state_reader(HOME, "dev")) == [], reading
    gone = engine.run("destroy", "--stack", "dev", "--yes", "--skip-preview")
    assert refused(gone, permissions.state_writer(HOME, "dev")) == []
