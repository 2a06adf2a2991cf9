"""`stack drift`: what differs from the recorded state."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ops import __main__ as front_door
from ops.review import drift

Json = dict[str, Any]
SECRET = "hunter2"


def urn(kind: str, name: str, stack: str = "dev") -> str:
    return f"urn:pulumi:{stack}::trainyard::trainyard:infra:Team${kind}::{name}"


def changed(kind: str, name: str, path: str, old: Any, new: Any) -> Json:
    """A step that changes one input two levels deep: `spec.x`."""
    first, second = path.split(".")
    return {
        "op": "update",
        "urn": urn(kind, name),
        "old": {"inputs": {first: {second: old}}},
        "new": {"inputs": {first: {second: new}}},
        "detailedDiff": {path: {"diffKind": "update", "inputDiff": True}},
    }


QUEUE = "kubernetes:kueue.x-k8s.io/v1beta2:ClusterQueue"


def refresh(*steps: Json) -> str:
    """The event log: every resource is announced, and then has its outcome."""
    same = {"op": "same", "urn": urn("kubernetes:core/v1:Namespace", "as-recorded")}
    before = [
        {"resourcePreEvent": {"metadata": {**one, "op": "refresh"}}} for one in (same, *steps)
    ]
    after = [{"resOutputsEvent": {"metadata": one}} for one in (same, *steps)]
    return "\n".join(json.dumps(one) for one in [{"preludeEvent": {}}, *before, *after])


@pytest.mark.parametrize(
    ("path", "recorded", "now"),
    [
        ("spec.stopPolicy", "None", "Hold"),
        ('metadata.labels["a.b/c"]', "x", "-"),
        ("rules[1].verbs", "-", '["get"]'),
    ],
)
def test_a_changed_field_has_both_values(path: str, recorded: str, now: str) -> None:
    old = {"spec": {"stopPolicy": "None"}, "metadata": {"labels": {"a.b/c": "x"}}, "rules": [{}]}
    new = {"spec": {"stopPolicy": "Hold"}, "metadata": {}, "rules": [{}, {"verbs": ["get"]}]}
    step = {
        "op": "update",
        "urn": urn(QUEUE, "research"),
        "old": {"inputs": old},
        "new": {"inputs": new},
        "detailedDiff": {path: {"diffKind": "update", "inputDiff": True}},
    }
    (found,) = drift.parse(refresh(step), "events.json", "dev").differences
    assert found.resource == "ClusterQueue research"
    assert (found.field, found.recorded, found.now) == (path, recorded, now)


@pytest.mark.parametrize(
    ("kind", "inputs", "live", "found"),
    [
        ("rbac:RoleBinding", {"subjects": ["a"]}, {"subjects": ["a", "b"]}, ("subjects", '["b"]')),
        ("core:Pod", {"spec": {"x": {}}}, {"spec": {"x": {"y": 1}}}, ("spec.x", '{"y": 1}')),
        ("core:Pod", {"c": [{"e": []}]}, {"c": [{"e": ["b"]}]}, ("c[0].e", '["b"]')),
        ("core/v1:Secret", {"data": {}}, {"data": {"key": SECRET}}, ("data", "(hidden)")),
        ("core/v1:Node", {"taints": ["a"]}, {"taints": ["a", "b"]}, None),
        ("core:Pod", {"spec": {"x": 1}}, {"spec": {"x": 1, "y": 2}, "status": {"z": 1}}, None),
    ],
)
def test_what_was_added_to_a_list_or_an_empty_field_is_named(
    kind: str, inputs: Json, live: Json, found: tuple[str, str] | None
) -> None:
    step = {
        "op": "same",
        "urn": urn(f"kubernetes:{kind}", "one"),
        "old": {"inputs": inputs, "outputs": inputs},
        "new": {"inputs": inputs, "outputs": live},
    }
    differences = drift.parse(refresh(step), "events.json", "dev").differences
    assert [(one.field, one.recorded, one.now) for one in differences] == (
        [(found[0], "added", found[1])] if found else []
    )


def test_deleted_resources_are_named_and_values_of_secrets_are_not() -> None:
    gone = {"op": "delete", "urn": urn("kubernetes:networking.k8s.io/v1:NetworkPolicy", "dns")}
    secret = changed("kubernetes:core/v1:Secret", "key", "data.token", SECRET, SECRET + "2")
    text = drift.text(drift.parse(refresh(gone, secret), "events.json", "dev"))
    assert "| NetworkPolicy dns | - | - | deleted |" in text
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


def test_a_long_drift_is_at_most_30_lines_and_hides_no_markup() -> None:
    steps = [
        changed(QUEUE, f"q{n}", "spec.x", "a|b", f"<img src=x> @everyone {n}") for n in range(40)
    ]
    text = drift.text(drift.parse(refresh(*steps), "events.json", "dev"))
    assert len(text.splitlines()) <= 30 and "20 more" in text
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


def test_json_has_every_difference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "events.json"
    file.write_text(refresh(*(changed(QUEUE, f"q{n}", "spec.x", "a", "b") for n in range(40))))
    words = ["stack", "drift", "--stack", "dev", "--events", str(file), "--json"]
    assert front_door.main(words) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["resources"] == 41 and len(found["differences"]) == 40
    assert set(found["differences"][0]) == {"resource", "field", "recorded", "now"}
