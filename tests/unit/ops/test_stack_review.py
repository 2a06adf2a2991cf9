"""`stack review`: labelled changes of committed stacks with all of their consequences, and violated policies."""

from __future__ import annotations

import copy
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ops import __main__ as front_door
from ops.cluster import ClusterError
from ops.review import consequences, report, steps
from ops.review.steps import Change, Finding, Preview, Step
from tests.unit.ops.stack_changes import (
    BLOCK,
    CHANGES,
    P5,
    SPOT,
    both,
    nothing,
    paying,
    preview_of,
    removing,
    reviewed,
    setting,
)


@pytest.mark.parametrize(
    ("label", "does", "detail"),
    [
        ("AMI of a pool", "may be restarted", "pool spot rolled: releaseVersion changes"),
        ("launch template", "may be restarted", "pool spot rolled: launchTemplate.metadataOptions changes"),
        ("max down", "may be restarted", "pool spot shrunk from 50 to 40 nodes"),
        ("simulated node removed", "may be restarted", "pool spot shrunk from 2 to 1 nodes"),
        ("spot pool removed", "may be restarted", "pool spot deleted"),
        (
            "all of a run's pools removed",
            "may be stopped",
            "pool ondemand deleted; pool spot deleted; no pool is left for it",
        ),
        ("namespace removed", "stopped", "namespace team-research deleted"),
        ("queue drained", "stopped", "queue team-research/research stopped (HoldAndDrain)"),
        ("queue removed", "held", "queue team-research/research deleted"),
    ],
)  # fmt: skip
def test_a_run_that_is_reached_indirectly_says_by_what(label: str, does: str, detail: str) -> None:
    found = review_of(label)
    (run,) = [one for one in found.consequences if one.what == "run"]
    assert (run.happens, run.detail) == (does, detail)
    text = report.text(found)
    assert f"{run.name} {does}: {detail}" in text
    assert "which submitted runs these are is not known" in text
    assert report.to_json(found)["impacts"]


@cache
def review_of(label: str) -> consequences.Review:
    """The review of a labelled change."""
    _, stack, edit, replaced, *_ = next(change for change in CHANGES if change[0] == label)
    return reviewed(preview_of(stack, edit, replaced), stack)


@pytest.mark.parametrize("change", CHANGES, ids=[change[0] for change in CHANGES])
def test_a_change_has_exactly_its_consequences_and_its_price(change: Any) -> None:
    label, _, _, _, expected, idle, at_max = change
    found = review_of(label)
    assert sorted((c.what, c.does) for c in found.consequences) == sorted(expected)
    assert found.usd_per_hour_idle == pytest.approx(idle, abs=1e-9)
    assert found.usd_per_hour_at_max == pytest.approx(at_max, abs=1e-9)
    assert bool(found.edited_runs) == (label == "run edited") == (not found.passes)
    assert len(report.text(found).splitlines()) <= report.LINES_MAX


def test_a_price_that_is_not_known_is_not_zero() -> None:
    unheard = setting(SPOT, "instanceTypes", ["x9.unheard"])
    found = reviewed(preview_of("dev", unheard, SPOT), "dev")
    assert found.usd_per_hour_at_max is None and found.unpriced == (SPOT,)
    assert "not known per hour at full scale" in report.text(found)


def test_what_was_paid_for_a_reservation_is_in_the_configuration_or_in_the_record_of_a_team() -> (
    None
):
    document = preview_of("prod", removing(BLOCK))
    recorded = preview_of("prod", both(paying(40.0), removing(BLOCK)))
    pools = json.loads(document["config"]["trainyard:nodePools"])
    next(p for p in pools if p["name"] == "block")["reservation"]["usdPerNodeHour"] = 40.0
    changed = preview_of("prod", paying(40.0))
    changed["config"]["trainyard:nodePools"] = json.dumps(pools)
    (consequence,) = reviewed(changed, "prod").consequences
    assert consequence.detail.endswith("reserved -> 0 to 8 p5.48xlarge, reserved at 40.00 USD")
    assert reviewed(changed, "prod").usd_per_hour_idle == pytest.approx(8 * (40 - P5))
    alone = copy.deepcopy(document)
    alone["config"]["trainyard:nodePools"] = json.dumps(pools)
    alone["steps"] = [s for s in alone["steps"] if "-platform" not in s["urn"]]
    assert reviewed(alone, "prod").usd_per_hour_idle == pytest.approx(-8 * 40)
    assert reviewed(document, "prod").usd_per_hour_idle == pytest.approx(-8 * P5)
    assert reviewed(recorded, "prod").usd_per_hour_idle == pytest.approx(-8 * P5), (
        "as it was before"
    )
    for text in ("[]", "{", '[{"name": "block", "reservation": 1}]', "[secret]"):
        alone["config"]["trainyard:nodePools"] = text
        assert reviewed(alone, "prod").usd_per_hour_idle == pytest.approx(-8 * P5)


def test_an_error_of_a_policy_fails_the_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = preview_of("dev", nothing)
    file = tmp_path / "preview.json"
    for severity, code in (("warning", 0), ("error", 1)):
        document["diagnostics"] = [{"severity": severity, "message": "hourly-budget: too high\n"}]
        file.write_text(json.dumps(document))
        words = ["stack", "review", "--stack", "dev", "--preview", str(file)]
        assert front_door.main(words) == code
        assert "hourly-budget: too high" in capsys.readouterr().out
        assert front_door.main([*words, "--json"]) == code
        assert json.loads(capsys.readouterr().out)["passes"] == (code == 0)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"steps": [{"op": "same"}]}', '{"steps": 3}'])
def test_other_files_are_refused(text: str) -> None:
    with pytest.raises(ClusterError, match="FILE: "):
        steps.parse(text, "FILE", "dev")


def test_the_preview_of_another_stack_is_refused() -> None:
    with pytest.raises(ClusterError, match="is a preview of dev; expected prod"):
        steps.parse(json.dumps(preview_of("dev", nothing)), "FILE", "prod")


def test_the_file_of_the_comment_has_the_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    preview, comment = tmp_path / "preview.json", tmp_path / "comment.md"
    preview.write_text(json.dumps(preview_of("dev", nothing)))
    words = ["stack", "review", "--stack", "dev", "--preview", str(preview)]
    assert front_door.main([*words, "--comment", str(comment)]) == 0
    assert comment.read_text() == capsys.readouterr().out
    assert comment.read_text().startswith(report.marker("dev") + "\n")


def test_a_text_that_github_would_refuse_lacks_its_longest_details() -> None:
    def folded(name: str, length: int) -> str:
        return f"<details><summary>{name}</summary>{'x' * length}</details>"

    text = "\n".join([report.marker("dev"), folded("Runs", 70_000), folded("Pools", 10)]) + "\n"
    lines = report.fitted(text).splitlines()
    assert lines[:3] == [report.marker("dev"), "Runs", folded("Pools", 10)]
    assert "--json" in lines[3]
    assert report.fitted("short\n") == "short\n"


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
def test_another_event_log_is_refused(text: str) -> None:
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
