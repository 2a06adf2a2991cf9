"""Mistakes in the stack file's `validation`: each is one issue."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from infra.config import parse
from tests.golden.example_runs import stack_values
from tests.unit.infra.config_issues import check_issues

Edit = Callable[[dict[str, Any]], object]

LONG = "a" * 40
OTHER = "elsewhere.example.com/trainer"

BAD: dict[str, tuple[Edit, str]] = {
    "no image": (
        lambda s: s.update(validation={}, images={}),
        "validation.image: unknown-name",
    ),
    "unknown image": (
        lambda s: s.update(validation={"image": "trainr"}),
        "validation.image: unknown-name",
    ),
    "image from elsewhere": (
        lambda s: s.update(
            validation={"image": f"{OTHER}@sha256:{'1' * 64}"}, registries=["registry.example.com"]
        ),
        "validation.image: registry-not-allowed",
    ),
    "long name": (
        lambda s: s["nodePools"].append(s["nodePools"][0] | {"name": LONG}),
        "nodePools[3].name: name-too-long",
    ),
    "bandwidth of an unknown pool": (
        lambda s: s.update(validation={"minGBps": {"spott": 40}}),
        "validation.minGBps.spott: no-collective-check",
    ),
    "bandwidth of a pool without GPUs": (
        lambda s: s.update(validation={"minGBps": {"cpu": 40}}),
        "validation.minGBps.cpu: no-collective-check",
    ),
    "weekly without nodes": (
        lambda s: s.update(validation={"weekly": True}),
        "validation.weekly: weekly-without-nodes",
    ),
    "no bandwidth": (
        lambda s: s.update(validation={"minGBps": {"spot": 0}}),
        "validation.minGBps.spot: out-of-range",
    ),
    "unknown key": (
        lambda s: s.update(validation={"daily": True}),
        "validation.daily: unknown-key",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_each_mistake_is_one_issue(name: str) -> None:
    edit, expected = BAD[name]
    values = copy.deepcopy(stack_values()) | {"validation": {}}
    edit(values)
    check_issues("validation", name, values, expected)


def test_long_pool_name_is_accepted_where_no_object_is_named_after_it() -> None:
    values = copy.deepcopy(stack_values())
    values["nodePools"].append(values["nodePools"][0] | {"name": LONG})
    parse(values)
    simulated = values["nodePools"][-1] | {"nodes": "kwok", "network": "tcp"}
    values["nodePools"] = [*values["nodePools"][:-1], simulated]
    parse(values | {"validation": {}})


def test_image_with_digest_from_an_allowed_registry_is_accepted() -> None:
    image = f"{OTHER}@sha256:{'1' * 64}"
    allowed = ["registry.example.com", "elsewhere.example.com"]
    config = parse(stack_values() | {"validation": {"image": image}, "registries": allowed})
    assert config.validation and config.validation.image == image
