"""Commands of the AWS CLI for one object, carried out on a test's bucket: pages are followed word by word."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

from tests.s3.bucket import NAME, Bucket

ROOT = Path(__file__).resolve().parents[2]


def commands(page: str, heading: str) -> list[str]:
    """The `aws` commands of a section of a page, each on one line."""
    text = (ROOT / page).read_text().partition(f"# {heading}\n")[2]
    section = re.split(r"^#{2,3} ", text, maxsplit=1, flags=re.MULTILINE)[0]
    lines = section.replace("\\\n", " ").splitlines()
    found = [line.strip().partition("  #")[0] for line in lines if line.strip().startswith("aws ")]
    assert found, f"{page}: no aws commands under {heading}"
    return found


def run(bucket: Bucket, command: str, **placeholders: str) -> Any:
    """Carry out one `aws s3api` command; `placeholders` stand in the page for names of the reader's."""
    for name, value in placeholders.items():
        command = command.replace(name, value)
    _, service, operation, *options = shlex.split(command)
    assert service == "s3api" and len(options) % 2 == 0, command
    pairs = zip(options[::2], options[1::2], strict=True)
    arguments = {_member(name): value for name, value in pairs}
    call = getattr(bucket.connection.client(), operation.replace("-", "_"))
    return call(**arguments)


def keep_versions(bucket: Bucket) -> None:
    """Version the bucket, as the project's buckets are."""
    configuration = {"Status": "Enabled"}
    bucket.connection.client().put_bucket_versioning(
        Bucket=NAME, VersioningConfiguration=configuration
    )


def _member(option: str) -> str:
    """`--copy-source` is CopySource."""
    return "".join(part.capitalize() for part in option.removeprefix("--").split("-"))
