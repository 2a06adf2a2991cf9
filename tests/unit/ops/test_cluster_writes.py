"""Writes to an API server that is busy counting quotas."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ops import cluster as module
from ops.cluster import Cluster, ConflictError, Kind, QuotaBusyError

KIND = Kind("v1", "configmaps", "ConfigMap")
OBJECT = {"metadata": {"name": "a", "namespace": "team-research"}}
BUSY = 'Operation cannot be fulfilled on resourcequotas "training": the object has been modified'


class Answering(Cluster):
    """An API server that gives these answers, one to each request."""

    def __init__(self, *answers: tuple[int, str]) -> None:
        self.answers = list(answers)

    def _send(self, *_: Any) -> tuple[int, Any]:
        status, message = self.answers.pop(0)
        return status, json.dumps({"message": message})


def test_a_creation_is_repeated_until_the_quota_has_counted_it() -> None:
    server = Answering((409, BUSY), (409, BUSY), (201, "made"))
    assert server.create(KIND, OBJECT)["message"] == "made" and not server.answers


def test_it_gives_up_in_the_end_and_does_not_say_that_the_object_exists(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "TIMEOUT_S", 0.0)
    with pytest.raises(QuotaBusyError, match="resourcequotas") as failed:
        Answering((409, BUSY)).create(KIND, OBJECT)
    assert not isinstance(failed.value, ConflictError)


def test_an_object_that_exists_is_a_conflict_at_once() -> None:
    with pytest.raises(ConflictError, match="already exists"):
        Answering((409, 'configmaps "a" already exists')).create(KIND, OBJECT)
