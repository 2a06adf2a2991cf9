"""Each violation added to the committed production stack is found by exactly one rule."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from policies.rules.model import Resource
from tests.committed import MANAGED_BLOCK
from tests.policy.policy_stacks import BY_NAME, ROOT, STACKS, configured, findings, rendered


def test_there_is_a_policy_configuration_for_each_stack_in_an_account() -> None:
    assert sorted(path.stem for path in STACKS.iterdir()) == ["dev", "prod"]


@pytest.mark.parametrize("stack", ["dev", "prod"])
def test_a_stack_as_committed_obeys_the_rules_as_it_configures_them(stack: str) -> None:
    config = configured(stack)
    assert [
        v for name, given in config.items() for v in BY_NAME[name].unknown_properties(given)
    ] == []
    assert findings(rendered(stack), config) == []


def test_a_block_in_a_managed_group_obeys_productions_rules() -> None:
    assert findings(rendered(MANAGED_BLOCK), configured("prod")) == []


def test_production_is_protected_and_its_budget_is_close_to_its_cost() -> None:
    demanded = {"protected-state": configured("prod")["protected-state"]}
    violations = findings(rendered("dev"), configured("dev") | demanded)
    assert {finding.partition(":")[0] for finding in violations} == {"protected-state"}
    limit = 0.9 * configured("prod")["hourly-budget"]["limitUsdPerHour"]
    lower = configured("prod") | {"hourly-budget": {"limitUsdPerHour": limit}}
    (finding,) = findings(rendered("prod"), lower)
    assert finding.startswith("hourly-budget: all node pools: ")


def props_of(resources: list[Resource], urn: str) -> Any:
    """The inputs of the one resource whose URN ends so: NAME, or KIND::NAME."""
    end = urn if "::" in urn else f"::{urn}"
    (found,) = [resource for resource in resources if resource.urn.endswith(end)]
    return found.props


def set_at(urn: str, *path: Any, to: Any) -> Callable[[list[Resource]], None]:
    """Break one input of one resource."""

    def spoil(resources: list[Resource]) -> None:
        target = props_of(resources, urn)
        for key in path[:-1]:
            target = target[key]
        target[path[-1]] = to

    return spoil


def without(urn: str) -> Callable[[list[Resource]], None]:
    """Remove one resource."""

    def spoil(resources: list[Resource]) -> None:
        resources[:] = [r for r in resources if not r.urn.endswith(f"::{urn}")]

    return spoil


BLOCK = "aws-pools-block-template"
CLASS = "aws-karpenter-spot-class"
POOL = "aws-karpenter-spot"
CLUSTER = "aws-cluster-eks"
SLICED = "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}"


@pytest.mark.parametrize(
    ("spoil", "rule"),
    [
        (set_at(BLOCK, "tagSpecifications", 1, "tags", to={}), "aws-tags"),
        (set_at(CLASS, "spec", "tags", to={}), "aws-tags"),
        (set_at("aws-provider", "allowedAccountIds", to="[]"), "aws-tags"),
        (set_at("aws-storage-research-files", "tags", to={}), "aws-tags"),
        (set_at(BLOCK, "blockDeviceMappings", 0, "ebs", "encrypted", to="false"), "encryption"),
        (set_at("Key::aws-keys-data", "enableKeyRotation", to=False), "encryption"),
        (set_at(CLUSTER, "encryptionConfigKeyArn", to=None), "encryption"),
        (set_at("aws-storage-research-files", "kmsKeyId", to=None), "encryption"),
        (set_at("LogGroup::aws-network-flows", "kmsKeyId", to=None), "encryption"),
        (set_at("aws-cluster-logs", "kmsKeyId", to=None), "encryption"),
        (set_at("aws-run-logs-group", "kmsKeyId", to=None), "encryption"),
        (set_at("aws-karpenter-interruption-queue", "sqsManagedSseEnabled", to=None), "encryption"),
        (without("aws-buckets-logs-encryption"), "bucket-settings"),
        (without("aws-buckets-logs-private"), "bucket-settings"),
        (set_at("aws-buckets-datasets-private", "blockPublicAcls", to=False), "bucket-settings"),
        (set_at(CLUSTER, "endpointPublicAccess", to=True), "no-public-endpoints"),
        (
            set_at("aws-network-endpoints-https", "cidrIpv4", to="0.0.0.0/0"),
            "no-public-endpoints",
        ),
        (
            set_at(BLOCK, "metadataOptions", "httpPutResponseHopLimit", to=2.0),
            "instance-metadata",
        ),
        (
            set_at(CLASS, "spec", "metadataOptions", "httpTokens", to="optional"),
            "instance-metadata",
        ),
        (set_at(BLOCK, "networkInterfaces", 1, "interfaceType", to="interface"), "efa-placement"),
        (
            set_at(CLASS, "spec", "networkInterfaces", to=[{"interfaceType": "efa"}]),
            "efa-placement",
        ),
        (
            set_at("Subnet::aws-network-private-us-east-1a", "availabilityZone", to="us-east-1f"),
            "efa-placement",
        ),
        (set_at(POOL, "spec", "limits", "nodes", to="49"), "quota-fits-pools"),
        (set_at("aws-pools-block", "scalingConfig", "maxSize", to=7), "quota-fits-pools"),
        (set_at("aws-block-volumes-class", "parameters", "encrypted", to="false"), "encryption"),
        (
            set_at(
                "operators-kubePrometheusStack",
                "values",
                "grafana",
                "service",
                to={"type": "LoadBalancer"},
            ),
            "no-public-endpoints",
        ),
        (
            lambda resources: resources.append(
                Resource(type="kubernetes:core/v1:ConfigMap", props={"data": {"all": SLICED}})
            ),
            "time-slicing-one-team",
        ),
    ],
)
def test_each_violation_in_production_is_found_by_one_rule(
    spoil: Callable[[list[Resource]], None], rule: str
) -> None:
    resources = copy.deepcopy(rendered(MANAGED_BLOCK))
    spoil(resources)
    violations = findings(resources, configured("prod"))
    found = {finding.partition(":")[0] for finding in violations}
    assert len(found) == 1 and found.pop().startswith(rule)


@pytest.mark.parametrize("stack", ["dev", "prod"])
def test_the_policies_allow_the_registries_of_the_stack_file(stack: str) -> None:
    stack_file, policy_file = f"Pulumi.{stack}.yaml", f"policies/stacks/{stack}.json"
    values = yaml.safe_load((ROOT / stack_file).read_text())["config"]
    own = [
        values[f"trainyard:{name}"]["image"].partition("@")[0]
        for name in ("steering", "runPage")
        if f"trainyard:{name}" in values
    ]
    assert configured(stack)["images-by-digest"]["registries"] == [
        *values["trainyard:registries"],
        *own,
    ], (
        f"{policy_file}: images-by-digest.registries must be trainyard:registries and the repositories of the "
        f"platform's own images of {stack_file}; change both"
    )
