"""`stack review` names the policies that a change violates, from the preview's event log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ops import __main__ as front_door
from ops.cluster import ClusterError
from ops.review import consequences, report, steps
from ops.review.steps import Change, Finding, Preview, Step

STACK = "urn:pulumi:dev::trainyard::pulumi:pulumi:Stack::trainyard-dev"
BUCKET = "urn:pulumi:dev::trainyard::trainyard:aws:Buckets$aws:s3/bucket:Bucket::logs"


def event(policy: str, resource: str, level: str = "mandatory", what: str = "wrong") -> str:
    """A violation as the engine logs it: the rule's description, then the violation."""
    found = {
        "resourceUrn": resource,
        "message": f"<{{%fg 1%}}>What {policy} is about.<{{%reset%}}>\npath: got {what}; expected right\n",
        "policyName": policy,
        "policyPackName": "trainyard",
        "enforcementLevel": level,
    }
    return json.dumps({"sequence": 1, "timestamp": 2, "policyEvent": found})


def preview(*findings: Finding) -> Preview:
    step = Step(urn=STACK, change=Change.SAME)
    return Preview(stack="dev", region="us-east-1", steps=(step,), findings=findings)


def files(folder: Path, *events: str) -> list[str]:
    """A preview that failed, and its event log."""
    diagnostics = [{"severity": "error", "message": "error: preview failed\n"}]
    document = {"steps": [{"op": "same", "urn": STACK}], "diagnostics": diagnostics}
    (folder / "preview.json").write_text(json.dumps(document))
    other = json.dumps({"sequence": 0, "summaryEvent": {}})
    (folder / "events.json").write_text("\n".join([other, *events, ""]))
    return [
        *("stack", "review", "--stack", "dev", "--preview", str(folder / "preview.json")),
        *("--events", str(folder / "events.json")),
    ]


def test_a_violated_policy_fails_the_review_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = files(tmp_path, event("hourly-budget", STACK), event("bucket-settings", BUCKET))
    assert front_door.main(words) == 1
    text = capsys.readouterr().out
    assert "Policy `bucket-settings` (mandatory) is violated: logs" in text
    assert "logs: path: got wrong; expected right" in text
    assert "Policy `hourly-budget` (mandatory) is violated: the stack" in text
    # The engine's own line says nothing that the violations do not.
    assert "Error:" not in text and "What hourly-budget is about" not in text
    assert front_door.main([*words, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert not found["passes"] and [one["policy"] for one in found["findings"]] == [
        "bucket-settings",
        "hourly-budget",
    ]
    assert [one["resource"] for one in found["findings"]] == ["logs", ""]


def test_an_advisory_violation_is_shown_and_does_not_explain_a_failed_preview(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert front_door.main(files(tmp_path, event("aws-tags", BUCKET, "advisory"))) == 1
    text = capsys.readouterr().out
    assert "Policy `aws-tags` (advisory) is violated: logs" in text
    assert "Error: preview failed" in text
    (shown,) = steps.parse_violations(event("aws-tags", BUCKET, "advisory"), "FILE")
    assert consequences.review(preview(shown)).passes


def test_without_an_event_log_the_review_says_how_to_get_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = files(tmp_path)[:-2]
    assert front_door.main(words) == 1
    assert "`--events` reads which" in capsys.readouterr().out


def test_violations_are_grouped_and_the_text_stays_short() -> None:
    log = "\n".join(
        event(f"rule-{number}", f"{BUCKET}-{index}", what=f"value {index % 2}")
        for number in range(9)
        for index in range(20)
    )
    found = steps.parse_violations(log + "\n" + log, "FILE")
    assert len(found) == 180  # The same violation twice is one.
    lines = report.text(consequences.review(preview(*found))).splitlines()
    assert len(lines) <= report.LINES_MAX
    (first, *_) = [line for line in lines if "`rule-0`" in line]
    assert "logs-0, logs-1, logs-10 and 17 more" in first and first.count("got value 0") == 1
    assert any(
        line.startswith("Policies that are violated, too: `rule-3`, `rule-4`") for line in lines
    )


@pytest.mark.parametrize("text", ["{", "[]", '{"policyEvent": {"message": "x"}}', "3"])
def test_other_files_are_refused(text: str) -> None:
    with pytest.raises(ClusterError, match="FILE: not an event log; expected what"):
        steps.parse_violations(text, "FILE")


def test_events_without_a_preview_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["stack", "review", "--stack", "dev", "--events", str(tmp_path / "events.json")]
    assert front_door.main(words) == 2
    assert "--events: has no preview" in capsys.readouterr().err


def diagnostics(*messages: str) -> list[dict[str, Any]]:
    return [{"severity": "error", "message": one} for one in messages]


def test_errors_of_the_program_stay_beside_violations() -> None:
    document = {"steps": [{"op": "same", "urn": STACK}]}
    document["diagnostics"] = diagnostics("nodePools[0].min: 9 is above max\n", "preview failed\n")
    violated = steps.parse_violations(event("hourly-budget", STACK), "FILE")
    found = steps.parse(json.dumps(document), "FILE", "dev", violated).findings
    assert [(one.policy, one.text) for one in found] == [
        ("hourly-budget", "path: got wrong; expected right"),
        ("", "nodePools[0].min: 9 is above max"),
    ]
