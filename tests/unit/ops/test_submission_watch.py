"""`trainyard run submit --watch`: what it reports, and when it ends, without a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from infra.domain import naming
from ops.cluster import Cluster, ClusterError, Kind, UnreachableError
from ops.objects import Json
from ops.submission import watch

RUN: Json = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "llama-v1-01234567", "namespace": "team-research"},
    "status": {},
}
Answer = tuple[Json | None, list[Json]] | UnreachableError


class ScriptedCluster:
    """Gives one answer, the run and its pods, per look."""

    def __init__(self, *answers: Answer) -> None:
        self._answers: Iterator[Answer] = iter(answers)
        self._pods: list[Json] = []

    def get(self, kind: Kind, name: str, namespace: str) -> Json | None:
        assert (kind.plural, name, namespace) == ("jobs", "llama-v1-01234567", "team-research")
        answer = next(self._answers)
        if isinstance(answer, UnreachableError):
            raise answer
        run, self._pods = answer
        return run

    def items(self, kind: Kind, namespace: str, selector: str) -> list[Json]:
        assert (namespace, selector) == ("team-research", f"{naming.RUN_ID}=llama-v1-01234567")
        return self._pods


def pods(*phases: str) -> list[Json]:
    return [{"status": {"phase": phase}} for phase in phases]


def ended(condition: str, message: str = "") -> Json:
    found = {"type": condition, "status": "True", "message": message}
    return RUN | {"status": {"conditions": [found]}}


def watched(*answers: Answer, sleep: Callable[[float], None] = lambda _: None) -> tuple[Any, Any]:
    said: list[str] = []
    cluster = cast(Cluster, ScriptedCluster(*answers))
    return watch.until_ended(cluster, RUN, said.append, sleep), said


def test_each_change_is_reported_once_until_the_run_has_ended() -> None:
    waits: list[float] = []
    run, said = watched(
        (RUN, []),
        (RUN, []),
        (RUN, pods("Running", "Pending")),
        (RUN, pods("Running", "Running")),
        (ended("Complete"), pods("Succeeded", "Succeeded")),
        sleep=waits.append,
    )
    assert said == [
        "llama-v1-01234567: queued",
        "llama-v1-01234567: 1 pods Pending, 1 pods Running",
        "llama-v1-01234567: 2 pods Running",
        "llama-v1-01234567: done",
    ]
    assert run == ended("Complete") and waits == [watch.POLL_S] * 4


def test_a_failed_run_ends_with_its_reason() -> None:
    _, said = watched((ended("Failed", "backoff limit reached"), pods("Failed")))
    assert said == ["llama-v1-01234567: failed: backoff limit reached"]


def test_a_deleted_run_ends_with_the_next_step() -> None:
    with pytest.raises(ClusterError, match="was stopped or deleted; trainyard run resume llama-v1"):
        watched((RUN, pods("Running")), (None, []))


def test_a_lost_connection_is_waited_out() -> None:
    gone = UnreachableError("no answer")
    run, said = watched((RUN, []), gone, gone, (ended("Complete"), []))
    assert run == ended("Complete") and said[-1].endswith("done") and len(said) == 2


def test_an_api_server_that_stays_away_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("ops.submission.watch.time.monotonic", lambda: clock[0])

    def sleep(_: float) -> None:
        clock[0] += watch.UNREACHABLE_S

    with pytest.raises(UnreachableError):
        watched(*[UnreachableError("no answer")] * 3, sleep=sleep)
