"""A run that `run stop` has stopped is still a run for every command, until it is deleted."""

from __future__ import annotations

import json
from typing import Any

import pytest

from infra.domain import naming
from ops import collect
from ops.cluster import Kind
from ops.objects import Json
from ops.runs import following
from ops.runs.states import Cause
from tests.unit.ops.conftest import Cli
from tests.unit.ops.test_submission_mistakes import HELLO, Cluster, published
from trainyard.contract import EXIT_PREEMPTED


class Stoppable(Cluster):
    """Carries out changes of labels, and knows when they were made."""

    def patch(self, kind: Kind, name: str, change: Any, namespace: str = "") -> None:
        for one in self._items.get(kind.plural, []):
            if one["metadata"]["name"] == name:
                labels = one["metadata"].setdefault("labels", {})
                labels |= change["metadata"].get("labels") or {}
                for key in [key for key, value in labels.items() if value is None]:
                    del labels[key]
                one["metadata"]["managedFields"] = [{"time": "2026-11-21T11:00:00Z"}]


@pytest.fixture
def stopped(cli: Cli) -> Stoppable:
    cluster = Stoppable(None, **published()._items)
    assert cli(cluster, "run", "submit", HELLO) == 0
    assert cli(cluster, "run", "stop", "hello") == 0
    assert "trainyard run resume" in cli.out
    return cluster


def listed(cli: Cli, cluster: Cluster) -> list[Json]:
    assert cli(cluster, "run", "list", "--json", "--state", "stopped") == 0
    found: list[Json] = json.loads(cli.out)["runs"]
    return found


def test_it_is_listed_until_it_is_resumed(cli: Cli, stopped: Stoppable) -> None:
    [one] = listed(cli, stopped)
    assert (one["name"], one["state"], one["team"], one["kind"]) == (
        *("hello", "stopped", "research"),
        "JobSet",
    )
    assert one["ended"] == "2026-11-21T11:00:00Z" and "run resume" in one["message"]
    assert cli(stopped, "run", "resume", "hello") == 0
    assert listed(cli, stopped) == []


def test_it_is_shown_explained_and_waited_for(
    monkeypatch: pytest.MonkeyPatch, cli: Cli, stopped: Stoppable
) -> None:
    monkeypatch.setattr(following, "POLL_S", 0)
    assert cli(stopped, "run", "show", "hello") == 0
    assert "config.steps" in cli.out
    assert cli(stopped, "run", "why", "hello", "--json") == 0
    assert json.loads(cli.out)["symptom"] == "stopped"
    assert cli(stopped, "run", "wait", "hello") == EXIT_PREEMPTED
    assert cli(stopped, "run", "clone", "hello", "--render") == 0
    assert "name: hello-v2-" in cli.out


def test_a_command_that_follows_it_meanwhile_sees_it_stopped(stopped: Stoppable) -> None:
    [left] = collect.list_runs(stopped)  # type: ignore[arg-type]
    before = {**left, "status": {}, "metadata": left["metadata"] | {"uid": "before"}}
    ending = collect.read_run(stopped, before).ending  # type: ignore[arg-type]
    assert ending is not None and ending.cause is Cause.USER


@pytest.mark.parametrize(
    "words", [("stop",), ("extend", "--steps", "500"), ("adopt", "--stack", "local")]
)
def test_what_needs_its_object_says_how_to_get_it_back(
    cli: Cli, stopped: Stoppable, words: tuple[str, ...]
) -> None:
    name, *options = words
    assert cli(stopped, "run", name, "hello", *options) == 2
    error = cli.err
    assert "is stopped" in error and "trainyard run resume hello-v1" in error
    assert len(error.splitlines()) == 1


def test_files_that_are_not_a_runs_are_no_run(stopped: Stoppable) -> None:
    [files] = [
        one for one in stopped._items["configmaps"] if naming.STOPPED in one["metadata"]["labels"]
    ]
    files["metadata"]["annotations"][naming.RUN_MANIFEST] = "{"
    assert collect.list_runs(stopped) == []  # type: ignore[arg-type]
