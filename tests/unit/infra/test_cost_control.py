"""The add-on that records costs and enforces budgets: what it renders, and with which rights."""

from __future__ import annotations

import copy
import json
from typing import Any

from infra.addons import cost_control
from infra.cli.render import ROOT
from infra.config import (
    StackConfig,
    add_ons,
    parse,
    platform_record,
    stack_values,
)
from infra.tenancy import access
from ops.budgets import control, decision
from ops.budgets.decision import Level

IMAGE = "registry.test/ops@sha256:" + "1" * 64


def stack(budget: dict[str, Any] | None = None, **changes: Any) -> StackConfig:
    values = copy.deepcopy(stack_values(ROOT / "Pulumi.local.yaml"))
    values["teams"][0]["budget"] = budget or {"usdPerMonth": 100, "action": "drain"}
    return parse(values | {"costs": {"image": IMAGE} | changes})


def rendered(config: StackConfig) -> dict[str, Any]:
    found = add_ons.plan(cost_control.COST_CONTROL, config)
    return {one["kind"]: one for one in (*found.before, *found.objects)}


def test_a_stack_has_it_only_with_its_section() -> None:
    bare = parse(stack_values(ROOT / "Pulumi.local.yaml"))
    assert "costs" not in platform_record.installed(bare)
    assert "costs" in platform_record.installed(stack())


def test_the_program_reads_the_budgets_that_the_stack_publishes() -> None:
    found = json.loads(rendered(stack())["ConfigMap"]["data"]["budgets.json"])
    [one] = decision.parse_budgets(found)
    assert (one.team, one.usd_per_month) == ("research", 100)
    assert one.action is Level.DRAIN
    assert one.spot_flavors == ("spot", "fleet-spot")


def test_its_rights_are_listed_verb_by_verb() -> None:
    found = rendered(stack())
    assert found["ClusterRole"]["rules"] == [
        {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["list"]},
        {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads"], "verbs": ["list"]},
        {
            "apiGroups": ["kueue.x-k8s.io"],
            "resources": ["clusterqueues"],
            "verbs": ["list", "patch"],
        },
    ]
    role, _ = access.costs_access("research")
    assert role["rules"] == [
        {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads"], "verbs": ["get", "patch"]}
    ]


def test_the_policy_stands_before_the_account_has_a_right() -> None:
    kinds = [one["kind"] for one in add_ons.plan(cost_control.COST_CONTROL, stack()).before]
    assert kinds.index("ValidatingAdmissionPolicyBinding") < kinds.index("ClusterRoleBinding")
    assert cost_control.STATE == control.STATE
