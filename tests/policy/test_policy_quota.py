"""The rule that queues promise no more GPUs than there are."""

from __future__ import annotations

from typing import Any

from policies.rules.model import UNKNOWN, Resource
from policies.rules.quota import QUOTA_FITS_POOLS
from tests.policy.policy_examples import of_stack


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
    assert of_stack(QUOTA_FITS_POOLS, [*POOL, queue("a", spot=12), queue("b", spot="4")]) == []


def test_quotas_above_the_pool_are_refused_with_the_shares() -> None:
    found = of_stack(QUOTA_FITS_POOLS, [*POOL, queue("a", spot=12), queue("b", spot="8")])
    assert [(str(violation), violation.urn) for violation in found] == [
        (
            "ResourceFlavor spot: got nominal quotas of 20 GPUs: 12 (team-a) + 8 (team-b); allowed"
            " 16, what its nodes have; lower a team's nominal quota, and let it borrow from the"
            " cohort",
            "u:spot",
        )
    ]


def test_flavors_without_nodes_in_the_stack_are_sized_elsewhere() -> None:
    assert of_stack(QUOTA_FITS_POOLS, [flavor("cloud"), *POOL, queue("a", cloud=400)]) == []


def test_nodes_without_gpus_count_for_nothing() -> None:
    bare = Resource(
        type="kubernetes:core/v1:Node",
        props={
            "metadata": {"labels": {"trainyard.dev/pool": "bare"}},
            "status": {"capacity": {"cpu": "4"}},
        },
    )
    assert len(of_stack(QUOTA_FITS_POOLS, [flavor("bare"), bare, queue("a", bare=1)])) == 1


def test_what_is_not_known_yet_is_left_to_the_update() -> None:
    for gpus in (UNKNOWN, None):
        unsized = [*POOL, node("spot", gpus)]
        assert of_stack(QUOTA_FITS_POOLS, [*unsized, queue("a", spot=400)]) == []
    assert of_stack(QUOTA_FITS_POOLS, [*POOL, queue("a", spot=UNKNOWN)]) == []
