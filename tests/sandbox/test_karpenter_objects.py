"""EC2NodeClasses and NodePools of the committed stacks, against the CRDs of Karpenter's own chart."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from infra.domain import naming
from sandbox import toolchain
from sandbox.cluster import ClusterError
from tests import committed
from tests.sandbox.node_kit import until

if TYPE_CHECKING:
    from tests.sandbox.conftest import Cluster

pytestmark = [pytest.mark.sandbox, pytest.mark.timeout(600), pytest.mark.long(20)]

Json = dict[str, Any]

CRDS = "pkg/apis/crds"
"""Of these the templates of the chart karpenter-crd are made."""
APIS = (naming.KARPENTER_NODE_CLASS_API, naming.KARPENTER_NODE_POOL_API)
IDS = {
    "subnetSelectorTerms": "subnet-0123456789abcdef0",
    "securityGroupSelectorTerms": "sg-0123456789abcdef0",
}
"""Ids that only a real account gives; a rendering has names in their place."""


def objects(stack: str) -> list[Json]:
    """What the stack gives Karpenter, with ids in the place of references."""
    found = [
        one["inputs"]
        for one in committed.rendered(stack)
        if one["inputs"].get("apiVersion") in APIS
    ]
    # Pulumi's mocks make floats of numbers.
    made: list[Json] = json.loads(json.dumps(found), parse_float=lambda text: int(float(text)))
    for one in made:
        for key, id_ in IDS.items():
            if key in one["spec"]:
                one["spec"][key] = [{"id": id_} for _ in one["spec"][key][:1]]
    return made


@pytest.fixture(scope="module")
def apis(cluster: Cluster) -> Cluster:
    """The cluster with Karpenter's CRDs. They stay: no object of theirs is created."""
    name = "karpenter-chart"
    folder = toolchain.ensure(Console(force_terminal=False), name).assets[name] / CRDS
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(folder))
    until(lambda: _served(cluster), "the API server serves Karpenter's kinds")
    return cluster


def _served(cluster: Cluster) -> bool:
    try:
        return all(cluster.kubectl("get", "--raw", f"/apis/{api}") for api in APIS)
    except ClusterError:
        return False


def tried(cluster: Cluster, made: list[Json]) -> str:
    """Ask the API server whether it would take the objects; raises ClusterError if not."""
    options = ("--server-side", "--dry-run=server", "--validate=strict", "-f", "-")
    listed = {"apiVersion": "v1", "kind": "List", "items": made}
    return cluster.kubectl("apply", *options, stdin=json.dumps(listed))


def test_the_crds_accept_what_production_gives_karpenter(apis: Cluster) -> None:
    made = objects("prod")
    pools = {"ondemand", "block", "spot", "cpu"}
    assert {(one["kind"], one["metadata"]["name"]) for one in made} == {
        (kind, pool) for kind in ("EC2NodeClass", "NodePool") for pool in pools
    }
    assert tried(apis, made).count("serverside-applied") == len(made)
