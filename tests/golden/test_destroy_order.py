"""Deletion order of `destroy` in the rendered graph: dependents are deleted first.

Pulumi deletes a resource before all that it depends on, before its parent, and before its provider;
what depends on a component depends on all that is inside of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from infra.cli.render import ROOT, Record, render
from infra.config import stack_values
from infra.domain import naming

Pick = Callable[[Record], bool]
Related = Callable[[Record, Record], bool]

STACKS = ("local", "dev", "prod")
IMAGE = (
    "111122223333.dkr.ecr.us-east-1.amazonaws.com/trainyard/trainer"
    "@sha256:2f6a1c0e9b7d43586f0a1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69"
)
"""In the record of images: the digest of the committed stacks."""


class Graph:
    """Resources of a stack with everything that is deleted after each."""

    def __init__(self, records: list[Record]) -> None:
        self.records = {f"{r['type']}::{r['name']}": r for r in records}
        self._after: dict[str, frozenset[str]] = {}

    def picked(self, pick: Pick) -> list[str]:
        return [name for name, record in self.records.items() if pick(record)]

    def goes_after(self, name: str) -> frozenset[str]:
        """Everything that is deleted only when `name` is gone."""
        if name not in self._after:
            found: set[str] = set()
            waiting = list(self._next(name))
            while waiting:
                one = waiting.pop()
                if one not in found:
                    found.add(one)
                    waiting += self._next(one)
            self._after[name] = frozenset(found)
        return self._after[name]

    def _next(self, name: str) -> Iterator[str]:
        record = self.records[name]
        for other in [*record["dependsOn"], record["parent"], *record["provider"].split(", ")]:
            if other in self.records and other != name:
                yield other

    def wrong(self, first: Pick, then: Pick, related: Related) -> list[str]:
        """Pairs of which the second may be deleted before the first."""
        return [
            f"{late} may go before {early}"
            for early in self.picked(first)
            for late in self.picked(then)
            if related(self.records[early], self.records[late])
            and late not in self.goes_after(early)
        ]


def of_type(*kinds: str) -> Pick:
    """Resources whose type ends in one of these."""
    return lambda record: record["type"].endswith(tuple(f":{kind}" for kind in kinds))


def release(name: str) -> Pick:
    """The Helm release of a controller."""
    return lambda record: record["type"].endswith(":Release") and record["name"].endswith(name)


def in_cluster(record: Record) -> bool:
    return bool(record["type"].startswith("kubernetes:"))


def runs(record: Record) -> bool:
    return in_cluster(record) and naming.RUN_ID in _labels(record)


def _labels(record: Record) -> dict[str, str]:
    found: dict[str, str] = record["inputs"].get("metadata", {}).get("labels", {})
    return found


def _name(record: Record) -> str:
    return str(record["inputs"]["metadata"]["name"])


def _home(record: Record) -> str:
    return str(record["inputs"]["metadata"].get("namespace"))


def any_pair(_first: Record, _then: Record) -> bool:
    return True


def same_team(first: Record, then: Record) -> bool:
    return _labels(first).get(naming.TEAM) == _labels(then).get(naming.TEAM)


def its_namespace(first: Record, then: Record) -> bool:
    return _home(first) == _name(then)


def named(first: Record, then: Record) -> bool:
    return f'"{_name(then)}"' in json.dumps(first["inputs"]["spec"])


def its_topology(first: Record, then: Record) -> bool:
    return bool(first["inputs"]["spec"].get("topologyName") == _name(then))


def its_role(first: Record, then: Record) -> bool:
    """An identity is named after its team."""
    return f"-team-{_labels(first)[naming.TEAM]}-" in f"{then['name']}-"


def private(_first: Record, then: Record) -> bool:
    return "private" in then["name"] or then["type"].endswith(":Vpc")


NODES = of_type("Node", "NodePool", "NodeGroup")
QUEUE_PARTS = of_type(
    "LocalQueue",
    "ClusterQueue",
    "Cohort",
    "ResourceFlavor",
    "AdmissionCheck",
    "WorkloadPriorityClass",
)
TOPOLOGIES = of_type("kueue.x-k8s.io/v1beta2:Topology")
NETWORK = of_type(
    "Vpc",
    "Subnet",
    "Route",
    "RouteTable",
    "RouteTableAssociation",
    "NatGateway",
    "InternetGateway",
    "VpcEndpoint",
)
ACCESS = of_type("AccessEntry", "AccessPolicyAssociation")

ORDER: dict[str, tuple[Pick, Pick, Related]] = {
    "a run, then its queue": (runs, of_type("LocalQueue", "ClusterQueue"), same_team),
    "a run, then its namespace": (runs, of_type("Namespace"), its_namespace),
    "a run, then the role with which it saves": (
        runs,
        of_type("PodIdentityAssociation", "Role", "RolePolicy"),
        its_role,
    ),
    "a run, then its team's secrets": (runs, of_type("ExternalSecret", "SecretStore"), same_team),
    "runs, then the policies on them": (
        runs,
        of_type("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
        any_pair,
    ),
    "a run, then its priority": (runs, of_type("PriorityClass", "WorkloadPriorityClass"), any_pair),
    "runs, then nodes": (runs, NODES, any_pair),
    "LocalQueues, then their ClusterQueue": (
        of_type("LocalQueue"),
        of_type("ClusterQueue"),
        same_team,
    ),
    "what a team has, then its namespace": (
        lambda r: (
            in_cluster(r) and naming.TEAM in _labels(r) and "namespace" in r["inputs"]["metadata"]
        ),
        of_type("Namespace"),
        its_namespace,
    ),
    "ClusterQueues, then what they name": (
        of_type("ClusterQueue"),
        of_type("Cohort", "ResourceFlavor", "AdmissionCheck"),
        named,
    ),
    "cohorts, then flavors": (of_type("Cohort"), of_type("ResourceFlavor"), named),
    "flavors, then their topology": (of_type("ResourceFlavor"), TOPOLOGIES, its_topology),
    "checks, then how they are made": (
        of_type("AdmissionCheck"),
        of_type("ProvisioningRequestConfig"),
        any_pair,
    ),
    "queues, then nodes": (QUEUE_PARTS, NODES, any_pair),
    "objects, then the connection to their cluster": (
        in_cluster,
        of_type("providers:kubernetes"),
        any_pair,
    ),
    "objects, then the access of who deletes them": (in_cluster, ACCESS, any_pair),
    "objects and nodes, then the ways to the cloud": (
        lambda r: in_cluster(r) or NODES(r),
        NETWORK,
        any_pair,
    ),
    "nodes, then the cluster": (NODES, of_type("index:Cluster"), any_pair),
    "the cluster, then its network": (of_type("index:Cluster"), of_type("Vpc", "Subnet"), private),
}
"""Resources that must be deleted first, and those that follow."""

HOLDERS: dict[str, tuple[Pick, Pick, Related]] = {
    "runs and Kueue": (runs, release("operators-kueue"), any_pair),
    "runs and JobSet": (runs, release("operators-jobset"), any_pair),
    "runs and Kubeflow Trainer": (runs, release("operators-kubeflowTrainer"), any_pair),
    "queues and Kueue": (QUEUE_PARTS, release("operators-kueue"), any_pair),
    "topologies and Kueue": (TOPOLOGIES, release("operators-kueue"), any_pair),
    "secrets and External Secrets": (
        of_type("ExternalSecret", "SecretStore"),
        release("operators-externalSecrets"),
        any_pair,
    ),
    "External Secrets and what it reads them with": (
        of_type("ExternalSecret"),
        lambda r: r["type"].startswith("aws:") and r["name"].startswith("aws-secrets-"),
        any_pair,
    ),
    "image policies and who checks them": (
        of_type("ClusterImagePolicy"),
        release("operators-policyController"),
        any_pair,
    ),
    "who checks images and what it reads them with": (
        release("operators-policyController"),
        lambda r: r["type"].startswith("aws:") and r["name"].startswith("aws-signatures-"),
        any_pair,
    ),
    "Karpenter's pools and Karpenter": (
        of_type("NodePool", "EC2NodeClass"),
        release("karpenter-controller"),
        any_pair,
    ),
    "Karpenter and its definitions": (
        release("karpenter-controller"),
        release("karpenter-crd"),
        any_pair,
    ),
}
"""Objects, and the controller that removes their finalizers."""

STATEFUL = of_type(
    "Bucket", "Key", "FileSystem", "LustreFileSystem", "PersistentVolumeClaim", "PersistentVolume"
)


def _run_file(folder: Path, team: str) -> str:
    run = {
        "name": f"last-of-{team}",
        "version": 1,
        "team": team,
        "jobKind": "jobset",
        "nodes": 2,
        "gpusPerNode": 8,
        "gpuModel": "a100",
        "image": "trainer",
        "config": "tests/golden/configs/hello.yaml",
        "overrides": {"batch": {"global_samples": 256, "micro_samples": 16}},
        "dataset": {"name": "corpus", "version": "0" * 16},
        "resources": {"cpu": "8", "memory": "64Gi", "shm": "8Gi"},
        "saveSeconds": 30,
    }
    path = folder / f"{team}.yaml"
    path.write_text(yaml.safe_dump(run))
    return str(path)


def _with_runs(stack: str, folder: Path) -> Graph:
    """The stack as committed, and a run of each team: runs are what is destroyed first.

    Data of dev may go by that stack's own choice; here it is kept, as it is without one.
    """
    values = stack_values(ROOT / f"Pulumi.{stack}.yaml")
    if stack != "local":
        runs_of = [_run_file(folder, team) for team in ("research", "production")]
        kept = values["storage"] | {"protect": True}
        values |= {"runs": runs_of, "images": {"trainer": IMAGE}, "storage": kept}
    return Graph(render(stack, values))


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Graph]:
    folder = tmp_path_factory.mktemp("runs")
    return {stack: _with_runs(stack, folder) for stack in STACKS}


@pytest.mark.parametrize("rule", ORDER)
@pytest.mark.parametrize("stack", STACKS)
def test_resources_are_deleted_before_what_they_need(
    stack: str, rule: str, graphs: dict[str, Graph]
) -> None:
    assert graphs[stack].wrong(*ORDER[rule]) == []


@pytest.mark.parametrize("rule", HOLDERS)
@pytest.mark.parametrize("stack", STACKS)
def test_controllers_are_deleted_after_objects_with_their_finalizers(
    stack: str, rule: str, graphs: dict[str, Graph]
) -> None:
    assert graphs[stack].wrong(*HOLDERS[rule]) == []


@pytest.mark.parametrize("rule", [*ORDER, *HOLDERS])
def test_every_order_rule_matches_resources(rule: str, graphs: dict[str, Graph]) -> None:
    first, then, related = (ORDER | HOLDERS)[rule]
    assert any(
        related(graph.records[a], graph.records[b])
        for graph in graphs.values()
        for a in graph.picked(first)
        for b in graph.picked(then)
    )


@pytest.mark.parametrize("stack", ["dev", "prod"])
def test_stateful_resources_are_protected_and_retained_on_delete(
    stack: str, graphs: dict[str, Graph]
) -> None:
    graph = graphs[stack]
    kept = [graph.records[name] for name in graph.picked(STATEFUL)]
    assert kept
    assert [r["name"] for r in kept if not (r["protect"] and r.get("retainOnDelete"))] == []


@pytest.mark.parametrize("stack", ["dev", "prod"])
def test_what_contains_protected_claims_is_kept_with_them(
    stack: str, graphs: dict[str, Graph]
) -> None:
    """Deleting a namespace deletes the claims in it, whatever Pulumi does with them."""
    records = graphs[stack].records.values()
    claims = [r for r in records if r["type"].endswith(":PersistentVolumeClaim")]
    homes = {
        r["inputs"]["metadata"]["name"]: r for r in records if r["type"].endswith(":Namespace")
    }
    of_claims = [homes[claim["inputs"]["metadata"]["namespace"]] for claim in claims]
    assert of_claims and all(home["protect"] and home["retainOnDelete"] for home in of_claims)


def test_unenforced_deletion_order_is_found(graphs: dict[str, Graph]) -> None:
    found = graphs["local"].wrong(NODES, of_type("Namespace"), any_pair)
    assert any("may go before kubernetes:core/v1:Node::" in line for line in found)
