"""What the steering of runs reads of its stack, and the rates that it starts from."""

from __future__ import annotations

from typing import Any, cast

import pytest

from infra.config import arguments, parse
from infra.domain import naming
from infra.observability import series
from ops.cluster import Cluster, Kind
from ops.collect import NODES
from ops.exposition import Page
from ops.steer import settings
from ops.steer.control import Controller
from ops.steer.settings import Settings
from tests import committed

NOW = 1_800_000_000.0
BANDS = {"p4d.24xlarge": "10-15%", "p4de.24xlarge": "<5%", "p6-b200.48xlarge": None}


def parsed(**more: Any) -> Settings:
    """Settings with one spot pool."""
    pool = {"name": "spot", "place": "spot", "usdPerNodeHour": 10.0, **more}
    rules = {"losses": 2, "windowSeconds": 3600, "emptySeconds": 3600}
    return settings.parse({"pools": [pool], "rules": rules})


@pytest.mark.parametrize(
    ("types", "prior"),
    [
        (("p4de.24xlarge",), 0.02),
        (("p4de.24xlarge", "p4d.24xlarge"), 0.1),
        (("p4de.24xlarge", "p6-b200.48xlarge"), 0.2),
        ((), 0.2),
    ],
)
def test_a_pool_is_assumed_to_lose_nodes_as_its_most_interrupted_type(
    types: tuple[str, ...], prior: float
) -> None:
    found = parsed(interruptions={name: BANDS[name] for name in types}).pools["spot"]
    assert found.prior == pytest.approx(prior)
    assert found.rates(3).lost * 3600 == pytest.approx(3 * prior)


def test_what_an_older_release_published_has_the_usual_prior_and_start() -> None:
    assert parsed().pools["spot"].prior == pytest.approx(0.2)
    assert parsed().rules.start_s == 1200


def test_the_queue_waits_for_nodes_as_long_as_the_stack_says() -> None:
    values = committed.values("prod") | {"gangTimeouts": {"startSeconds": 700}}
    assert settings.parse(arguments.steering(parse(values))).rules.start_s == 700


@pytest.mark.parametrize("bands", [{"p4d.24xlarge": "many"}, {"p4d.24xlarge": 3}, None, 3])
def test_bands_of_another_release_are_an_error_that_the_command_reports(bands: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        parsed(interruptions=bands)


class World:
    """A cluster of nodes alone."""

    def __init__(self, *types: str) -> None:
        self._nodes = [self._node(kind) for kind in types]

    @staticmethod
    def _node(kind: str) -> dict[str, Any]:
        labels = {naming.POOL: "spot", naming.INSTANCE_TYPE: kind, naming.ZONE: "us-east-1a"}
        ready = [{"type": "Ready", "status": "True"}]
        return {"metadata": {"name": kind, "labels": labels}, "status": {"conditions": ready}}

    def items(self, kind: Kind, *_: object) -> list[dict[str, Any]]:
        return self._nodes if kind == NODES else []


def test_the_metric_starts_at_the_prior_of_each_type() -> None:
    page = Page()
    world = cast(Cluster, World(*BANDS, "g5.xlarge"))
    Controller(world, parsed(interruptions=BANDS), print, page=page).step(None, NOW)
    samples = [one for family in page.collect() for one in family.samples]
    found = {
        one.labels["type"]: one.value for one in samples if one.name == series.STEERING_LOSSES.name
    }
    expected = {"p4d.24xlarge": 0.1, "p4de.24xlarge": 0.02, "p6-b200.48xlarge": 0.2}
    assert found == pytest.approx(expected | {"g5.xlarge": 0.2})
