"""`stack drift`: what differs from the recorded state, who changed it, and the stack's one issue on GitHub."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ops import __main__ as front_door
from ops.review import drift
from ops.review.managers import Manager, Writer, last_writer, parse_path
from tests.unit.ops.github_server import BOT, Server

Json = dict[str, Any]
SECRET = "hunter2"


def urn(kind: str, name: str, stack: str = "dev") -> str:
    return f"urn:pulumi:{stack}::trainyard::trainyard:infra:Team${kind}::{name}"


def written(manager: str, fields: Json, at: str = "2026-11-02T10:00:00Z", **more: str) -> Json:
    return {"manager": manager, "time": at, "fieldsV1": fields, **more}


def changed(kind: str, name: str, path: str, old: Any, new: Any, *managers: Json) -> Json:
    """A step that changes one input two levels deep: `spec.x`."""
    first, second = path.split(".")
    live = {first: {second: new}, "metadata": {"managedFields": list(managers)}}
    return {
        "op": "update",
        "urn": urn(kind, name),
        "old": {"inputs": {first: {second: old}}},
        "new": {"inputs": {first: {second: new}}, "outputs": live},
        "detailedDiff": {path: {"diffKind": "update", "inputDiff": True}},
    }


QUEUE = "kubernetes:kueue.x-k8s.io/v1beta2:ClusterQueue"
OF_SPEC: Json = {"f:spec": {"f:stopPolicy": {}}}
OURS = written("pulumi-kubernetes-1", {"f:spec": {"f:cohortName": {}}}, "2026-11-03T10:00:00Z")


def refresh(*steps: Json) -> str:
    """The event log: every resource is announced, and then has its outcome."""
    same = {"op": "same", "urn": urn("kubernetes:core/v1:Namespace", "as-recorded")}
    before = [
        {"resourcePreEvent": {"metadata": {**one, "op": "refresh"}}} for one in (same, *steps)
    ]
    after = [{"resOutputsEvent": {"metadata": one}} for one in (same, *steps)]
    return "\n".join(json.dumps(one) for one in [{"preludeEvent": {}}, *before, *after])


def difference(step: Json) -> drift.Difference:
    (found,) = drift.parse(refresh(step), "events.json", "dev").differences
    return found


@pytest.mark.parametrize(
    ("manager", "writer"),
    [
        ("kubectl-patch", Writer.PERSON),
        ("kubectl-client-side-apply", Writer.PERSON),
        ("trainyard-ops", Writer.PERSON),
        ("pulumi-kubernetes-72d27f95", Writer.PROGRAM),
        ("kube-controller-manager", Writer.CONTROLLER),
        ("kueue-job-controller", Writer.CONTROLLER),
        ("somebody's script", Writer.UNKNOWN),
    ],
)
def test_a_changed_field_is_attributed_to_who_wrote_it(manager: str, writer: Writer) -> None:
    step = changed(
        QUEUE, "research", "spec.stopPolicy", "None", "Hold", OURS, written(manager, OF_SPEC)
    )
    found = difference(step)
    assert (found.resource, found.field) == ("ClusterQueue research", "spec.stopPolicy")
    assert (found.recorded, found.now) == ("None", "Hold")
    assert found.by == Manager(name=manager, at="2026-11-02T10:00:00Z") and found.writer is writer


def test_the_latest_of_several_writers_counts_and_writers_of_other_fields_do_not() -> None:
    step = changed(
        QUEUE,
        "research",
        "spec.stopPolicy",
        "None",
        "Hold",
        written("pulumi-kubernetes-1", OF_SPEC, "2026-11-01T10:00:00Z"),
        written("kubectl-edit", OF_SPEC, "2026-11-02T10:00:00Z"),
        OURS,
    )
    assert difference(step).writer is Writer.PERSON


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ('metadata.labels["a.b/c"]', {"f:metadata": {"f:labels": {"f:a.b/c": {}}}}),
        ("rules[1].verbs", {"f:rules": {}}),
        (
            "containers[1].image",
            {"f:containers": {'k:{"name":"b"}': {".": {}, "f:image": {}}}},
        ),
        ("finalizers[0]", {"f:finalizers": {'v:"keep"': {}}}),
    ],
)
def test_fields_in_lists_and_with_dots_in_their_names_have_a_writer(
    path: str, fields: Json
) -> None:
    other: Json = {"f:containers": {'k:{"name":"a"}': {"f:image": {}}}}
    live = {
        "metadata": {
            "managedFields": [written("kubectl-edit", fields), written("kueue", other)],
            "labels": {"a.b/c": "x"},
        },
        "rules": [{}, {"verbs": []}],
        "containers": [{"name": "a"}, {"name": "b", "image": "x"}],
        "finalizers": ["keep"],
    }
    found = last_writer(live, parse_path(path))
    assert found and found.name == "kubectl-edit"


def test_a_write_of_the_status_is_not_one_of_the_field() -> None:
    live = {"metadata": {"managedFields": [written("kueue", OF_SPEC, subresource="status")]}}
    assert last_writer(live, ("spec", "stopPolicy")) is None


def test_deleted_resources_are_named_and_values_of_secrets_are_not() -> None:
    gone = {"op": "delete", "urn": urn("kubernetes:networking.k8s.io/v1:NetworkPolicy", "dns")}
    secret = changed("kubernetes:core/v1:Secret", "key", "data.token", SECRET, SECRET + "2")
    text = drift.text(drift.parse(refresh(gone, secret), "events.json", "dev"))
    assert "| NetworkPolicy dns | - | - | deleted | unknown |" in text
    assert SECRET not in text and f"| {drift.HIDDEN} | {drift.HIDDEN} |" in text


def test_what_only_the_server_writes_is_no_drift() -> None:
    step = {
        "op": "update",
        "urn": urn(QUEUE, "research"),
        "old": {"inputs": {"spec": 1}, "outputs": {"spec": 1, "status": "a"}},
        "new": {"inputs": {"spec": 1}, "outputs": {"spec": 1, "status": "b"}},
        "detailedDiff": None,
    }
    assert drift.parse(refresh(step), "events.json", "dev").differences == ()


SUBJECT: Json = {"kind": "Group", "name": "team"}
BINDING: Json = {"subjects": [SUBJECT], "labels": {"a": "b"}, "selector": {}}
"""The inputs of an object."""


@pytest.mark.parametrize("recorded", [False, True], ids=["new", "recorded by a refresh"])
@pytest.mark.parametrize(
    ("manager", "fields", "now", "added"),
    [
        (
            "kubectl-patch",
            {"f:subjects": {}},
            {"subjects": [SUBJECT, {"name": "me"}]},
            'subjects: [{"kind": "Group", "name": "team"}] -> [{"name": "me"}]',
        ),
        ("edit.py", {"f:selector": {}}, {"selector": {"x": "y"}}, 'selector: {} -> {"x": "y"}'),
        ("kubectl-edit", {"f:data": {"f:k": {}}}, {"data": {"k": "v"}}, "data.k: - -> v"),
        (
            "kubectl-edit",
            {"f:ports": {'k:{"port":2}': {"f:port": {}}}},
            {"ports": [{"port": 1}, {"port": 2}]},
            "ports[1].port: - -> 2",
        ),
        ("kubectl-edit", {"f:labels": {"f:a": {}}}, {}, None),
        ("kubectl-edit", {"f:subjects": {}}, {"subjects": [{**SUBJECT, "apiGroup": "x"}]}, None),
        ("kubectl-label", {"f:metadata": {"f:labels": {"f:x": {}}}}, {}, None),
        ("kueue", {"f:spec": {"f:suspend": {}}}, {"spec": {"suspend": True}}, None),
    ],
)
def test_what_somebody_added_beside_the_inputs_is_named_until_it_is_removed(
    manager: str, fields: Json, now: Json, added: str | None, recorded: bool
) -> None:
    live = {**BINDING, **now, "metadata": {"managedFields": [written(manager, fields)]}}
    live["metadata"]["labels"] = {"x": "y"}
    before = live if recorded else BINDING
    step = {
        "op": "same",
        "urn": urn("kubernetes:rbac.authorization.k8s.io/v1:RoleBinding", "team"),
        "old": {"inputs": BINDING, "outputs": before},
        "new": {"inputs": BINDING, "outputs": live},
        "detailedDiff": {},
    }
    found = drift.parse(refresh(step), "events.json", "dev")
    said = [drift.line(one) for one in found.differences]
    assert [one.split(" ", 2)[2].rpartition(" (")[0] for one in said] == [added] * bool(added)
    assert ("no update removes it" in drift.text(found)) == bool(added)


def test_what_the_creator_of_an_adopted_object_gave_it_is_not_an_addition() -> None:
    entry = written("trainyard", {"f:spec": {"f:default": {}}}, operation="Update")
    meta = {"managedFields": [entry], "creationTimestamp": entry["time"]}
    live = {"spec": {"default": 1}, "metadata": meta}
    step = {"op": "same", "urn": urn("kubernetes:batch/v1:Job", "run"), "new": {"outputs": live}}
    assert drift.parse(refresh(step), "events.json", "dev").differences == ()


def test_a_long_drift_is_at_most_30_lines_and_hides_no_markup() -> None:
    steps = [
        changed(QUEUE, f"q{n}", "spec.x", "a|b", f"<img src=x> @everyone {n}") for n in range(40)
    ]
    text = drift.text(drift.parse(refresh(*steps), "events.json", "dev"))
    assert len(text.splitlines()) <= 30 and "25 more" in text
    assert "<img" not in text and "@everyone" not in text and "a\\|b" in text


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ("not JSON", "FILE: "),
        ("[]", "FILE: "),
        ('{"preludeEvent": {}}', "FILE: has no resources"),
        ('{"resOutputsEvent": {}}', "FILE: not the event log"),
        (refresh().replace("urn:pulumi:dev", "urn:pulumi:prod"), "FILE: is a refresh of prod"),
        (
            json.dumps({"diagnosticEvent": {"severity": "error", "message": "no cluster"}}),
            "FILE: failed: no cluster",
        ),
    ],
)
def test_another_file_is_refused_in_one_line(
    content: str, place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "events.json"
    file.write_text(content)
    assert front_door.main(["stack", "drift", "--stack", "dev", "--events", str(file)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.removeprefix("error: ").replace(str(file), "FILE").startswith(place)


@pytest.fixture
def command(tmp_path: Path) -> tuple[list[str], Path]:
    """The command of the workflow, and the file that it reads."""
    file = tmp_path / "events.json"
    return ["stack", "drift", "--stack", "dev", "--events", str(file), "--issue"], file


def test_one_issue_is_opened_edited_and_closed(
    server: Server, command: tuple[list[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    words, file = command
    server.add_issue("mallory", "Drift of dev", drift.marker("dev"))
    server.add_issue(BOT, "Drift of prod", drift.marker("prod"))
    for now in ("Hold", "HoldAndDrain"):
        file.write_text(refresh(changed(QUEUE, "research", "spec.stopPolicy", "None", now)))
        assert front_door.main(words) == 1
        said = capsys.readouterr().out
        assert [one["title"] for one in server.issues[2:]] == ["Drift of dev"]
        assert server.issues[2]["body"].strip() == said.strip() and now in said
    edits = server.calls.count("PATCH /repos/acme/trainyard/issues/3")
    assert front_door.main(words) == 1
    assert server.calls.count("PATCH /repos/acme/trainyard/issues/3") == edits
    file.write_text(refresh())
    assert front_door.main(words) == 0
    assert [one["state"] for one in server.issues] == ["open", "open", "closed"]
    assert len(server.issues[2]["said"]) == 1


def test_nothing_is_opened_without_drift(
    server: Server, command: tuple[list[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    words, file = command
    file.write_text(refresh())
    assert front_door.main(words) == 0
    assert server.issues == [] and "as recorded" in capsys.readouterr().out


def test_json_has_every_difference(
    command: tuple[list[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    words, file = command
    steps = [changed(QUEUE, f"q{n}", "spec.x", "a", "b") for n in range(40)]
    file.write_text(refresh(*steps))
    assert front_door.main([*words[:-1], "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["resources"] == 41 and len(found["differences"]) == 40
    assert set(found["differences"][0]) == {
        *("resource", "kind", "field", "recorded", "now", "by", "at", "writer")
    }
