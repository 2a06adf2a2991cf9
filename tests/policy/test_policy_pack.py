"""The policy pack: rule names, configuration, and names shared with the program."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from infra.domain import naming
from infra.domain.pools import Capacity
from infra.domain.published_record import RECORD_KEY
from infra.domain.tier import PRODUCTION
from infra.sites.aws import karpenter_manifests
from policies.rules import names
from policies.rules.catalog import RULES, unknown_properties
from policies.rules.model import Resource, ResourceRule, Rule, StackRule, defaults
from policies.rules.taints import Taint
from sandbox.node import images
from trainyard import contract

TABLE = Path(__file__).resolve().parents[2] / "docs" / "policies.md"


def test_names_equal_those_of_the_program() -> None:
    assert Taint.parse(names.GPU_TAINT).value == naming.GPU_TRAINING
    assert Taint.parse(names.SPOT_TAINT).key == naming.SPOT_TAINT
    assert (names.WORKLOAD_LABEL, names.WORKLOAD_GPU) == (naming.WORKLOAD_TYPE, naming.GPU_TRAINING)
    assert names.ACCELERATOR_LABEL == naming.ACCELERATOR
    assert (names.CAPACITY_LABEL, names.CAPACITY_SPOT) == (naming.CAPACITY, Capacity.SPOT)
    assert names.KARPENTER_CAPACITY_LABEL == karpenter_manifests.CAPACITY_TYPE
    assert names.QUEUE_LABEL == naming.QUEUE_NAME
    assert names.GPU_RESOURCE == naming.GPU
    assert (names.POOL_LABEL, names.TIER_LABEL) == (naming.POOL, naming.TIER)
    assert PRODUCTION.name == names.TIER_PRODUCTION
    assert names.TEAM_TAG == naming.TEAM
    assert names.DEVICE_PLUGIN_CONFIG == naming.DEVICE_PLUGIN_CONFIG
    assert names.MIG_CONFIG == naming.MIG_CONFIG
    assert names.VALIDATION_NAMESPACE == naming.VALIDATION_NAMESPACE
    assert {naming.PART_OF, naming.MANAGED_BY} < set(names.PLATFORM_TAGS)
    assert names.SANDBOX_REGISTRY == images.REGISTRY
    assert names.RUN_RECORD_FILE == contract.RUN_RECORD_FILE
    assert (names.PLATFORM_RECORD, names.PLATFORM_RECORD_FILE) == (
        naming.PLATFORM_RECORD,
        RECORD_KEY,
    )


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
    config = defaults(rule.schema)
    for kind in ("aws:sns/topic:Topic", "kubernetes:example.com/v1:Unheard"):
        other = Resource(type=kind, props={"spec": {}})
        if isinstance(rule, ResourceRule):
            assert list(rule.check(other, config)) == []
        else:
            assert list(rule.check([other], config)) == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_defaults_match_their_schema(rule: Rule) -> None:
    for key, value in defaults(rule.schema).items():
        pattern = rule.schema[key].get("pattern")
        assert pattern is None or re.fullmatch(pattern, value)
        assert rule.schema[key]["description"]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_misspelled_property_gets_a_suggestion(rule: Rule) -> None:
    assert list(unknown_properties(rule, defaults(rule.schema))) == []
    for key in rule.schema:
        (found,) = unknown_properties(rule, {key + "s": 1})
        assert found.path == f"policy configuration: {rule.name}.{key}s"
        assert found.remedy == f"did you mean {key}?"
