"""The add-on that moves runs between pools: what it renders, and with which rights."""

from __future__ import annotations

import copy
import datetime as dt
import json
from typing import Any

import pytest
import yaml

from infra.addons import kueue, steering
from infra.cli.render import ROOT
from infra.config import (
    ConfigError,
    StackConfig,
    add_ons,
    arguments,
    parse,
    platform_record,
    stack_values,
)
from ops.steer import settings
from tests.unit.infra.example_eks import stack_values as example
from training.spot.decide import Place
from training.spot.rates import INTERRUPTIONS_PER_NODE_HOUR

IMAGE = "registry.test/ops@sha256:" + "1" * 64


def stack(**changes: Any) -> StackConfig:
    values = copy.deepcopy(stack_values(ROOT / "Pulumi.local.yaml"))
    return parse(values | {"steering": {"image": IMAGE} | changes})


def monitored(**changes: Any) -> StackConfig:
    """The same with a Prometheus."""
    values = copy.deepcopy(stack_values(ROOT / "Pulumi.local.yaml"))
    values["operators"]["kubePrometheusStack"] = {"provided": True}
    return parse(values | {"steering": {"image": IMAGE} | changes})


def rendered(config: StackConfig) -> dict[str, Any]:
    found = add_ons.plan(steering.STEERING, config)
    return {one["kind"]: one for one in (*found.before, *found.objects)}


def gates(config: StackConfig) -> dict[str, bool]:
    found = add_ons.plan(kueue.KUEUE, config)
    text = found.values["managerConfig"]["controllerManagerConfigYaml"]
    result: dict[str, bool] = yaml.safe_load(text)["featureGates"]
    return result


def test_a_stack_has_it_and_kueues_gate_only_with_its_section() -> None:
    bare = parse(stack_values(ROOT / "Pulumi.local.yaml"))
    assert "steering" not in platform_record.installed(bare)
    assert kueue.STEERING_GATE not in gates(bare)
    assert "steering" in platform_record.installed(stack())
    assert gates(stack())[kueue.STEERING_GATE] is True


def test_the_program_reads_the_pools_and_rules_that_the_stack_publishes() -> None:
    text = rendered(stack(losses=3, withinHours=2.5))["ConfigMap"]["data"]["pools.json"]
    found = settings.parse(json.loads(text))
    places = {name: pool.place for name, pool in found.pools.items()}
    assert places["spot"] is Place.SPOT and Place.ON_DEMAND in places.values()
    assert (found.rules.losses, found.rules.window_s) == (3, 9000.0)
    waits = example() | {"gangTimeouts": {"startSeconds": 700}, "steering": {"image": IMAGE}}
    assert settings.parse(arguments.steering(parse(waits))).rules.start_s == 700


@pytest.mark.parametrize(
    ("region", "types", "prior"),
    [
        ("us-east-1", ["p4d.24xlarge"], 0.1),
        ("us-east-1", ["p4de.24xlarge"], 0.02),
        ("us-east-1", ["p4de.24xlarge", "p4d.24xlarge"], 0.1),
        ("us-east-1", ["p4d.24xlarge", "p6-b200.48xlarge"], 0.2),
        ("eu-west-1", ["p4d.24xlarge"], 0.2),
    ],
)
def test_the_program_starts_from_the_interruptions_of_a_pools_types_in_its_region(
    region: str, types: list[str], prior: float
) -> None:
    values = copy.deepcopy(example())
    values["aws"]["region"] = region
    values["network"]["zones"] = [f"{region}a", f"{region}b"]
    values["storage"]["fsx"]["zone"] = f"{region}a"
    for pool in values["nodePools"]:
        pool["zone"] = f"{region}{pool['zone'][-1]}"
    values["nodePools"][1]["instanceTypes"] = types
    config = parse(values | {"steering": {"image": IMAGE}})
    text = rendered(config)["ConfigMap"]["data"]["pools.json"]
    for form in (json.loads(text), arguments.steering(config)):
        found = settings.parse(form)
        assert found.pools["spot"].prior == pytest.approx(prior)
        assert {name for _, name in found.priors} == set(types)
        assert found.pools["ondemand"].prior == INTERRUPTIONS_PER_NODE_HOUR


@pytest.mark.parametrize(("nodes", "minutes"), [("karpenter", 40), ("managed", 30)])
def test_the_program_knows_when_a_capacity_block_has_nodes(nodes: str, minutes: int) -> None:
    values = example()
    if nodes == "managed":
        values |= {"autoscaler": "cluster-autoscaler"}
        values["nodePools"][1].update(nodes="managed")
    block = {"kind": "capacity-block", "id": "cr-0123456789abcdef0"}
    block |= {"start": "2027-03-01T11:30:00Z", "end": "2027-03-03T11:30:00Z"}
    values["nodePools"][0].update(nodes=nodes, min=0, reservation=block)
    config = parse(values | {"steering": {"image": IMAGE}})
    text = rendered(config)["ConfigMap"]["data"]["pools.json"]
    found = settings.parse(json.loads(text)).pools[values["nodePools"][0]["name"]]
    start = dt.datetime(2027, 3, 1, 11, 30, tzinfo=dt.UTC).timestamp()
    assert (found.place, found.opens) == (Place.RESERVED, start)
    assert found.closes == start + 48 * 3600 - minutes * 60


def test_the_policy_stands_before_the_account_has_a_right() -> None:
    plan = add_ons.plan(steering.STEERING, stack())
    kinds = [one["kind"] for one in plan.before]
    assert kinds.index("ValidatingAdmissionPolicyBinding") < kinds.index("ClusterRoleBinding")


def test_it_may_cordon_nodes_only_where_the_stack_says_so() -> None:
    def node_verbs(config: StackConfig) -> set[str]:
        rules = rendered(config)["ClusterRole"]["rules"]
        return {verb for one in rules if "nodes" in one["resources"] for verb in one["verbs"]}

    def policies(config: StackConfig) -> set[str]:
        found = add_ons.plan(steering.STEERING, config).before
        return {one["metadata"]["name"] for one in found if one["kind"].endswith("Policy")}

    assert node_verbs(stack()) == {"list"}
    assert "trainyard-steering-nodes" not in policies(stack())
    asked = monitored(cordonNamedNodes=True)
    assert node_verbs(asked) == {"list", "patch"}
    assert "trainyard-steering-nodes" in policies(asked)
    text = rendered(asked)["ConfigMap"]["data"]["pools.json"]
    assert settings.parse(json.loads(text)).cordon
    assert not settings.parse(json.loads(text) | {"cordonNamedNodes": False}).cordon


def test_cordons_require_a_prometheus() -> None:
    with pytest.raises(ConfigError) as caught:
        stack(cordonNamedNodes=True)
    [issue] = caught.value.issues
    assert not isinstance(issue, str)
    assert (issue.path, issue.code) == ("steering.cordonNamedNodes", "operator-required")
