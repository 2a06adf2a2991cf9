"""The rule that queues promise no more GPUs than there are."""

from __future__ import annotations

from typing import Any

import pytest

from policies.rules.model import UNKNOWN, Resource
from policies.rules.quota import QUOTA_FITS_POOLS
from tests.policy.policy_examples import stack_violations
from tests.policy.policy_pools import karpenter_pool, node_group
from tests.unit.snapshots import Text


def node(pool: str, gpus: Any) -> Resource:
    """A node of a pool; `gpus` None: without a status, as a preview shows a new one."""
    props: dict[str, Any] = {"metadata": {"labels": {"trainyard.dev/pool": pool, "zone": "a"}}}
    if gpus is not None:
        props["status"] = {"capacity": {"nvidia.com/gpu": gpus}}
    return Resource(type="kubernetes:core/v1:Node", props=props)


def kueue(kind: str, name: str, spec: Any) -> Resource:
    props = {"metadata": {"name": name}, "spec": spec}
    return Resource(type=f"kubernetes:kueue.x-k8s.io/v1beta2:{kind}", props=props, urn=f"u:{name}")


def flavor(pool: str) -> Resource:
    return kueue("ResourceFlavor", pool, {"nodeLabels": {"trainyard.dev/pool": pool}})


def queue(team: str, **quotas: Any) -> Resource:
    flavors = [
        {
            "name": name,
            "resources": [
                {"name": "cpu", "nominalQuota": "64"},
                {"name": "nvidia.com/gpu", "nominalQuota": quota},
            ],
        }
        for name, quota in quotas.items()
    ]
    return kueue("ClusterQueue", f"team-{team}", {"resourceGroups": [{"flavors": flavors}]})


POOL = [flavor("spot"), node("spot", "8"), node("spot", 8), node("other", 8)]


def test_quotas_that_add_up_to_the_pool_pass() -> None:
    assert (
        stack_violations(QUOTA_FITS_POOLS, [*POOL, queue("a", spot=12), queue("b", spot="4")]) == []
    )


def test_quotas_above_the_pool_are_rejected_with_the_shares(text: Text) -> None:
    found = stack_violations(QUOTA_FITS_POOLS, [*POOL, queue("a", spot=12), queue("b", spot="8")])
    assert [violation.urn for violation in found] == ["u:spot"]
    text([str(violation) for violation in found])


def test_flavors_without_nodes_in_the_stack_pass() -> None:
    assert stack_violations(QUOTA_FITS_POOLS, [flavor("cloud"), *POOL, queue("a", cloud=400)]) == []


def test_nodes_without_gpus_add_no_quota() -> None:
    bare = Resource(
        type="kubernetes:core/v1:Node",
        props={
            "metadata": {"labels": {"trainyard.dev/pool": "bare"}},
            "status": {"capacity": {"cpu": "4"}},
        },
    )
    assert len(stack_violations(QUOTA_FITS_POOLS, [flavor("bare"), bare, queue("a", bare=1)])) == 1


def test_unknown_values_are_checked_on_update() -> None:
    for gpus in (UNKNOWN, None):
        unsized = [*POOL, node("spot", gpus)]
        assert stack_violations(QUOTA_FITS_POOLS, [*unsized, queue("a", spot=400)]) == []
    assert stack_violations(QUOTA_FITS_POOLS, [*POOL, queue("a", spot=UNKNOWN)]) == []


def group(size: Any, *types: str, **labels: str) -> Resource:
    """A node group of the pool `cloud`."""
    own = {"trainyard.dev/pool": "cloud", **labels}
    return node_group("cloud", *types, labels=own, scalingConfig={"maxSize": size})


def karpenter(*types: str, **limits: Any) -> Resource:
    named = {name.replace("gpus", "nvidia.com/gpu"): limit for name, limit in limits.items()}
    return karpenter_pool("cloud", *types, limits=named)


@pytest.mark.parametrize(
    ("pools", "gpus"),
    [
        ([group(4, "p4d.24xlarge")], 32),
        ([group(4, "p4d.24xlarge", "g5.12xlarge")], 16),
        ([group(4, "p4d.24xlarge"), group(1, "p4d.24xlarge")], 40),
        ([karpenter("p4d.24xlarge", nodes="4")], 32),
        ([karpenter("p4d.24xlarge", nodes="4", gpus="24")], 24),
        ([karpenter("p4d.24xlarge", nodes="1k")], 8000),
        ([karpenter("p4d.24xlarge", nodes="4"), node("cloud", 8)], 40),
    ],
)
def test_quotas_fit_the_maximum_size_of_cloud_pools(pools: list[Resource], gpus: int) -> None:
    stack = [flavor("cloud"), *pools]
    assert stack_violations(QUOTA_FITS_POOLS, [*stack, queue("a", cloud=str(gpus))]) == []
    (found,) = stack_violations(QUOTA_FITS_POOLS, [*stack, queue("a", cloud=str(gpus + 1))])
    assert f" {gpus}, " in found.expected


@pytest.mark.parametrize(
    "pool",
    [
        group(UNKNOWN, "p4d.24xlarge"),
        group(4),
        group(4, "p4d.24xlarge", "p99.huge"),
        group(4, "p4d.24xlarge", **{"nvidia.com/device-plugin.config": "sliced"}),
        group(4, "p4d.24xlarge", **{"nvidia.com/mig.config": "halves"}),
        karpenter("p4d.24xlarge"),
    ],
)
def test_pools_with_unknown_gpu_counts_pass(pool: Resource) -> None:
    assert stack_violations(QUOTA_FITS_POOLS, [flavor("cloud"), pool, queue("a", cloud=400)]) == []


def test_quota_of_the_cohort_itself_counts(text: Text) -> None:
    rest = queue("rest", spot=8)
    cohort = kueue("Cohort", "trainyard", rest.props["spec"])
    assert stack_violations(QUOTA_FITS_POOLS, [*POOL, queue("a", spot=8), cohort]) == []
    (found,) = stack_violations(QUOTA_FITS_POOLS, [*POOL, queue("a", spot=9), cohort])
    text(found.got)


def test_quotas_accept_kubernetes_quantity_suffixes() -> None:
    assert len(stack_violations(QUOTA_FITS_POOLS, [*POOL, queue("a", spot="1k")])) == 1


def labelled(key: str, value: str) -> Resource:
    return kueue("ResourceFlavor", "cloud", {"nodeLabels": {key: value}})


ON_DEMAND = ("karpenter.sh/capacity-type", "on-demand")
BY_EKS = ("eks.amazonaws.com/capacityType", "ON_DEMAND")


@pytest.mark.parametrize(
    ("pool", "label", "known"),
    [
        (karpenter("p4d.24xlarge", nodes="4"), ON_DEMAND, True),
        (karpenter("p4d.24xlarge", nodes="4"), ("karpenter.sh/nodepool", "cloud"), True),
        (
            karpenter("p4d.24xlarge", nodes="4"),
            ("node.kubernetes.io/instance-type", "p4d.24xlarge"),
            True,
        ),
        (
            karpenter("p4d.24xlarge", "p4de.24xlarge", nodes="4"),
            ("node.kubernetes.io/instance-type", "p4d.24xlarge"),
            False,
        ),
        (group(4, "p4d.24xlarge"), BY_EKS, True),
        (
            node_group("c", "p4d.24xlarge", capacityType="SPOT", scalingConfig={"maxSize": 4}),
            BY_EKS,
            False,
        ),
    ],
)
def test_a_flavor_may_name_well_known_node_labels(
    pool: Resource, label: tuple[str, str], known: bool
) -> None:
    stack = [labelled(*label), pool]
    assert stack_violations(QUOTA_FITS_POOLS, [*stack, queue("a", cloud=32)]) == []
    assert len(stack_violations(QUOTA_FITS_POOLS, [*stack, queue("a", cloud=33)])) == known


def test_unknown_labels_match_no_flavor() -> None:
    later = node_group("c", "p4d.24xlarge", labels=UNKNOWN, scalingConfig={"maxSize": 4})
    for matching in (flavor("cloud"), labelled(*BY_EKS)):
        assert stack_violations(QUOTA_FITS_POOLS, [matching, later, queue("a", cloud=400)]) == []
