"""A name that several teams have given is refused with the list; nothing is changed, and deletion is confirmed."""

from __future__ import annotations

import argparse
import dataclasses
import io

import pytest

from infra.domain import naming
from ops import collect, commands
from ops.cluster import ClusterError
from ops.ledger import command as ledger
from ops.ledger import observe
from ops.ledger.model import Wait
from ops.names import AmbiguousNameError
from ops.objects import Json
from ops.submission import command
from ops.sweep import store
from ops.sweep.store import StoredSweep
from tests.unit.ops.conftest import Cli
from tests.unit.ops.run_fixtures import RUN_ID, at, condition, run
from tests.unit.ops.test_ops_commands import stack
from tests.unit.ops.test_stopped_runs import Stoppable
from tests.unit.ops.test_submission_mistakes import published
from tests.unit.ops.test_sweep import sweep

THEIRS = "hello-v2-bbbbbbbb"


def other(run_id: str = THEIRS, version: str = "2") -> Json:
    """A newer run `hello` of another team."""
    found = run()
    labels = {naming.RUN_ID: run_id, naming.TEAM: "vision", naming.RUN_VERSION: version}
    found["metadata"] |= {
        **{"name": run_id, "namespace": "team-vision", "uid": "other", "creationTimestamp": at(1)},
        "labels": found["metadata"]["labels"] | labels,
    }
    return found


class Recording(Stoppable):
    """Notes every change."""

    changes: int = 0

    def create(self, *args: object, **options: object) -> Json:
        self.changes += 1
        return {"status": {"userInfo": {"username": "ada@example.com"}}}

    def delete(self, *args: object, **options: object) -> None:
        self.changes += 1

    def patch(self, *args: object, **options: object) -> None:
        self.changes += 1


@pytest.mark.parametrize(
    "words",
    [
        ("stop", "hello"),
        ("stop", "hello", "--delete", "--yes"),
        ("clone", "hello"),
        ("extend", "hello", "--steps", "9"),
        ("adopt", "hello", "--stack", "local"),
        ("why", "hello"),
        ("show", "hello"),
        ("logs", "hello"),
        ("wait", "hello"),
        ("fetch", "hello"),
        ("compare", "hello", RUN_ID),
    ],
)
def test_a_name_of_several_teams_is_refused_with_the_list(cli: Cli, words: tuple[str, ...]) -> None:
    cluster = Recording(None, **stack(other())._items)
    assert cli(cluster, "run", *words) == 2
    error = cli.err
    assert f"{THEIRS} in team-vision, {RUN_ID} in team-research" in error
    assert "pass --team, or the whole id" in error and len(error.splitlines()) == 1
    assert cluster.changes == 0


def test_the_team_or_the_whole_id_selects_one() -> None:
    both = stack(other())
    everywhere = collect.list_runs(both)  # type: ignore[arg-type]
    assert collect.find_run(everywhere, RUN_ID)["metadata"]["namespace"] == "team-research"
    ours = collect.list_runs(both, "team-research")  # type: ignore[arg-type]
    assert collect.find_run(ours, "hello")["metadata"]["name"] == RUN_ID


def test_equal_ids_of_two_teams_need_the_team() -> None:
    with pytest.raises(AmbiguousNameError, match=r"pass --team$"):
        collect.find_run([run(), other(RUN_ID)], RUN_ID)


def test_resume_refuses_a_name_of_several_teams() -> None:
    with pytest.raises(AmbiguousNameError, match=f"{THEIRS} in team-vision"):
        collect.find_stopped([other(), run()], "hello")


def test_a_sweep_of_several_teams_is_refused() -> None:
    ours = StoredSweep(state=sweep(), resource_version="1")
    newer = dataclasses.replace(ours, state=sweep(sweep="lr-v2"))
    theirs = dataclasses.replace(ours, state=sweep(team="vision"))
    assert store.find_sweep([ours, newer], "lr") == newer
    with pytest.raises(AmbiguousNameError, match="lr-v1 in team-research, lr-v1 in team-vision"):
        store.find_sweep([ours, theirs], "lr")


def test_the_cost_of_a_name_of_several_teams_is_refused() -> None:
    facts = [
        Wait(run=RUN_ID, team="research", start=1.0),
        Wait(run="hello-v0-00000000", team="research", start=0.0),
        Wait(run=THEIRS, team="vision", start=2.0),
    ]
    sight = observe.look(stack(), None, 3.0)  # type: ignore[arg-type]
    assert ledger._find("hello", facts[:2], sight) == RUN_ID
    with pytest.raises(AmbiguousNameError, match=f"{THEIRS} in team-vision"):
        ledger._find("hello", facts, sight)


def test_another_teams_versions_do_not_count_for_a_clone() -> None:
    assert command.next_version([other(version="7"), run()], run()) == 1


@pytest.mark.parametrize(("answer", "terminal"), [("n\n", True), ("\n", True), ("", False)])
def test_nothing_is_deleted_without_an_answer(
    monkeypatch: pytest.MonkeyPatch, cli: Cli, answer: str, terminal: bool
) -> None:
    stdin = io.StringIO(answer)
    monkeypatch.setattr(stdin, "isatty", lambda: terminal)
    monkeypatch.setattr("sys.stdin", stdin)
    over = run(status={"conditions": [condition("Completed")]})
    cluster = Recording(None, **published()._items | {"jobsets": [over]})
    assert cli(cluster, "run", "stop", "hello", "--delete") == 2
    assert "not confirmed" in cli.err and cluster.changes == 0


def test_yes_is_asked_for_and_given(monkeypatch: pytest.MonkeyPatch) -> None:
    stdin = io.StringIO("y\n")
    monkeypatch.setattr(stdin, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdin", stdin)
    commands.confirm(argparse.Namespace(yes=False), "run hello: delete it")
    with pytest.raises(ClusterError, match="not confirmed"):
        commands.confirm(argparse.Namespace(yes=False), "run hello: delete it")
