"""docs/recover.md, "Lost state": a deleted or overwritten state comes back from the versions of its object."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from tests.s3 import aws_cli
from tests.s3.bucket import NAME, Bucket
from tests.sandbox.test_state_rights import Engine, engine

__all__ = ["engine"]
pytestmark = [pytest.mark.sandbox, pytest.mark.long(27)]

KEY = ".pulumi/stacks/trainyard/dev.json"
OF_THE_PAGE = {"acme-trainyard-state": NAME}
PROGRAM = "import pulumi\n\npulumi.Stash('kept', input=1)\npulumi.export('answer', {answer})\n"


def fails(engine: Engine, *arguments: str) -> str:
    """What a command prints that must fail."""
    command = ["pulumi", "--non-interactive", *arguments]
    done = subprocess.run(
        command,
        cwd=engine.folder,
        env=dict(engine.env),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode != 0, done.stdout
    return done.stdout + done.stderr


def restore(bucket: Bucket, index: int) -> None:
    """Follow the page: list the versions of the object, newest first, and copy one over it."""
    listing, copying = aws_cli.commands("docs/recover.md", "Lost state")
    found: list[Any] = aws_cli.run(bucket, listing, **OF_THE_PAGE)["Versions"]
    mine = [one["VersionId"] for one in found if one["Key"] == KEY]
    aws_cli.run(bucket, copying, **OF_THE_PAGE, VERSION=mine[index])


def test_a_deleted_and_an_overwritten_state_are_restored_from_their_versions(
    engine: Engine, bucket: Bucket
) -> None:
    aws_cli.keep_versions(bucket)
    engine.run("stack", "init", "dev")
    for answer in (1, 2):
        (engine.folder / "__main__.py").write_text(PROGRAM.format(answer=answer))
        engine.run("up", "--stack", "dev", "--yes", "--skip-preview")
    client = bucket.connection.client()
    client.delete_object(Bucket=NAME, Key=KEY)
    assert "no stack named 'dev' found" in fails(engine, "preview", "--stack", "dev")
    restore(bucket, 0)
    engine.run("preview", "--stack", "dev", "--expect-no-changes")
    client.put_object(Bucket=NAME, Key=KEY, Body=b"not a state")
    fails(engine, "preview", "--stack", "dev")
    restore(bucket, 1)
    engine.run("preview", "--stack", "dev", "--expect-no-changes")
    engine.run("up", "--stack", "dev", "--yes", "--skip-preview", "--expect-no-changes")
