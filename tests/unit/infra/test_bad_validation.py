"""Mistakes in the stack file's `validation`: each is one exact line."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from infra.config import ConfigError, parse
from tests.golden.example_runs import stack_values

Edit = Callable[[dict[str, Any]], object]

LONG = "a" * 40
OTHER = "elsewhere.example.com/trainer"

BAD: dict[str, tuple[Edit, str]] = {
    "no image": (
        lambda s: s.update(validation={}, images={}),
        "validation.image: got 'trainer'; allowed none, for there is none (names in images), or "
        "REPOSITORY@sha256:DIGEST; add trainer to images",
    ),
    "unknown image": (
        lambda s: s.update(validation={"image": "trainr"}),
        "validation.image: got 'trainr'; allowed trainer (names in images), or "
        "REPOSITORY@sha256:DIGEST; did you mean trainer?",
    ),
    "image from elsewhere": (
        lambda s: s.update(
            validation={"image": f"{OTHER}@sha256:{'1' * 64}"}, registries=["registry.example.com"]
        ),
        f"validation.image: got '{OTHER}'; allowed images from registries: registry.example.com; "
        "add its registry to registries, or push it to one of them",
    ),
    "long name": (
        lambda s: s["nodePools"].append(s["nodePools"][0] | {"name": LONG}),
        "nodePools[3].name: got 40 characters; allowed at most 39 with validation, whose CronJobs are "
        "named after pools; shorten it",
    ),
    "bandwidth of an unknown pool": (
        lambda s: s.update(validation={"minGBps": {"spott": 40}}),
        "validation.minGBps.spott: got a pool without a collective check; allowed ondemand, spot; did "
        "you mean spot?",
    ),
    "bandwidth of a pool without GPUs": (
        lambda s: s.update(validation={"minGBps": {"cpu": 40}}),
        "validation.minGBps.cpu: got a pool without a collective check; allowed ondemand, spot; "
        "remove it",
    ),
    "weekly without nodes": (
        lambda s: s.update(validation={"weekly": True}),
        "validation.weekly: got true; allowed it where a GPU pool always has nodes, for it starts none; "
        "remove it, or raise the min of a pool",
    ),
    "no bandwidth": (
        lambda s: s.update(validation={"minGBps": {"spot": 0}}),
        "validation.minGBps.spot: got 0; allowed more than 0.0; change it",
    ),
    "unknown key": (
        lambda s: s.update(validation={"daily": True}),
        "validation.daily: got an unknown key; allowed image, minGBps, weekly; remove it",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_each_mistake_is_one_exact_line(name: str) -> None:
    edit, line = BAD[name]
    values = copy.deepcopy(stack_values()) | {"validation": {}}
    edit(values)
    with pytest.raises(ConfigError) as caught:
        parse(values)
    assert caught.value.lines == (line,)


def test_a_long_name_is_no_mistake_where_nothing_is_named_after_it() -> None:
    values = copy.deepcopy(stack_values())
    values["nodePools"].append(values["nodePools"][0] | {"name": LONG})
    parse(values)
    simulated = values["nodePools"][-1] | {"nodes": "kwok", "network": "tcp"}
    values["nodePools"] = [*values["nodePools"][:-1], simulated]
    parse(values | {"validation": {}})


def test_an_image_may_be_named_by_digest_where_its_registry_is_allowed() -> None:
    image = f"{OTHER}@sha256:{'1' * 64}"
    allowed = ["registry.example.com", "elsewhere.example.com"]
    config = parse(stack_values() | {"validation": {"image": image}, "registries": allowed})
    assert config.validation and config.validation.image == image
