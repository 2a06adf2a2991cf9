"""The protocol's side of the provider: what it answers without reading the values."""

from __future__ import annotations

from typing import Any

import pytest
from pulumi.runtime.proto import provider_pb2

from sandbox.provider.objects import REPLACE_UNREADY
from sandbox.provider.properties import encode
from sandbox.provider.server import Provider
from sandbox.provider.session import Session
from tests.unit.provider.fake_cluster import FakeCluster, Log

URN = "urn:pulumi:test::project::kubernetes:batch/v1:Job::job"
JOB = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "job"}, "spec": {"a": [1]}}


class Asked(Session):
    """A session that counts how often it compares."""

    times = 0

    def diff(self, *arguments: Any, **more: Any) -> Any:
        self.times += 1
        return super().diff(*arguments, **more)


@pytest.fixture
def provider() -> Provider:
    made = Provider("127.0.0.1:1")
    made._session = Asked(FakeCluster(), Log())  # type: ignore[arg-type]
    return made


def diff(provider: Provider, old: dict[str, Any], new: dict[str, Any]) -> tuple[int, int]:
    """The answer, and how often the values were compared."""
    request = provider_pb2.DiffRequest(
        urn=URN, olds=encode({**old, "__inputs": old}), old_inputs=encode(old), news=encode(new)
    )
    answer = provider.Diff(request, None)
    asked = provider._session
    assert isinstance(asked, Asked)
    return answer.changes, asked.times


def test_equal_inputs_are_no_change_whatever_their_order(provider: Provider) -> None:
    turned = dict(reversed(list(JOB.items())))
    assert diff(provider, JOB, turned) == (provider_pb2.DiffResponse.DIFF_NONE, 0)


def test_other_inputs_are_compared(provider: Provider) -> None:
    changed = {**JOB, "spec": {"a": [2]}}
    assert diff(provider, JOB, changed) == (provider_pb2.DiffResponse.DIFF_SOME, 1)


def test_a_job_that_is_replaced_while_unready_is_compared_with_the_live_one(
    provider: Provider,
) -> None:
    marked = {**JOB, "metadata": {"name": "job", "annotations": {REPLACE_UNREADY: "true"}}}
    assert diff(provider, marked, marked)[1] == 1
