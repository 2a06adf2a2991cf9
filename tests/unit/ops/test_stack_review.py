"""`stack review`: labelled changes of committed stacks, each with all of its consequences."""

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
