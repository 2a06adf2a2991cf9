"""The policy pack: rule names, configuration, and names shared with the program."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from policies.rules.catalog import RULES
from policies.rules.model import Resource, Rule, StackRule
from tests.policy.policy_stacks import check

TABLE = Path(__file__).resolve().parents[2] / "docs" / "policies.md"


def test_rule_names_are_unique() -> None:
    rule_names = [rule.name for rule in RULES]
    assert len(set(rule_names)) == len(rule_names)
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", name) for name in rule_names)


def test_the_table_of_rules_names_every_rule_its_kind_and_its_properties() -> None:
    rows = re.findall(r"^\| `([a-z-]+)`( \*S\*)? \| .* \|(.*)\|$", TABLE.read_text(), re.MULTILINE)
    assert {name: bool(kind) for name, kind, _ in rows} == {
        rule.name: isinstance(rule, StackRule) for rule in RULES
    }
    properties = {name: keys for name, _, keys in rows}
    for rule in RULES:
        assert all(f"`{key}`" in properties[rule.name] for key in rule.schema), rule.name


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_rules_ignore_unknown_resource_types(rule: Rule) -> None:
    for kind in ("aws:sns/topic:Topic", "kubernetes:example.com/v1:Unheard"):
        assert check(rule, [Resource(type=kind, props={"spec": {}})]) == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_defaults_match_their_schema(rule: Rule) -> None:
    for key, value in rule.defaults.items():
        pattern = rule.schema[key].get("pattern")
        assert pattern is None or re.fullmatch(pattern, value)
        assert rule.schema[key]["description"]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_misspelled_property_gets_a_suggestion(rule: Rule) -> None:
    assert list(rule.unknown_properties(rule.defaults)) == []
    for key in rule.schema:
        (found,) = rule.unknown_properties({key + "s": 1})
        assert found.path == f"policy configuration: {rule.name}.{key}s"
        assert found.remedy == f"did you mean {key}?"
