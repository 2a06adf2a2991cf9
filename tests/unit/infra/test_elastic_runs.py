"""The add-on that releases groups of ended runs: when a stack has it, and with which rights."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from infra.addons import elastic_runs, kueue
from infra.cli.render import ROOT
from infra.config import ConfigError, StackConfig, parse, platform_record, stack_values
from infra.domain import naming
from infra.sections.programs import ElasticRunsConfig
from infra.tenancy import access
from tests.unit.infra.config_issues import codes
from tests.unit.infra.example_eks import stack_values as example
from training import plan, source

IMAGE = "registry.test/ops@sha256:" + "1" * 64


def stack(image: str = IMAGE, **changes: Any) -> StackConfig:
    values = copy.deepcopy(stack_values(ROOT / "Pulumi.local.yaml"))
    return parse(values | {"elasticRuns": {"image": image}} | changes)


def test_runs_may_have_groups_only_on_a_stack_with_the_section() -> None:
    bare = parse(stack_values(ROOT / "Pulumi.local.yaml"))
    assert "elasticRuns" not in platform_record.installed(bare)
    assert not platform_record.platform(bare, "local").releases_groups
    assert "elasticRuns" in platform_record.installed(stack())
    assert platform_record.platform(stack(), "local").releases_groups


def test_on_simulated_nodes_the_image_may_be_that_of_the_checkout() -> None:
    values = copy.deepcopy(stack_values(ROOT / "Pulumi.local.yaml"))
    values |= {"elasticRuns": {"image": "sandbox.trainyard.dev/ops@source"}, "runs": []}
    made = plan.make(values, "local", ROOT, preview=True).config
    assert made.elastic_runs
    digest = source.digest(ROOT, source.OPS)
    assert made.elastic_runs.image == f"sandbox.trainyard.dev/ops@sha256:{digest}"


@pytest.mark.parametrize(
    ("section", "operators", "issue"),
    [
        ({"image": "registry.test/ops@source"}, {}, "elasticRuns.image: image-without-digest"),
        ({"image": IMAGE, "everySeconds": 0}, {}, "elasticRuns.everySeconds: out-of-range"),
        ({"image": IMAGE}, {"jobset": None}, "elasticRuns: operator-required"),
    ],
)
def test_a_wrong_section_is_one_issue(
    section: dict[str, Any], operators: dict[str, Any], issue: str
) -> None:
    values = example()
    kept = {name: one for name, one in values["operators"].items() if name not in operators}
    with pytest.raises(ConfigError) as caught:
        parse(values | {"elasticRuns": section, "operators": kept})
    assert issue in codes(caught.value)


def test_the_account_lists_what_it_must_and_changes_workloads_of_teams_only() -> None:
    found = elastic_runs.plan(ElasticRunsConfig(image=IMAGE))
    rules = [rule for one in found.before for rule in one.get("rules", [])]
    written = {
        (resource, verb)
        for rule in rules
        for resource in rule["resources"]
        for verb in rule["verbs"]
        if verb not in ("get", "list")
    }
    assert written == {("leases", "create"), ("leases", "patch")}
    assert {resource for rule in rules for resource in rule["resources"]} == {
        *("jobsets", "workloads", "leases")
    }
    role, _ = access.elastic_access("research")
    assert role["rules"] == [
        {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads"], "verbs": ["patch"]}
    ]


def test_kueue_copies_the_labels_by_which_programs_know_groups() -> None:
    found = kueue.chart_config()["integrations"]["labelKeysToCopy"]
    assert {naming.GROUP, naming.GROUPS_MIN} <= set(found)
