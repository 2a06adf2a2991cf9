"""`stack review --comment`: one comment per stack, on a server that answers as GitHub does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ops import __main__ as front_door
from ops.cluster import ClusterError
from ops.review import comment, github
from ops.review.report import marker
from tests.unit.ops.github_server import BOT, OF_PULL_REQUEST, TOKEN, Server


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """The command for a preview that changes nothing."""
    file = tmp_path / "preview.json"
    config = {"trainyard:aws": '{"region": "us-east-1"}'}
    urn = "urn:pulumi:dev::trainyard::pulumi:pulumi:Stack::trainyard-dev"
    steps = [{"op": "same", "urn": urn, "oldState": {"inputs": {}}, "newState": {"inputs": {}}}]
    file.write_text(json.dumps({"config": config, "steps": steps}))
    return ["stack", "review", "--stack", "dev", "--preview", str(file), "--comment", "12"]


def test_every_push_edits_the_comment_that_the_first_one_made(
    server: Server, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert front_door.main(words) == 0
    assert [one["body"] for one in server.comments] == [capsys.readouterr().out]
    server.comments[0]["body"] = marker("dev") + "\nthe review of the previous push"
    assert front_door.main(words) == 0
    assert [one["body"] for one in server.comments] == [capsys.readouterr().out]
    assert server.calls.count(f"POST {OF_PULL_REQUEST}") == 1


def test_comments_of_others_and_of_other_stacks_are_left_alone(
    server: Server, words: list[str]
) -> None:
    bodies = [
        ("mallory", marker("dev") + "\nnot by the workflow"),
        (None, marker("dev")),
        (BOT, marker("prod") + "\nof prod"),
        (BOT, "quoted:\n" + marker("dev")),
    ]
    for login, body in bodies:
        server.add(login, body)
    assert front_door.main(words) == 0
    assert [one["body"] for one in server.comments[:4]] == [body for _, body in bodies]
    assert len(server.comments) == 5


def test_a_comment_after_the_first_hundred_is_found(server: Server, words: list[str]) -> None:
    for number in range(200):
        server.add("ada", f"remark {number}")
    own = server.add(BOT, marker("dev"))
    assert front_door.main(words) == 0
    assert len(server.comments) == 201 and own["body"] != marker("dev")


def test_outside_of_a_workflow_the_token_names_who_writes(
    server: Server, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GITHUB_ACTIONS")
    own = server.add("ada", marker("dev"))
    assert front_door.main(words) == 0
    assert own["body"].startswith(marker("dev") + "\n**dev**")


def test_a_refusal_is_reported_without_the_token(
    server: Server, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    server.refuses = 403
    assert front_door.main(words) == 2
    said = capsys.readouterr()
    assert "HTTP 403 Resource not accessible by integration" in said.out + said.err
    assert TOKEN not in said.out + said.err


def test_a_redirect_is_refused_since_it_would_get_the_token(
    server: Server, words: list[str]
) -> None:
    server.moved_to = server.url
    assert front_door.main(words) == 2
    assert len(server.calls) == 1


def test_all_missing_variables_are_named_at_once() -> None:
    with pytest.raises(ClusterError) as error:
        github.github({"GITHUB_API_URL": "http://github.example"})
    assert [line.split(":")[0] for line in str(error.value).splitlines()] == [
        "GITHUB_REPOSITORY",
        "GITHUB_TOKEN",
        "GITHUB_API_URL",
    ]


def test_a_text_that_github_would_refuse_is_posted_without_its_longest_details() -> None:
    def folded(name: str, length: int) -> str:
        return f"<details><summary>{name}</summary>{'x' * length}</details>"

    text = "\n".join([marker("dev"), folded("Runs", 70_000), folded("Pools", 10)]) + "\n"
    lines = comment.fitted(text).splitlines()
    assert lines[:3] == [marker("dev"), "Runs", folded("Pools", 10)] and "--json" in lines[3]
    assert comment.fitted("short\n") == "short\n"
