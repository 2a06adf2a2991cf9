"""Kueue has the same settings on the sandbox as elsewhere, except its timeouts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from infra.addons import kueue
from infra.addons.model import Installable
from infra.config import add_ons, parse, stack_values
from infra.domain.scheduler import MAX_GRACE_S


def chart() -> dict[str, Any]:
    """The configuration in the chart's values."""
    return _configuration(kueue.plan())


def sandbox() -> dict[str, Any]:
    """The configuration of the sandbox's Kueue."""
    config = parse(stack_values(Path(__file__).resolve().parents[3] / "Pulumi.local.yaml"))
    return _configuration(add_ons.plan(kueue.KUEUE, config))


def _configuration(plan: Installable) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(
        plan.values["managerConfig"]["controllerManagerConfigYaml"]
    )
    return found


def test_incomplete_gang_is_requeued_for_three_weeks() -> None:
    for found in (chart(), sandbox()):
        waiting = found["waitForPodsReady"]
        assert waiting["blockAdmission"] is False
        assert waiting["requeuingStrategy"]["timestamp"] == "Eviction"
        assert waiting["requeuingStrategy"]["backoffLimitCount"] == kueue.RETRIES
    timeouts = kueue.PRODUCTION_TIMEOUTS
    assert kueue.RETRIES * (timeouts.start_seconds + timeouts.max_backoff_seconds) > 21 * 86_400


def test_a_gang_may_save_for_its_whole_grace_period_and_start_again() -> None:
    timeout = chart()["waitForPodsReady"]["recoveryTimeout"]
    assert int(timeout.removesuffix("s")) >= MAX_GRACE_S + 300
