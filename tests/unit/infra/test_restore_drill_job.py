"""Restore drill CronJob of a team: when it exists, and its read-only access."""

from __future__ import annotations

import re

import pytest

from infra.sections.teams import RestoreDrillConfig
from tests.golden.example_runs import IMAGE


@pytest.mark.parametrize(
    ("tier", "has_image", "enabled", "wanted"),
    [
        ("production", True, None, True),
        ("production", False, None, False),
        ("research", True, None, False),
        ("research", True, True, True),
        ("production", True, False, False),
    ],
)
def test_production_teams_have_a_drill_by_default(
    tier: str, has_image: bool, enabled: bool | None, wanted: bool
) -> None:
    section = RestoreDrillConfig(enabled=enabled)
    assert section.wanted(tier, has_image=has_image) is wanted


def test_production_team_with_a_drill_image_has_a_drill() -> None:
    section = RestoreDrillConfig(image=IMAGE)
    assert section.wanted("production", has_image=False)
    assert not section.wanted("research", has_image=False)


@pytest.mark.parametrize("schedule", ["17 3 * * *", "*/15 0-6,22 1 1-12/2 0,6"])
def test_valid_cron_schedule_is_accepted(schedule: str) -> None:
    assert RestoreDrillConfig(schedule=schedule).schedule == schedule


@pytest.mark.parametrize(
    "schedule",
    [
        *("daily", "60 3 * * *", "17 3 * *", "17 5-3 * * *", "@daily"),
        # Kubernetes rejects weekday 8, a step of 0 and non-ASCII digits.
        *("17 3 * * 7", "*/0 * * * *", "\N{ARABIC-INDIC DIGIT ONE} 3 * * *"),
    ],
)
def test_invalid_cron_schedule_is_rejected(schedule: str) -> None:
    with pytest.raises(ValueError, match=re.escape("such as 17 3 * * *")):
        RestoreDrillConfig(schedule=schedule)
