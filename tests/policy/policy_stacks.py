"""The committed stacks as the rules see them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from policies.rules.catalog import RULES
from policies.rules.model import Resource, ResourceRule, Rule, StackRule, Violation
from tests import committed

ROOT = Path(__file__).resolve().parents[2]
STACKS = ROOT / "policies" / "stacks"
BY_NAME = {rule.name: rule for rule in RULES}


def configured(stack: str) -> dict[str, dict[str, Any]]:
    """The policy configuration of a stack in an account, as the engine is given it."""
    config: dict[str, dict[str, Any]] = json.loads((STACKS / f"{stack}.json").read_text())
    return config


@cache
def rendered(stack: str) -> list[Resource]:
    """Every resource of a committed stack; copy them before breaking one."""
    records = committed.rendered(stack)
    urns: dict[str, set[str]] = {}
    for r in records:
        urns.setdefault(r["name"], set()).add(f"{r['type']}::{r['name']}")
    return [
        Resource(
            type=r["type"],
            props=r["inputs"],
            urn=f"{r['type']}::{r['name']}",
            protected=r["protect"],
            references={
                key: frozenset(references(value, urns)) for key, value in r["inputs"].items()
            },
        )
        for r in records
    ]


def references(value: Any, urns: Mapping[str, set[str]]) -> Iterator[str]:
    """What a rendered input takes from other resources: NAME is an id, ${NAME.FIELD} another."""
    if isinstance(value, str):
        name = value.removeprefix("${").partition(".")[0] if value.startswith("${") else value
        yield from urns.get(name, ())
    elif isinstance(value, (dict, list)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from references(inner, urns)


def findings(
    resources: list[Resource], configured: Mapping[str, Mapping[str, Any]] | None = None
) -> list[str]:
    """RULE: MESSAGE for every violation of any rule.

    Args:
        configured: properties by rule, in place of their defaults.
    """
    found: list[str] = []
    for rule in RULES:
        config = {**rule.defaults, **(configured or {}).get(rule.name, {})}
        found += [f"{rule.name}: {violation}" for violation in check(rule, resources, config)]
    return found


def check(
    rule: Rule, resources: list[Resource], config: Mapping[str, Any] | None = None
) -> list[Violation]:
    """What one rule of either kind finds, by default with its own configuration."""
    config = rule.defaults if config is None else config
    if isinstance(rule, ResourceRule):
        return [v for resource in resources for v in rule.check(resource, config)]
    assert isinstance(rule, StackRule)
    return list(rule.check(resources, config))
