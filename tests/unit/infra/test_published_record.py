"""The Platform record of a team: complete, without other teams, and only for clients that understand it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from infra.config import parse, platform_record, stack_values
from infra.domain import catalog, launcher_support
from infra.domain.catalog.interruptions import Band
from infra.domain.platform import Platform
from infra.domain.published_record import RecordError, from_text, to_text
from infra.domain.scheduler import Scheduler
from tests.golden.example_runs import IMAGE, platform, run_of, scheduler_values
from training import job

ROOT = Path(__file__).resolve().parents[3]
STACKS = ("local", "dev", "prod")
IMAGES = {"trainer": IMAGE}


def _changed(text: str, change: dict[str, Any]) -> str:
    record = json.loads(text)
    record["platform"] |= change
    return json.dumps(record)


def of_stack(stack: str) -> Platform:
    return platform_record.platform(parse(stack_values(ROOT / f"Pulumi.{stack}.yaml")), stack)


@pytest.mark.parametrize("stack", STACKS)
def test_a_committed_stacks_record_is_read_as_it_was_written(stack: str) -> None:
    full = of_stack(stack)
    for team in full.teams:
        found = from_text(to_text(full, team, IMAGES))
        assert found.images == IMAGES
        assert found.platform.teams == {team: full.teams[team]}
        assert found.platform.pools == full.pools
        assert found.platform.export()["launchers"] == full.export()["launchers"]


def test_a_client_whose_catalog_has_other_prices_and_interruptions_reads_the_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text, known = to_text(platform(), "research", IMAGES), catalog.load()
    types = {
        name: dataclasses.replace(one, prices={}, interruptions={"us-east-1": Band.UP_TO_5})
        for name, one in known.types.items()
    }
    monkeypatch.setattr(catalog, "load", lambda: dataclasses.replace(known, types=types))
    assert from_text(text).images == IMAGES
    smaller = {name: dataclasses.replace(one, vcpu=1) for name, one in types.items()}
    monkeypatch.setattr(catalog, "load", lambda: dataclasses.replace(known, types=smaller))
    with pytest.raises(RecordError, match="another catalog of instance types"):
        from_text(text)


@pytest.mark.parametrize("launcher", launcher_support.LAUNCHERS)
def test_the_record_renders_the_manifests_of_every_launcher(launcher: str) -> None:
    read = from_text(to_text(platform(), "research", IMAGES)).platform
    run = run_of(launcher)
    assert job.submitted(run, read, "c") == job.submitted(run, platform(), "c")


@pytest.mark.parametrize("scheduler", Scheduler)
def test_the_record_renders_the_manifests_of_every_scheduler(scheduler: Scheduler) -> None:
    full = platform_record.platform(parse(scheduler_values(scheduler)), "example")
    read = from_text(to_text(full, "research", IMAGES)).platform
    run = run_of("indexed-job")
    assert job.submitted(run, read, "c") == job.submitted(run, full, "c")


def test_the_record_names_no_other_team_and_is_the_same_text_each_time() -> None:
    text = to_text(platform(), "research", IMAGES)
    assert 'production"' not in json.dumps(sorted(json.loads(text)["platform"]["teams"]))
    assert text == to_text(platform(), "research", IMAGES)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "not a Platform record"),
        ("[]", "not a Platform record"),
        (json.dumps({"format": 2}), "format 2"),
        (_changed(to_text(platform(), "research", IMAGES), {"zones": ["a"]}), "zones"),
        (
            _changed(to_text(platform(), "research", IMAGES), {"scheduler": "slurm"}),
            "does not know",
        ),
    ],
)
def test_a_record_of_another_release_is_rejected(text: str, named: str) -> None:
    with pytest.raises(RecordError, match=named):
        from_text(text)


def test_a_record_with_other_instance_types_is_rejected() -> None:
    record = json.loads(to_text(platform(), "research", IMAGES))
    record["instanceTypes"]["p4d.24xlarge"]["vcpu"] = 8
    with pytest.raises(RecordError, match="catalog"):
        from_text(json.dumps(record))
