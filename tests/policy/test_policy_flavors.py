"""The rule that slices of GPUs belong to one team."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from policies.rules.gpu_sharing import TIME_SLICING
from policies.rules.model import UNKNOWN, Resource
from tests.policy.policy_examples import (
    GPU_TOLERATION,
    kubernetes,
    paths,
    stack_violations,
)
from tests.policy.policy_pools import (
    cluster_queue,
    flavor,
    karpenter_pool,
    kueue,
    namespace,
)
from tests.unit.snapshots import Text


def node(pool: str, taints: Any) -> Resource:
    metadata = {"name": "n", "labels": {"trainyard.dev/pool": pool}}
    return Resource(
        type="kubernetes:core/v1:Node", props={"metadata": metadata, "spec": {"taints": taints}}
    )


def plugin(replicas: int = 4) -> str:
    """The configuration of NVIDIA's device plugin, as its ConfigMap holds it."""
    entry = f"{{name: nvidia.com/gpu, replicas: {replicas}}}"
    return f"version: v1\nsharing:\n  timeSlicing:\n    resources: [{entry}]\n"


UNCOUNTED = "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu}]}}"
WHOLE = {"devicePlugin": {"config": {"default": "whole"}}}


def config_map(text: Any, key: str = "sliced") -> Resource:
    return Resource(type="kubernetes:core/v1:ConfigMap", props={"data": {key: text}}, urn="urn:map")


def release(values: Any) -> Resource:
    return Resource(
        type="kubernetes:helm.sh/v3:Release", props={"values": values}, urn="urn:release"
    )


def cluster_policy(default: Any) -> Resource:
    config = {"name": "plugin", "default": default}
    return kubernetes("nvidia.com/v1:ClusterPolicy", {"devicePlugin": {"config": config}})


def pool_of(*teams: str, config: str = "") -> list[Resource]:
    labels = {"nvidia.com/device-plugin.config": config} if config else None
    return [
        karpenter_pool("a", "g6.xlarge", labels=labels),
        flavor("a", [GPU_TOLERATION]),
        *(cluster_queue(team, "a") for team in teams),
    ]


@pytest.mark.parametrize(
    "resources",
    [
        [*pool_of("one"), config_map(plugin())],
        [*pool_of("one", "two"), config_map(plugin(replicas=1))],
        [*pool_of("one", "two"), config_map("version: v1")],
        [*pool_of("one", "two"), config_map(UNCOUNTED)],
        [*pool_of("one", "two"), config_map("timeSlicing: [")],
        [*pool_of("one", "two"), config_map(UNKNOWN)],
        [*pool_of("one", "two"), config_map(plugin()), cluster_policy("whole")],
        [*pool_of("one", "two"), config_map(plugin()), cluster_policy(UNKNOWN)],
        [*pool_of("one", "two", config="whole"), config_map(plugin())],
        [*pool_of("one", "two"), config_map(plugin()), release(WHOLE)],
        [*pool_of("one", "two"), config_map(plugin()), release({"config": {"default": "whole"}})],
        [*pool_of("one"), config_map(plugin()), release({"config": {"default": {"a": 1}}})],
        [node("a", []), flavor("a", []), config_map(plugin())],
    ],
)
def test_slices_of_one_team_and_whole_gpus_pass(resources: list[Resource]) -> None:
    assert stack_violations(TIME_SLICING, resources) == []


@pytest.mark.parametrize(
    ("resources", "where"),
    [
        ([*pool_of("one", "two"), config_map(plugin())], "data.sliced"),
        (
            [*pool_of("one", "two"), config_map(plugin()), cluster_policy("sliced")],
            "data.sliced",
        ),
        ([*pool_of("one", "two"), config_map(plugin()), cluster_policy("")], "data.sliced"),
        (
            [*pool_of("one", "two", config="sliced"), config_map(plugin()), cluster_policy("x")],
            "data.sliced",
        ),
        (
            [
                *pool_of("one", "two"),
                release({"devicePlugin": {"config": {"data": {"any": plugin()}}}}),
            ],
            "values.devicePlugin.config.data.any",
        ),
        (
            [*pool_of("one", "two"), release({"config": {"map": {"any": plugin()}}})],
            "values.config.map.any",
        ),
    ],
)
def test_slices_on_a_pool_of_several_teams_are_rejected(
    resources: list[Resource], where: str
) -> None:
    assert paths(stack_violations(TIME_SLICING, resources)) == [where]


def own_pool(tier: str, how: str = "timeSlicing") -> list[Resource]:
    """A pool of one team's own, sliced."""
    return [
        *pool_of("one"),
        kueue("LocalQueue", "one", {"clusterQueue": "team-one"}, "team-one"),
        namespace("team-one", tier),
        config_map(plugin().replace("timeSlicing", how)),
    ]


@pytest.mark.parametrize("how", ["timeSlicing", "mps"])
def test_a_research_team_may_slice_a_pool_of_its_own(how: str) -> None:
    assert stack_violations(TIME_SLICING, own_pool("research", how)) == []
    assert stack_violations(TIME_SLICING, own_pool("production", how), tier="gold") == []


@pytest.mark.parametrize(("how", "found_mode"), [("timeSlicing", "time-slicing"), ("mps", "MPS")])
def test_production_requires_whole_gpus(how: str, found_mode: str, text: Text) -> None:
    (found,) = stack_violations(TIME_SLICING, own_pool("production", how))
    assert found.got.startswith(found_mode)
    text(str(found))


def test_one_sliced_node_makes_the_pool_shared(text: Text) -> None:
    labels = [{"nvidia.com/device-plugin.config": config} for config in ("sliced", "whole")]
    for order in (labels, labels[::-1]):
        pools = [karpenter_pool("a", "g6.xlarge", labels=given) for given in order]
        (found,) = stack_violations(
            TIME_SLICING, [*pools, *pool_of("one", "two")[1:], config_map(plugin())]
        )
        text(found.got)


def led(team: str, queue: str) -> Resource:
    """The LocalQueue by which a namespace uses a ClusterQueue."""
    namespace = team if team.startswith("trainyard") else f"team-{team}"
    return kueue("LocalQueue", team, {"clusterQueue": queue}, namespace)


def test_two_namespaces_with_one_queue_are_two_teams(text: Text) -> None:
    sliced = [*pool_of("all"), led("one", "team-all"), config_map(plugin())]
    assert stack_violations(TIME_SLICING, sliced) == []
    (found,) = stack_violations(TIME_SLICING, [*sliced, led("two", "team-all")])
    text(found.got)


def test_node_validation_may_use_the_pool_of_a_team(text: Text) -> None:
    checks = replace(cluster_queue("x", "a"), props=kueue_props("validation", "a"))
    stack = [*pool_of("one"), config_map(plugin()), checks, led("one", "team-one")]
    assert stack_violations(TIME_SLICING, [*stack, led("trainyard-validation", "validation")]) == []
    (found,) = stack_violations(TIME_SLICING, [*stack, led("two", "validation")])
    text(found.got)


def kueue_props(name: str, *flavors: str) -> dict[str, Any]:
    props = dict(cluster_queue("any", *flavors).props)
    return props | {"metadata": {"name": name}}


def test_mps_does_not_isolate_teams(text: Text) -> None:
    sliced = config_map(plugin().replace("timeSlicing", "mps"))
    (found,) = stack_violations(TIME_SLICING, [*pool_of("one", "two"), sliced])
    text(str(found))


def test_the_message_names_the_queues_that_would_share(text: Text) -> None:
    (found,) = stack_violations(TIME_SLICING, [*pool_of("one", "two"), config_map(plugin())])
    assert found.urn == "urn:map"
    text(str(found))
