"""A bucket of moto's in a process of its own, and the faults on the way to it."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

import pytest

from trainyard.objects import Objects, RetryPolicy
from trainyard.objects.connection import Connection

QUICK = RetryPolicy(total_s=30.0, first_s=0.001, longest_s=0.02, answer_s=5.0)
"""For tests: as patient as the real one, but with pauses of milliseconds."""


Kind = Literal[
    "503", "500 after", "reset", "reset after", "slow", "expired", "denied", "hold",
    "hold after", "truncate", "flip",
]  # fmt: skip
"""`after`: the request was served, only the answer is lost. `hold`: no answer at all."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What becomes of the requests that `match` finds, in `METHOD PATH?QUERY key=ACCESSKEY`."""

    kind: Kind
    match: str = "."
    share: float = 1.0
    """Of the requests that match, chosen by the seed."""
    skip: int = 0
    """So many that match pass before the first one is broken."""
    times: int = 10**9
    """At most so many are broken."""
    seconds: float = 0.0
    """How slow."""


NAME: Final = "bucket"


@dataclass(frozen=True)
class Bucket:
    """A bucket, and what tests ask of the way to it."""

    endpoint: str
    connection: Connection
    name: str = NAME

    def url(self, prefix: str) -> str:
        """s3://BUCKET/PREFIX"""
        return f"s3://{self.name}/{prefix}"

    def objects(
        self, prefix: str, patience: RetryPolicy = QUICK, *, own_connection: bool = False
    ) -> Objects:
        """The objects of a prefix, over this process's connection (making one takes 0.2 s)."""
        objects = Objects.at(self.url(prefix), patience, seed=0)
        if own_connection:
            return objects
        return dataclasses.replace(objects, connection=self.connection)

    def break_(self, *faults: Fault, seed: int = 0) -> None:
        """From now on; forgets what was seen, and lets go of what was held."""
        plan = {"seed": seed, "rules": [dataclasses.asdict(fault) for fault in faults]}
        self._own("faults", json.dumps(plan).encode())

    def seen(self) -> list[dict[str, Any]]:
        """Every request since the last `break_`: request, fault, status (0: not answered)."""
        found: list[dict[str, Any]] = json.loads(self._own("seen", b""))
        return found

    def _own(self, path: str, body: bytes) -> bytes:
        request = urllib.request.Request(f"{self.endpoint}/_{path}", body, method="POST")
        with urllib.request.urlopen(request, timeout=60) as answer:
            content: bytes = answer.read()
        return content


@contextlib.contextmanager
def serve() -> Iterator[Bucket]:
    """Start the server and make the bucket; the server ends with the context."""
    argv = [sys.executable, "-W", "ignore", "-m", "tests.s3.server"]
    server = subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # moto logs every request
        text=True,
        env={**os.environ, "S3_UPLOAD_PART_MIN_SIZE": "1"},
    )
    assert server.stdout is not None and server.stdin is not None
    try:
        endpoint = f"http://127.0.0.1:{server.stdout.readline().strip()}"
        with environment(endpoint):
            connection = Connection(answer_s=QUICK.answer_s, connections=16)
            connection.client().create_bucket(Bucket=NAME)
        yield Bucket(endpoint, connection)
    finally:
        server.stdin.close()
        server.wait(timeout=30)


@contextlib.contextmanager
def environment(endpoint: str) -> Iterator[None]:
    """This process and its children find S3 there, and no other credentials."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        patch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
        patch.setenv("AWS_REGION", "us-east-1")
        patch.setenv("AWS_ACCESS_KEY_ID", "tests")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "tests")
        yield
