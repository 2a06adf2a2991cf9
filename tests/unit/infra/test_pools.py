"""Node pools: labels, taints and quotas come from one record and agree."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from infra.cli.render import ROOT, render
from infra.config import stack_values
from infra.domain import catalog, naming, prices, quantity
from infra.domain.pools import Capacity, Network, NodePool, Nodes
from infra.sections.types import Cores, Size
from tests.unit.infra.gpu_pools import gpu_pool

_SPOT = gpu_pool(
    name="spot",
    capacity=Capacity.SPOT,
    instance_types=("p4d.24xlarge", "p3.16xlarge"),
    max=50,
    nodes=Nodes.EXISTING,
    network=Network.TCP,
)


def pool(**changes: object) -> NodePool:
    """A spot pool with two instance types."""
    return dataclasses.replace(_SPOT, **changes)  # type: ignore[arg-type]


def test_taint_is_configurable() -> None:
    taint = pool(taint_key="nvidia.com/gpu", taint_value="true").taints[0]
    assert (taint.key, taint.value) == ("nvidia.com/gpu", "true")


def test_each_taint_has_its_toleration() -> None:
    for taint, toleration in zip(pool().taints, pool().tolerations(), strict=True):
        assert toleration == {"operator": "Equal", **taint.manifest()}


def test_mixed_pool_has_no_gpu_model_label() -> None:
    assert naming.GPU_MODEL not in pool().labels()
    second = pool().types[1]
    assert pool().labels(second)[naming.GPU_MODEL] == "v100"


def test_mixed_pool_capacity_is_that_of_its_smallest_type() -> None:
    smallest = catalog.load().types["p3.16xlarge"]
    assert pool().node_quota["memory"] == smallest.training_memory
    assert pool().node_quota["cpu"] == smallest.training_milli_cpu
    assert pool().node_quota[naming.GPU] == 8


def test_pool_price_is_that_of_its_most_expensive_type() -> None:
    spot = [catalog.price(name).spot_usd_hour for name in pool().instance_types]
    assert prices.per_node(pool()) == max(usd for usd in spot if usd)
    assert prices.per_node(pool(capacity=Capacity.ON_DEMAND)) == 24.48


def test_pool_price_is_that_of_its_region() -> None:
    on_demand = pool(capacity=Capacity.ON_DEMAND, region="eu-west-1")
    assert prices.per_node(on_demand) == 26.44
    assert prices.per_node(pool(region="eu-west-1")) == 13.06


def test_pool_without_offered_types_has_no_price() -> None:
    assert prices.per_node(pool(instance_types=("p5.48xlarge",), region="eu-west-1")) is None
    assert prices.per_node(pool(region="ap-south-1")) is None


@pytest.mark.parametrize("instance", catalog.load().types.values(), ids=lambda t: t.name)
def test_every_type_has_allocatable_resources_for_runs(instance: catalog.InstanceType) -> None:
    assert 0 < instance.training_milli_cpu < instance.allocatable_milli_cpu < instance.vcpu * 1000
    assert 0 < instance.training_memory < instance.allocatable_memory
    assert bool(instance.gpus) == bool(instance.gpu_model) == bool(instance.gpu_memory_gib)


def test_kubelet_reservation_follows_the_documented_formula() -> None:
    types = catalog.load().types
    assert types["g6.xlarge"].allocatable_milli_cpu == 4000 - 80
    # 7.5 % of 16 GiB are not available to the kubelet; the node has addresses for 58 pods.
    left = math.floor(16 * 1024 * 0.925) - (255 + 11 * 58 + 100)
    assert types["g6.xlarge"].allocatable_memory == left * quantity.MIB


def test_allocatable_memory_does_not_exceed_a_real_node() -> None:
    """A g5.8xlarge of EKS as `kubectl describe node` showed it: aws/aws-k8s-tester, pull request 471."""
    row = catalog.load().types["g5.12xlarge"]
    real = dataclasses.replace(row, name="g5.8xlarge", vcpu=32, memory_gib=128)
    assert real.allocatable_memory < 127_462_076 * 1024
    assert real.allocatable_milli_cpu <= 31_850


@pytest.mark.parametrize("text", ["5Tb", "-1", "+1", "1e3", "Gi", "1 Gi"])
@pytest.mark.parametrize("kind", [Cores, Size])
def test_stack_files_require_plain_positive_quantities(kind: Any, text: str) -> None:
    with pytest.raises(ValidationError, match="must be a positive quantity"):
        TypeAdapter(kind).validate_python(text)


@pytest.mark.parametrize("stack", ["dev", "prod"])
def test_everything_follows_the_taint_of_the_stack_file(stack: str) -> None:
    values = stack_values(ROOT / f"Pulumi.{stack}.yaml")
    values |= {"taintKey": "nvidia.com/gpu", "taintValue": "yes"}
    records = render(stack, values)
    text = json.dumps(records)
    kinds = set()
    for record in records:
        for found in _entries(record["inputs"]):
            if found.get("key") == "nvidia.com/gpu" and "effect" in found:
                assert found.get("value") == "yes", record["name"]
                kinds.add(record["type"].rpartition(":")[2])
    assert {"ResourceFlavor", "CronJob", "Release"} <= kinds
    assert kinds & {"NodeGroup", "NodePool"}
    # CEL of the admission policy, and the platform's record for what is submitted.
    exact = "t.?operator.orValue('Equal') == 'Equal' && t.?value.orValue('') == 'yes'"
    assert f"'nvidia.com/gpu' && {exact}" in text
    assert '\\"taint_value\\": \\"yes\\"' in text
    assert "dedicated" not in text


def _entries(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every mapping inside of a value."""
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from _entries(inner)
