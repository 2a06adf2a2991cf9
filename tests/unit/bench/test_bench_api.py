"""Which answers of the API server to a create are retried."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from bench import api
from bench.api import Api, ApiError

JOB = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a", "namespace": "team-a"}}
KINDS = {"resources": [{"name": "jobs", "kind": "Job", "namespaced": True}]}


def status(code: int, reason: str) -> SimpleNamespace:
    return SimpleNamespace(status=code, data=json.dumps({"reason": reason}).encode())


def created(monkeypatch: pytest.MonkeyPatch, *answers: SimpleNamespace) -> int:
    """The number of requests to create an object that the server answers so."""
    left, posts = list(answers), []

    def request(method: str, url: str, **_: Any) -> SimpleNamespace:
        if method == "GET":
            return SimpleNamespace(status=200, data=json.dumps(KINDS).encode())
        posts.append(url)
        return left.pop(0)

    monkeypatch.setattr(api, "_RETRY_S", 0.0)
    one = Api.__new__(Api)
    one.__dict__.update(
        _pool=SimpleNamespace(request=request), _server="http://server", _as={}, _plurals={}
    )
    one.create(JOB)
    return len(posts)


def test_a_create_is_repeated_when_the_quota_was_counted_by_others_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert created(monkeypatch, status(409, "Conflict"), status(201, "")) == 2


def test_an_object_that_is_there_is_not_created_again(monkeypatch: pytest.MonkeyPatch) -> None:
    assert created(monkeypatch, status(409, "AlreadyExists")) == 1


def test_a_refused_object_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ApiError, match="HTTP 403"):
        created(monkeypatch, status(403, "Forbidden"))
